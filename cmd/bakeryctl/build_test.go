package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
)

// TestBuild builds bakeryctl as packages do: two programs, with the entry point that the test binary
// does not have.
func TestBuild(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, err := exec.Command("../build", dir, "-buildvcs=false").CombinedOutput()
	require.NoError(t, err, "%s", out)
	b := serve(t, holding)
	t.Run("SignalsIgnoredOrBlocked_AreInheritedByTheCommand", func(t *testing.T) { testInheritedSignals(t, dir, b.Socket) })
	t.Run("AnyCommandLine_DoesWhatTheCompleteProgramDoes", func(t *testing.T) { testSamePrograms(t, dir, b.Socket) })
	t.Run("CompleteProgramIsMissing_OnlyLockWorks", func(t *testing.T) { testCompleteProgramIsMissing(t, dir, b.Socket) })
	t.Run("ProcIsNotMounted_OtherCommandsWork", func(t *testing.T) { testProcIsNotMounted(t, dir) })
}

// testInheritedSignals also runs the lock by the complete program, to which bakeryctl passes them on.
func testInheritedSignals(t *testing.T, dir, socket string) {
	show := []string{"grep", "-E", "^Sig(Ign|Blk):", "/proc/self/status"}
	bakeryctl := filepath.Join(dir, "bakeryctl")
	for name, state := range map[string][]string{
		"none":                                        nil,
		"PIPE ignored, as by systemd":                 {"--ignore-signal=PIPE"},
		"USR2 ignored, TERM blocked":                  {"--ignore-signal=USR2", "--block-signal=TERM"},
		"CHLD, URG and a real-time signal ignored":    {"--ignore-signal=CHLD", "--ignore-signal=URG", "--ignore-signal=RTMIN+3"},
		"HUP and SEGV ignored, PROF and CHLD blocked": {"--ignore-signal=HUP", "--ignore-signal=SEGV", "--block-signal=PROF", "--block-signal=CHLD"},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(argv ...string) string {
				t.Helper()
				out, err := exec.Command("env", slices.Concat(state, argv)...).CombinedOutput()
				require.NoError(t, err, "%q: %s", argv, out)
				return string(out)
			}
			want := run(show...)
			require.Equal(t, want, run(slices.Concat([]string{bakeryctl, "lock", "--socket", socket, "x", "--"}, show)...))
			require.Equal(t, want, run(slices.Concat([]string{bakeryctl, "--socket", socket, "lock", "x", "--"}, show)...), "by the complete program")
		})
	}
}

// outcome returns the exit code and the output of a program.
func outcome(t *testing.T, path string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(path, args...)
	cmd.Args[0] = "bakeryctl"
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func testSamePrograms(t *testing.T, dir, socket string) {
	for _, line := range []string{
		"", "--help", "--version", "help lock", "nonesuch", "exit-codes", "completion bash", "__complete lock --on-", "locks --nonesuch",
		"lock", "lock --help", "lock -nh", "lock x", "lock --nonesuch x -- true", "lock x -n -- true", "lock -w never x -- true", "lock --device= x -- true",
		"lock x -- /nonesuch", "lock x -- sh -c 'exit 3'", "lock -v --close x -- true --help", "--socket " + socket + " lock x -- echo --version",
		"lock --device /nonesuch x -- true", "lock --socket /nonesuch x -- true",
	} {
		args := strings.Fields(line)
		if len(args) > 0 && args[0] == "lock" && !strings.Contains(line, "--socket") {
			args = slices.Insert(args, 1, "--socket", socket)
		}
		code, stdout, stderr := outcome(t, filepath.Join(dir, "bakeryctl"), args...)
		wantCode, wantStdout, wantStderr := outcome(t, filepath.Join(dir, "bakeryctl-full"), args...)
		require.Equal(t, []any{wantCode, wantStdout, wantStderr}, []any{code, stdout, stderr}, line)
	}
}

func testCompleteProgramIsMissing(t *testing.T, dir, socket string) {
	alone := filepath.Join(t.TempDir(), "bakeryctl")
	text, err := os.ReadFile(filepath.Join(dir, "bakeryctl"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(alone, text, 0o755))
	link := filepath.Join(t.TempDir(), "bakeryctl")
	require.NoError(t, os.Symlink(alone, link))
	for _, path := range []string{alone, link} {
		code, stdout, stderr := outcome(t, path, "lock", "--socket", socket, "x", "--", "echo", "ran")
		require.Equal(t, []any{0, "ran\n", ""}, []any{code, stdout, stderr})
		code, stdout, stderr = outcome(t, path, "status")
		require.Equal(t, []any{cli.ExitUnavailable, "", "bakeryctl: execute " + alone + "-full, which has all commands but lock: no such file or directory\n" +
			"hint: install bakeryctl and bakeryctl-full together, in one directory: a package or cmd/build does\n"}, []any{code, stdout, stderr})
	}
	code, stdout, _ := outcome(t, filepath.Join(dir, "bakeryctl"), "--version")
	require.Zero(t, code)
	require.Contains(t, stdout, "bakeryctl ")
}

func testProcIsNotMounted(t *testing.T, dir string) {
	link := filepath.Join(t.TempDir(), "ctl")
	require.NoError(t, os.Symlink(filepath.Join(dir, "bakeryctl"), link))
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
		t.Skipf("mount namespaces: %v: %s", err, out)
	}
	for _, program := range []string{filepath.Join(dir, "bakeryctl"), "bakeryctl", link} {
		cmd := exec.Command("unshare", "--mount", "sh", "-c", `umount -l /proc && exec "$0" --version`, program)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", program, out)
		require.Contains(t, string(out), "bakeryctl ")
	}
}

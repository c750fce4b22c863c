//go:build integration

package sanlock

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/standstill"
)

var update = flag.Bool("update", false, "write real.txt from what sanlock answers")

// patience bounds each wait.
const patience = 10 * time.Minute

// nHosts is the number of hosts of calls.py.
const nHosts = 3

// TestCalls_Bakeryd_AnswersAsSanlock runs the steps against three bakeryds on one file.
func TestCalls_Bakeryd_AnswersAsSanlock(t *testing.T) {
	dir := workDir(t)
	build := exec.Command("go", "build", "-buildvcs=false", "-o", dir+"/", "../../cmd/bakeryd", "../../cmd/bakeryctl")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	disk, bakeryctl := filepath.Join(dir, "disk"), filepath.Join(dir, "bakeryctl")
	out, err = exec.Command(bakeryctl, "format", disk, "--lease", standstill.Lease.String()).CombinedOutput()
	require.NoError(t, err, "%s", out)
	var pids []int
	for id := 1; id <= nHosts; id++ {
		at := hostDir(t, dir, id)
		pids = append(pids, start(t, at, nil, filepath.Join(dir, "bakeryd"), "--device", disk, "--host-id", fmt.Sprint(id), "--name", fmt.Sprint("host", id),
			"--socket", at+"/s", "--runtime-dir", at, "--state-dir", at, "--sanlock-socket", at+"/sanlock.sock"))
	}
	for id := 1; id <= nHosts; id++ {
		until(t, fmt.Sprintf("host %d joins", id), func() bool {
			return exec.Command(bakeryctl, "--socket", filepath.Join(dir, fmt.Sprint(id), "s"), "lock", fmt.Sprint("joined", id), "--", "true").Run() == nil
		})
	}
	steps := calls(t, dir, pids[1], disk)
	real, listed := recorded(t)
	for _, wrong := range compare(real, stepsOf(steps), listed) {
		t.Error(wrong)
	}
}

// TestCalls_Sanlock_AnswersAsRecorded runs the steps against three daemons of sanlock, without a
// watchdog. It checks that real.txt still is what sanlock answers.
func TestCalls_Sanlock_AnswersAsRecorded(t *testing.T) {
	dir := workDir(t)
	var pids []int
	for id := 1; id <= nHosts; id++ {
		at := hostDir(t, dir, id)
		// The log file has a fixed path. Unprivileged, sanlock does not change its limits.
		pids = append(pids, start(t, at, []string{"SANLOCK_RUN_DIR=" + at, "SANLOCK_PRIVILEGED=0"}, "unshare", "--mount", "--propagation", "private", "sh", "-c",
			`mount --bind "$1" /var/log && shift && exec sanlock daemon "$@"`, "sh", at,
			"-D", "-w", "0", "-h", "0", "-l", "0", "-o", "2", "-g", "3", "-L", "-1", "-S", "-1", "-e", fmt.Sprint("host", id)))
	}
	for id := 1; id <= nHosts; id++ {
		until(t, fmt.Sprintf("host %d serves", id), func() bool {
			_, err := os.Stat(filepath.Join(dir, fmt.Sprint(id), "sanlock.sock"))
			return err == nil
		})
	}
	steps := calls(t, dir, pids[1], filepath.Join(dir, "areas"))
	if *update {
		versions, err := exec.Command("dpkg-query", "-W", "-f", "# ${Package} ${Version}\n", "sanlock", "libsanlock-client1", "python3-sanlock").Output()
		require.NoError(t, err)
		header := "# The answers of sanlock: go test -tags integration ./test/sanlock -run TestCalls_Sanlock -update\n"
		require.NoError(t, os.WriteFile("real.txt", []byte(header+string(versions)+steps), 0o644))
		return
	}
	real, _ := recorded(t)
	for _, wrong := range compare(real, stepsOf(steps), nil) {
		t.Error(wrong)
	}
}

// workDir returns a directory on a disk that is removed at the end.
func workDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(cmp.Or(os.Getenv("BAKERY_TEST_DIR"), "/var/tmp"), "sk") // a socket's path has 107 bytes
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// hostDir makes the directory of a host.
func hostDir(t *testing.T, dir string, id int) string {
	t.Helper()
	at := filepath.Join(dir, fmt.Sprint(id))
	require.NoError(t, os.Mkdir(at, 0o755))
	return at
}

// start starts a daemon that is killed at the end, with all that it started. If the test fails, its
// last lines are printed.
func start(t *testing.T, dir string, env []string, argv ...string) int {
	t.Helper()
	path := filepath.Join(dir, "log")
	log, err := os.Create(path)
	require.NoError(t, err)
	c := exec.Command(argv[0], argv[1:]...)
	c.Env, c.Stdout, c.Stderr, c.SysProcAttr = append(os.Environ(), env...), log, log, &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, c.Start())
	require.NoError(t, log.Close())
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait() // it was killed
		if text, err := os.ReadFile(path); t.Failed() && err == nil {
			lines := strings.SplitAfter(string(text), "\n")
			t.Logf("%s said at the end:\n%s", argv[0], strings.Join(lines[max(0, len(lines)-30):], ""))
		}
	})
	return c.Process.Pid
}

// calls runs calls.py, and returns what it prints.
func calls(t *testing.T, dir string, pid int, lockDisk string) string {
	t.Helper()
	args := []string{"calls.py", "--areas", filepath.Join(dir, "areas"), "--lock-disk", lockDisk, "--kill", fmt.Sprint(pid), "--hosts"}
	for id := 1; id <= nHosts; id++ {
		args = append(args, filepath.Join(dir, fmt.Sprint(id)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, "/usr/bin/python3", args...)
	var out, errors bytes.Buffer
	c.Env, c.Stdout, c.Stderr = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1"), &out, &errors
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	err := c.Run()
	require.NoError(t, err, "%s\n%s", out.String(), errors.String())
	require.Empty(t, errors.String())
	return out.String()
}

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, patience, 50*time.Millisecond, what)
}

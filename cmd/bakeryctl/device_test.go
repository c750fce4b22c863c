package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
)

func TestDevice_LockHeld_Excludes(t *testing.T) {
	t.Parallel()
	device := filepath.Join(t.TempDir(), "locks.img")
	holder := follow(t, "lock", "--device", device, "--create", "x", "--", "sh", "-c", `echo "$BAKERY_LOCK $BAKERY_HOST_ID"; read x; exit 7`)
	holder.expect("x 1")
	tests := []struct {
		flags []string
		lock  string
		code  int
		says  string // before the holder; empty: nothing
	}{
		{[]string{"-n"}, "x", 1, `"x" is not free`},
		{[]string{"-n", "--shared", "-E", "9"}, "x", 9, `"x" is not free`},
		{[]string{"-w", "0.2"}, "x", 1, `gave up waiting for "x" after 0.2 s`},
		{[]string{"-w", "0.2", "-q"}, "x", 1, ""},
		{[]string{"-n"}, "y", 0, ""},
	}
	for _, test := range tests {
		p := begin(t, append(append([]string{"lock", "--device", device}, test.flags...), test.lock, "--", "true")...)
		require.Equal(t, test.code, p.wait(), "%v %s", test.flags, test.lock)
		if test.says == "" {
			p.printed(t, "", "")
			continue
		}
		require.Regexp(t, fmt.Sprintf(`^bakeryctl: %s: held by \S+ \(host 1\), pid %d "sh -c echo .*", for \d+ s(; 1 ahead)?\n$`,
			test.says, holder.cmd.Process.Pid), withoutStalls(p.messages()))
	}
	waiter := begin(t, "lock", "--device", device, "x", "--", "echo", "ran")
	holder.write("")
	holder.exits(7)
	require.Empty(t, holder.messages())
	waiter.exits(0)
	waiter.printed(t, "ran\n", "")
}

func TestDevice_CreatedByFourAtOnce_IsShared(t *testing.T) {
	t.Parallel()
	device := filepath.Join(t.TempDir(), "locks.img")
	var all []*wrapper
	for range 4 {
		all = append(all, begin(t, "lock", "--device", device, "--create", "x", "--", "echo", "ran"))
	}
	for _, p := range all {
		p.exits(0)
		p.printed(t, "ran\n", "")
	}
}

func TestDevice_NotUsable_HasAHint(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(dir, "precious")
	content := strings.Repeat("precious", 1<<17)
	blank := filepath.Join(dir, "blank")
	missing := filepath.Join(dir, "missing")
	for path, text := range map[string]string{precious: content, blank: strings.Repeat("\x00", 1<<20)} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	tests := []struct {
		args []string
		hint string
	}{
		{[]string{"--device", precious, "--create"}, "to create a lockspace, run bakeryctl format " + precious + "; it destroys the contents"},
		{[]string{"--device", blank, "--create"}, "to create a lockspace, run bakeryctl format " + blank + "; it destroys the contents"},
		{[]string{"--device", missing}, "use --create to create a lockspace in a new file"},
		{[]string{"--device", filepath.Join(missing, "in"), "--create"},
			"check the path; a new file is created only outside /dev, in a directory that exists"},
		{[]string{"--device", dir, "--create"}, "give the path of a block device, as lsblk --paths lists them, or of a regular file"},
	}
	for _, test := range tests {
		p := begin(t, append(append([]string{"lock"}, test.args...), "x", "--", "echo", "ran")...)
		require.Equal(t, cli.ExitNoDevice, p.wait(), test.args)
		message, hint, _ := strings.Cut(p.messages(), "\nhint: ")
		if !strings.HasPrefix(message, "bakeryctl: ") || strings.TrimSuffix(hint, "\n") != test.hint {
			t.Errorf("%v: standard error %q, want the hint %q", test.args, p.messages(), test.hint)
		}
	}
	if now, err := os.ReadFile(precious); err != nil || string(now) != content {
		t.Errorf("the file was changed, %v", err)
	}
	require.NoFileExists(t, missing, "a file was created without --create")
}

func TestDevice_WrapperKilled_CommandIsKilled(t *testing.T) {
	t.Parallel()
	device := filepath.Join(t.TempDir(), "locks.img")
	p := follow(t, "lock", "--device", device, "--create", "x", "--", "sh", "-c", "echo $$; exec sleep 1000")
	pid := p.pid()
	p.signal(syscall.SIGKILL)
	eventually(t, "the command to die", func() bool { return !alive(pid) })
}

func TestDevice_InterruptedWhileWaiting_Exits(t *testing.T) {
	t.Parallel()
	device := filepath.Join(t.TempDir(), "locks.img")
	holder := follow(t, "lock", "--device", device, "--create", "x", "--", "sh", "-c", "echo ready; read x")
	holder.expect("ready")
	waiter := begin(t, "lock", "--device", device, "x", "--", "echo", "ran")
	eventually(t, "the waiter to open the device", func() bool { return hasOpen(waiter.cmd.Process.Pid, device) })
	waiter.signal(syscall.SIGTERM)
	waiter.exits(143)
	waiter.printed(t, "", "")
}

func hasOpen(pid int, path string) bool {
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is well-formed
	return slices.ContainsFunc(open, func(fd string) bool {
		target, err := os.Readlink(fd)
		return err == nil && target == path
	})
}

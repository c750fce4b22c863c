package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestLockMemory runs lockMemory in a separate process. With the right to, all memory in use is
// locked, also later. Without it there is one warning, and allocation still works.
func TestLockMemory(t *testing.T) {
	if os.Getenv("BAKERYD_TEST_LOCKS_MEMORY") != "" {
		lockMemoryHere(t)
		return
	}
	again := func(what string, credential *syscall.Credential) string {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^TestLockMemory$", "-test.v")
		cmd.Dir, cmd.Env = "/", append(os.Environ(), "BAKERYD_TEST_LOCKS_MEMORY="+what)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	t.Run("with the right to", func(t *testing.T) {
		if err := mayLockMemory(); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal(err, ", and CI skips nothing")
			}
			t.Skip("SKIP: ", err)
		}
		out := again("as it is", nil)
		require.NotContains(t, out, "level=WARN")
		locked := regexp.MustCompile(`locked: (\d+) kB`).FindStringSubmatch(out)
		require.NotNil(t, locked, out)
		n, err := strconv.Atoi(locked[1])
		require.NoError(t, err)
		require.Greater(t, n, 1<<10, "kB")
	})
	t.Run("without", func(t *testing.T) {
		var other *syscall.Credential
		if os.Getuid() == 0 {
			other = &syscall.Credential{Uid: 65534, Gid: 65534}
		}
		out := again("with a limit", other)
		require.Equal(t, 1, strings.Count(out, "level=WARN"), out)
		require.Contains(t, out, "the limit of locked memory is 65536 bytes")
		require.Contains(t, out, "locked: 0 kB")
	})
}

func lockMemoryHere(t *testing.T) {
	if os.Getenv("BAKERYD_TEST_LOCKS_MEMORY") == "with a limit" {
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: 64 << 10}))
	}
	lockMemory(slog.New(slog.NewTextHandler(os.Stdout, nil)))
	before := memory(t, "VmRSS")
	more, err := unix.Mmap(-1, 0, 64<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err, "allocation must still work")
	more[0] = 1
	require.Less(t, memory(t, "VmRSS"), before+16<<10, "unused memory is not locked")
	fmt.Printf("locked: %d kB\n", memory(t, "VmLck"))
}

// memory returns a value of /proc/self/status in kB.
func memory(t *testing.T, what string) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^` + what + `:\s+(\d+) kB$`).FindSubmatch(status)
	require.NotNil(t, found, what)
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return n
}

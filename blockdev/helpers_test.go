package blockdev_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
)

const (
	testSize  = 4 << 20
	waitLimit = 10 * time.Second
	waitTick  = time.Millisecond
)

// unavailable skips a test because a tool or right is missing; in CI that is a failure.
func unavailable(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s, and CI skips nothing", why)
	}
	t.Skipf("SKIP: %s", why)
}

func needRoot(t testing.TB, tools ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		unavailable(t, "needs root")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			unavailable(t, "needs "+tool)
		}
	}
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	return strings.TrimSpace(string(out))
}

// diskDir returns a temporary directory on a filesystem with direct IO.
func diskDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	var fs unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &fs))
	if fs.Type == unix.TMPFS_MAGIC {
		unavailable(t, "needs TMPDIR on a disk, not on tmpfs")
	}
	return dir
}

// bytesLong returns the size function of blockdev.Create for a size.
func bytesLong(n int64) func(blockdev.Info) (int64, error) {
	return func(blockdev.Info) (int64, error) { return n, nil }
}

func noFill(blockdev.Device) error { return nil }

// backingFile creates a file for use as a device or below loop devices.
func backingFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(diskDir(t), "image")
	require.NoError(t, blockdev.Create(path, bytesLong(testSize), noFill))
	return path
}

// loop puts a loop device on a file.
func loop(t testing.TB, file string, sector int, args ...string) string {
	t.Helper()
	needRoot(t, "losetup")
	args = append([]string{"-f", "--show", "--direct-io=on", "--sector-size", strconv.Itoa(sector)}, append(args, file)...)
	var dev string
	require.Eventually(t, func() bool { // others may race for the same free device
		out, err := exec.Command("losetup", args...).CombinedOutput()
		dev = strings.TrimSpace(string(out))
		return err == nil
	}, waitLimit, waitTick, "losetup")
	t.Cleanup(func() { run(t, "losetup", "-d", dev) })
	return dev
}

// mount mounts a filesystem on a new directory.
func mount(t testing.TB, args ...string) string {
	t.Helper()
	needRoot(t, "mount", "umount")
	dir := t.TempDir()
	run(t, "mount", append(args, dir)...)
	t.Cleanup(func() { run(t, "umount", dir) })
	return dir
}

func mustOpen(t testing.TB, path string, opts blockdev.Options) *blockdev.Disk {
	t.Helper()
	d, err := blockdev.Open(path, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// bothWays tests with the system calls pread and pwrite, and with io_uring.
func bothWays(t *testing.T, test func(t *testing.T, killable bool)) {
	t.Run("calls", func(t *testing.T) { test(t, false) })
	t.Run("io_uring", func(t *testing.T) {
		if !blockdev.RingsAllowed() {
			unavailable(t, "needs io_uring")
		}
		test(t, true)
	})
}

func mustRead(t testing.TB, dev blockdev.Device, off int64, n int) []byte {
	t.Helper()
	p := blockdev.Alloc(n)
	require.NoError(t, dev.Read(p, off))
	return p
}

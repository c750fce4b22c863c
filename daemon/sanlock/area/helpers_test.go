package area

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/test/fusetest"
)

const (
	mebi      = 1 << 20
	waitLimit = 30 * time.Second
	waitTick  = time.Millisecond
)

var (
	root = Peer{}
	user = Peer{UID: 65534, GID: 65534}
)

// unavailable skips a test because a tool or right is missing; in CI that is a failure.
func unavailable(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s, and CI skips nothing", why)
	}
	t.Skipf("SKIP: %s", why)
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		unavailable(t, "needs root")
	}
}

// newFile returns a file of zeroes on a disk, which every user can read and write.
func newFile(t testing.TB, size int64) string {
	t.Helper()
	dir := t.TempDir()
	var fs unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &fs))
	if fs.Type == unix.TMPFS_MAGIC {
		unavailable(t, "needs TMPDIR on a disk, not on tmpfs")
	}
	path := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, size))
	openUp(t, path)
	return path
}

// openUp lets every user reach a file below a test's directory.
func openUp(t testing.TB, path string) {
	require.NoError(t, os.Chmod(path, 0o666))
	for dir := filepath.Dir(path); len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755))
	}
}

// loop puts a loop device on a file.
func loop(t testing.TB, file string, sector int, args ...string) string {
	t.Helper()
	needRoot(t)
	args = append([]string{"-f", "--show", "--direct-io=on", "--sector-size", strconv.Itoa(sector)}, append(args, file)...)
	var dev string
	require.Eventually(t, func() bool { // others may race for the same free device
		out, err := exec.Command("losetup", args...).CombinedOutput()
		dev = strings.TrimSpace(string(out))
		return err == nil
	}, waitLimit, waitTick, "losetup")
	t.Cleanup(func() { require.NoError(t, exec.Command("losetup", "-d", dev).Run()) })
	return dev
}

// faultyLoop returns a loop device of some size, and the faults of its requests.
func faultyLoop(t testing.TB, size int64) (string, *fusetest.Faults) {
	t.Helper()
	needRoot(t)
	faults := &fusetest.Faults{}
	file, err := fusetest.Open(newFile(t, size), faults)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	dir := t.TempDir()
	if err := fusetest.Mount(dir, "disk", file); err != nil {
		unavailable(t, err.Error())
	}
	t.Cleanup(func() { require.NoError(t, fusetest.Unmount(dir)) })
	dev := loop(t, filepath.Join(dir, "disk"), 512)
	t.Cleanup(faults.Repair)
	return dev, faults
}

func newAreas() *Areas { return New(Config{UUID: uuid, Limit: waitLimit}) }

func read(a *Areas, kind Kind, path string, offset int64, flags uint32) (Record, error) {
	return a.Read(context.Background(), root, kind, path, uint64(offset), flags)
}

func write(a *Areas, r Record, path string, offset int64) (Record, error) {
	return a.Write(context.Background(), root, r, path, uint64(offset))
}

// codeIn returns the code of an error that names its place, 0 without an error.
func codeIn(err error) int32 {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

func requireCode(t testing.TB, want int32, err error, about ...any) {
	t.Helper()
	var e *Error
	if want == 0 {
		require.NoError(t, err, fmt.Sprint(about...))
		return
	}
	require.ErrorAs(t, err, &e, fmt.Sprint(about...))
	require.Equal(t, want, e.Code, "%v: %v", about, err)
}

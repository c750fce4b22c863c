package blockdev_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/fusetest"
)

func TestDisk_RingsForbidden_UsesCalls(t *testing.T) {
	blockdev.ForbidRings(t)
	d := mustOpen(t, backingFile(t), blockdev.Options{Killable: true})
	p := disktest.Random(1, 4096)
	require.NoError(t, d.Write(p, 0))
	require.Equal(t, p, mustRead(t, d, 0, 4096))
	require.Zero(t, d.Rings())
}

func TestDisk_NoDescriptorForARing_UsesCalls(t *testing.T) {
	d := mustOpen(t, backingFile(t), blockdev.Options{Killable: true})
	p := disktest.Random(1, 4096)
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max}))
	err := d.Write(p, 0)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	require.NoError(t, err)
	require.Zero(t, d.Rings())
	require.Equal(t, p, mustRead(t, d, 0, 4096))
}

// faultyLoop returns a loop device on a file whose server counts flushes, and the faults of its requests.
func faultyLoop(t *testing.T) (path string, faults *fusetest.Faults, flushes *atomic.Int64) {
	t.Helper()
	needRoot(t, "losetup")
	faults, flushes = &fusetest.Faults{}, &atomic.Int64{}
	file, err := fusetest.Open(backingFile(t), faults)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	dir := t.TempDir()
	if err := fusetest.Mount(dir, "disk", flushed{file, flushes}); err != nil {
		unavailable(t, err.Error())
	}
	t.Cleanup(func() { require.NoError(t, fusetest.Unmount(dir)) })
	path = loop(t, filepath.Join(dir, "disk"), 512)
	// A loop device keeps the setting of its file before, which may be without flushes.
	require.NoError(t, os.WriteFile("/sys/block/"+filepath.Base(path)+"/queue/write_cache", []byte("write back"), 0))
	t.Cleanup(faults.Repair)
	return path, faults, flushes
}

// flushed counts the flushes of a file.
type flushed struct {
	*fusetest.File
	n *atomic.Int64
}

func (f flushed) Fsync(ctx context.Context, h fs.FileHandle, flags uint32) syscall.Errno {
	defer f.n.Add(1)
	return f.File.Fsync(ctx, h, flags)
}

// TestDisk_Write_IsDurable: the kernel flushes the cache of the device before the request returns.
func TestDisk_Write_IsDurable(t *testing.T) {
	bothWays(t, func(t *testing.T, killable bool) {
		path, _, flushes := faultyLoop(t)
		d := mustOpen(t, path, blockdev.Options{Killable: killable})
		for i := range 3 {
			before := flushes.Load()
			require.NoError(t, d.Write(disktest.Random(1, 4096), int64(i)*4096))
			require.Greater(t, flushes.Load(), before)
		}
		require.Equal(t, killable, d.Rings() == 1)
	})
}

// TestDisk_ProcessIsKilled_KeepsLocksUntilRequestsReturn: it ends although the disk hangs. The locks on
// the disk, and those of the file that it keeps, stay.
func TestDisk_ProcessIsKilled_KeepsLocksUntilRequestsReturn(t *testing.T) {
	path, faults, _ := faultyLoop(t)
	if !blockdev.RingsAllowed() {
		unavailable(t, "needs io_uring")
	}
	kept := filepath.Join(t.TempDir(), "kept")
	killed := exec.Command(os.Args[0], "-test.run", "^TestKilledProcess$")
	killed.Env = append(os.Environ(), "BLOCKDEV_DISK="+path, "BLOCKDEV_KEPT="+kept)
	killed.Stderr = os.Stderr
	out, err := killed.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, killed.Start())
	t.Cleanup(func() { _ = killed.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "locked\n", line)
	faults.Set(fusetest.State{Hang: fusetest.All})
	require.Eventually(t, func() bool { return faults.Hanging() == 2 }, waitLimit, waitTick, "a read and a write hang")
	require.NoError(t, killed.Process.Kill())
	_ = killed.Wait() // returns although they hang

	d := mustOpen(t, path, blockdev.Options{Killable: true})
	f, err := os.OpenFile(kept, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, 2, faults.Hanging())
	require.ErrorIs(t, d.Lock(0, 512), blockdev.ErrBusy)
	require.ErrorIs(t, blockdev.LockFile(f, 1, 1), blockdev.ErrBusy)
	require.NoError(t, blockdev.LockFile(f, 2, 1))
	faults.Repair()
	require.Eventually(t, func() bool { return d.Lock(0, 512) == nil && blockdev.LockFile(f, 1, 1) == nil }, waitLimit, waitTick)
}

// TestKilledProcess is the process of TestDisk_ProcessIsKilled_KeepsLocksUntilRequestsReturn.
func TestKilledProcess(t *testing.T) {
	path := os.Getenv("BLOCKDEV_DISK")
	if path == "" {
		return
	}
	d := mustOpen(t, path, blockdev.Options{Killable: true})
	f, err := os.Create(os.Getenv("BLOCKDEV_KEPT"))
	require.NoError(t, err)
	require.NoError(t, blockdev.LockFile(f, 1, 1))
	d.Keep(f)
	require.NoError(t, d.Lock(0, 512))
	fmt.Println("locked")
	go func() {
		for d.Read(blockdev.Alloc(4096), 0) == nil {
		}
	}()
	for d.Write(blockdev.Alloc(4096), 8192) == nil {
	}
}

// TestDisk_ManyRequestsAtOnce_FewRingsAreKept: a disk that hung must not leave a descriptor for each request.
func TestDisk_ManyRequestsAtOnce_FewRingsAreKept(t *testing.T) {
	if !blockdev.RingsAllowed() {
		unavailable(t, "needs io_uring")
	}
	path, faults, _ := faultyLoop(t)
	d := mustOpen(t, path, blockdev.Options{Killable: true})
	faults.Set(fusetest.State{Hang: fusetest.All})
	var reads sync.WaitGroup
	for range 32 {
		reads.Go(func() { _ = d.Read(blockdev.Alloc(4096), 0) })
	}
	require.Eventually(t, func() bool { return d.Stats().InFlight == 32 }, waitLimit, waitTick)
	faults.Repair()
	reads.Wait()
	require.LessOrEqual(t, d.Rings(), 8)
}

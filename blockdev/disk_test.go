package blockdev_test

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// Every write is direct and durable, by the flags that the kernel has for the descriptor.
func TestOpenFlags(t *testing.T) {
	for name, path := range map[string]func(t testing.TB) string{
		"file": backingFile,
		"loop": func(t testing.TB) string { return loop(t, backingFile(t), 512) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, readOnly := range []bool{false, true} {
				d := mustOpen(t, path(t), blockdev.Options{ReadOnly: readOnly})
				flags, err := unix.FcntlInt(uintptr(d.FD()), unix.F_GETFL, 0)
				require.NoError(t, err)
				require.NotZero(t, flags&unix.O_DIRECT, "O_DIRECT")
				require.NotZero(t, flags&unix.O_DSYNC, "O_DSYNC")
				require.Equal(t, !readOnly, flags&unix.O_ACCMODE == unix.O_RDWR)
				inherited, err := unix.FcntlInt(uintptr(d.FD()), unix.F_GETFD, 0)
				require.NoError(t, err)
				require.NotZero(t, inherited&unix.FD_CLOEXEC, "O_CLOEXEC")
			}
		})
	}
}

func TestOpenRefusals(t *testing.T) {
	dir := diskDir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, unix.Mkfifo(at("fifo"), 0o600))
	listener, err := net.Listen("unix", at("socket"))
	require.NoError(t, err)
	defer listener.Close()
	require.NoError(t, os.WriteFile(at("empty"), nil, 0o600))
	require.NoError(t, os.WriteFile(at("small"), make([]byte, 4095), 0o600))
	require.NoError(t, os.Symlink(dir, at("link")))
	require.NoError(t, os.Symlink(at("nowhere"), at("dangling")))

	for path, c := range map[string]struct {
		want error
		text string
	}{
		dir:            {blockdev.ErrNotDevice, "but a directory"},
		at("link"):     {blockdev.ErrNotDevice, "but a directory"},
		"/dev/null":    {blockdev.ErrNotDevice, "but a character device"},
		at("fifo"):     {blockdev.ErrNotDevice, "but a FIFO"},
		at("socket"):   {blockdev.ErrNotDevice, "but a socket"},
		at("empty"):    {blockdev.ErrTooSmall, ": 0 bytes"},
		at("small"):    {blockdev.ErrTooSmall, ": 4095 bytes, less than one block of 4096"},
		at("missing"):  {os.ErrNotExist, "no such file or directory"},
		at("dangling"): {os.ErrNotExist, "no such file or directory"},
	} {
		_, err := blockdev.Open(path, blockdev.Options{})
		require.ErrorIs(t, err, c.want, path)
		require.ErrorContains(t, err, "open "+path+": ")
		require.ErrorContains(t, err, c.text)
	}
}

func TestOpenFollowsLinks(t *testing.T) {
	file := backingFile(t)
	link := filepath.Join(filepath.Dir(file), "by-id")
	require.NoError(t, os.Symlink(file, link))
	require.Equal(t, link, mustOpen(t, link, blockdev.Options{}).Info().Path)
}

func TestOpenReadOnlyDevice(t *testing.T) {
	dev := loop(t, backingFile(t), 512, "--read-only")
	_, err := blockdev.Open(dev, blockdev.Options{})
	require.ErrorIs(t, err, blockdev.ErrReadOnly)
	mustRead(t, mustOpen(t, dev, blockdev.Options{ReadOnly: true}), 0, 512)
}

func TestOpenWithoutDirectIO(t *testing.T) {
	dir := mount(t, "-t", "tmpfs", "tmpfs")
	path := filepath.Join(dir, "image")
	require.NoError(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	_, err := blockdev.Open(path, blockdev.Options{})
	require.ErrorIs(t, err, blockdev.ErrNoDirectIO)
	require.ErrorContains(t, err, "use a block device, or a file on ext4 or xfs")

	path = filepath.Join(dir, "new")
	require.ErrorIs(t, blockdev.Create(path, bytesLong(1<<20), noFill), blockdev.ErrNoDirectIO)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing left behind")
}

func TestGeometryOfBlockDevice(t *testing.T) {
	for _, sector := range []int{512, 4096} {
		path := loop(t, backingFile(t), sector)
		info := mustOpen(t, path, blockdev.Options{}).Info()
		require.Equal(t, sector, info.LogicalBlock)
		require.Equal(t, sector, info.PhysicalBlock)
		require.False(t, info.Regular)
		require.Equal(t, uint32(7), info.Major, "loop devices have this number")
	}
}

func TestGeometryOfFile(t *testing.T) {
	path := backingFile(t)
	d := mustOpen(t, path, blockdev.Options{})
	info := d.Info()
	require.True(t, info.Regular)
	require.GreaterOrEqual(t, info.PhysicalBlock, 4096)
	require.Zero(t, info.Major)

	// If the kernel does not report the block, probing gives the same result.
	block, err := blockdev.ProbeBlock(d.FD())
	require.NoError(t, err)
	require.Equal(t, info.LogicalBlock, block)

	// Only whole blocks count.
	require.NoError(t, os.Truncate(path, testSize+100))
	require.Equal(t, int64(testSize), mustOpen(t, path, blockdev.Options{}).Info().Size)
}

// Exclusive conflicts with another exclusive holder of the device, but not with a plain open.
func TestExclusive(t *testing.T) {
	file := backingFile(t)
	dev := loop(t, file, 512)
	plain := mustOpen(t, dev, blockdev.Options{})
	holder := mustOpen(t, dev, blockdev.Options{Exclusive: true})

	_, err := blockdev.Open(dev, blockdev.Options{Exclusive: true})
	require.ErrorIs(t, err, blockdev.ErrBusy)
	_, err = blockdev.Open(file, blockdev.Options{Exclusive: true})
	require.ErrorIs(t, err, blockdev.ErrBusy, "the file beneath it")
	require.ErrorContains(t, err, dev)
	mustOpen(t, dev, blockdev.Options{})
	mustOpen(t, file, blockdev.Options{})
	require.NoError(t, plain.Write(blockdev.Alloc(512), 0))

	require.NoError(t, holder.Close())
	mustOpen(t, file, blockdev.Options{Exclusive: true})
	mustOpen(t, dev, blockdev.Options{Exclusive: true})
}

func TestExclusiveOfMountedDevice(t *testing.T) {
	needRoot(t, "mkfs.ext4")
	file := backingFile(t)
	run(t, "mkfs.ext4", "-q", file)
	dev := loop(t, file, 512)
	mount(t, dev)
	for _, path := range []string{dev, file} {
		_, err := blockdev.Open(path, blockdev.Options{Exclusive: true})
		require.ErrorIs(t, err, blockdev.ErrBusy, path)
		require.ErrorContains(t, err, "mounted")
	}
	mustRead(t, mustOpen(t, dev, blockdev.Options{ReadOnly: true}), 0, 512)
}

// A file that shrinks under an open device is an error, never a short read.
func TestShrunkFile(t *testing.T) {
	bothWays(t, func(t *testing.T, killable bool) {
		path := backingFile(t)
		d := mustOpen(t, path, blockdev.Options{Killable: killable})
		require.NoError(t, os.Truncate(path, 8192))

		err := d.Read(blockdev.Alloc(8192), 4096)
		require.ErrorIs(t, err, blockdev.ErrRange)
		require.EqualError(t, err,
			"read 8192 bytes at 4096 of "+path+": only 4096 read: outside the device: it has shrunk to 8192 bytes")
		require.ErrorIs(t, d.Read(blockdev.Alloc(4096), 1<<20), blockdev.ErrRange)
		require.Equal(t, uint64(2), d.Stats().Read.Errors)
	})
}

// An error contains the request, then the kernel's error.
func TestErrno(t *testing.T) {
	bothWays(t, func(t *testing.T, killable bool) {
		path := backingFile(t)
		d := mustOpen(t, path, blockdev.Options{Killable: killable})
		var limit unix.Rlimit
		require.NoError(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &limit))
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: limit.Max}))
		defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &limit)) }()

		err := d.Write(blockdev.Alloc(4096), 8192)
		require.ErrorIs(t, err, unix.EFBIG)
		require.EqualError(t, err, "write 4096 bytes at 8192 of "+path+": file too large")

		err = d.Write(blockdev.Alloc(8192), 0)
		require.EqualError(t, err, "write 8192 bytes at 0 of "+path+": only 4096 written: short write")
		require.Equal(t, uint64(2), d.Stats().Write.Errors)
	})
}

// An alignment that only the kernel rejects is explained too.
func TestKernelRefusesAlignment(t *testing.T) {
	bothWays(t, func(t *testing.T, killable bool) {
		d := mustOpen(t, loop(t, backingFile(t), 4096), blockdev.Options{Killable: killable})
		d.SetLogicalBlock(512)
		err := d.Read(blockdev.Alloc(512), 0)
		require.ErrorIs(t, err, blockdev.ErrAlignment)
		require.ErrorIs(t, err, unix.EINVAL)
	})
}

func TestCloseWaitsForRequests(t *testing.T) {
	d := mustOpen(t, backingFile(t), blockdev.Options{})
	end, ok := d.Begin()
	require.True(t, ok)
	closed := make(chan error)
	go func() { closed <- d.Close() }()

	require.Eventually(t, func() bool { return d.Read(blockdev.Alloc(4096), 0) != nil }, waitLimit, waitTick,
		"requests are refused while it waits")
	select {
	case <-closed:
		t.Fatal("closed with a request under way")
	default:
	}
	end()
	require.NoError(t, <-closed)
}

// A second descriptor of the open file stands for a request in flight: the kernel holds the file for
// both.
func TestDisk_Lock_EndsWithLastRequest(t *testing.T) {
	file := backingFile(t)
	for _, path := range []string{file, loop(t, file, 512)} {
		d, next := mustOpen(t, path, blockdev.Options{}), mustOpen(t, path, blockdev.Options{})
		require.NoError(t, d.Lock(4096, 512))
		require.NoError(t, d.Lock(4096, 512))
		require.NoError(t, next.Lock(8192, 512), "other bytes")
		require.ErrorIs(t, next.Lock(4096, 4096), blockdev.ErrBusy)
		inFlight, err := unix.Dup(d.FD())
		require.NoError(t, err)
		require.NoError(t, d.Close())
		require.EqualError(t, next.Lock(4096, 512), "lock 512 bytes at 4096 of "+path+
			": device is in use: another process has it, or a request is in flight")
		require.NoError(t, unix.Close(inFlight))
		require.NoError(t, next.Lock(4096, 512))
		require.NoError(t, next.Close())
	}
	d := mustOpen(t, file, blockdev.Options{ReadOnly: true})
	require.ErrorIs(t, d.Lock(0, 1), unix.EBADF, "a reader locks nothing")
}

// TestDisk_LockAfterClose_ReturnsErrClosed: its descriptor may be another file's.
func TestDisk_LockAfterClose_ReturnsErrClosed(t *testing.T) {
	d := mustOpen(t, backingFile(t), blockdev.Options{})
	require.NoError(t, d.Close())
	mustOpen(t, backingFile(t), blockdev.Options{}) // gets the number
	require.ErrorIs(t, d.Lock(0, 512), blockdev.ErrClosed)
}

// Faults work with real devices too.
func TestFaultyOnLoop(t *testing.T) {
	f := disktest.NewFaulty(mustOpen(t, loop(t, backingFile(t), 4096), blockdev.Options{}), disktest.FaultyOptions{})
	old := disktest.Random(1, 8192)
	require.NoError(t, f.Write(old, 0))
	f.Inject(disktest.Fault{Op: blockdev.OpWrite, Times: 1, Late: true})
	f.Inject(disktest.Fault{Op: blockdev.OpWrite, Times: 1, Err: unix.EIO, Landed: 5000})
	p := disktest.Random(2, 8192)
	require.ErrorIs(t, f.Write(p, 0), unix.EIO)
	require.Equal(t, append(bytes.Clone(p[:5000]), old[5000:]...), mustRead(t, f, 0, 8192))
	require.NoError(t, f.Write(old, 0))
	_, err := f.Land()
	require.NoError(t, err)
	require.Equal(t, old, mustRead(t, f, 0, 8192))
}

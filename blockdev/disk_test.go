package blockdev

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Every write is direct and durable, by the flags that the kernel has for the descriptor.
func TestOpenFlags(t *testing.T) {
	for name, path := range map[string]func(t testing.TB) string{
		"file": backingFile,
		"loop": func(t testing.TB) string { return loop(t, backingFile(t), 512) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, readOnly := range []bool{false, true} {
				d := mustOpen(t, path(t), Options{ReadOnly: readOnly})
				flags, err := unix.FcntlInt(uintptr(d.fd), unix.F_GETFL, 0)
				require.NoError(t, err)
				require.NotZero(t, flags&unix.O_DIRECT, "O_DIRECT")
				require.NotZero(t, flags&unix.O_DSYNC, "O_DSYNC")
				require.Equal(t, !readOnly, flags&unix.O_ACCMODE == unix.O_RDWR)
				inherited, err := unix.FcntlInt(uintptr(d.fd), unix.F_GETFD, 0)
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
		dir:            {ErrNotDevice, "but a directory"},
		at("link"):     {ErrNotDevice, "but a directory"},
		"/dev/null":    {ErrNotDevice, "but a character device"},
		at("fifo"):     {ErrNotDevice, "but a FIFO"},
		at("socket"):   {ErrNotDevice, "but a socket"},
		at("empty"):    {ErrTooSmall, "0 bytes"},
		at("small"):    {ErrTooSmall, "less than one block of 4096"},
		at("missing"):  {os.ErrNotExist, "no such file or directory"},
		at("dangling"): {os.ErrNotExist, "no such file or directory"},
	} {
		_, err := Open(path, Options{})
		require.ErrorIs(t, err, c.want, path)
		require.ErrorContains(t, err, "open "+path+": ")
		require.ErrorContains(t, err, c.text)
	}
}

func TestOpenFollowsLinks(t *testing.T) {
	file := backingFile(t)
	link := filepath.Join(filepath.Dir(file), "by-id")
	require.NoError(t, os.Symlink(file, link))
	require.Equal(t, link, mustOpen(t, link, Options{}).Info().Path)
}

func TestOpenReadOnlyDevice(t *testing.T) {
	dev := loop(t, backingFile(t), 512, "--read-only")
	_, err := Open(dev, Options{})
	require.ErrorIs(t, err, ErrReadOnly)
	mustRead(t, mustOpen(t, dev, Options{ReadOnly: true}), 0, 512)
}

func TestOpenWithoutDirectIO(t *testing.T) {
	dir := mount(t, "-t", "tmpfs", "tmpfs")
	path := filepath.Join(dir, "image")
	require.NoError(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	_, err := Open(path, Options{})
	require.ErrorIs(t, err, ErrNoDirectIO)
	require.ErrorContains(t, err, "use a block device, or a file on ext4 or xfs")

	path = filepath.Join(dir, "new")
	require.ErrorIs(t, Create(path, 1<<20, nil), ErrNoDirectIO)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing left behind")
}

func TestGeometryOfBlockDevice(t *testing.T) {
	for _, sector := range []int{512, 4096} {
		path := loop(t, backingFile(t), sector)
		info := mustOpen(t, path, Options{}).Info()
		require.Equal(t, sector, info.LogicalBlock)
		require.Equal(t, sector, info.PhysicalBlock)
		require.False(t, info.Regular)
		require.Equal(t, uint32(7), info.Major, "loop devices have this number")
	}
}

func TestGeometryOfFile(t *testing.T) {
	path := backingFile(t)
	d := mustOpen(t, path, Options{})
	info := d.Info()
	require.True(t, info.Regular)
	require.GreaterOrEqual(t, info.PhysicalBlock, 4096)
	require.Zero(t, info.Major)

	// If the kernel does not report the block, probing gives the same result.
	block, err := probeBlock(d.fd)
	require.NoError(t, err)
	require.Equal(t, info.LogicalBlock, block)

	// Only whole blocks count.
	require.NoError(t, os.Truncate(path, testSize+100))
	require.Equal(t, int64(testSize), mustOpen(t, path, Options{}).Info().Size)
}

// Exclusive conflicts with another exclusive holder of the device, but not with a plain open.
func TestExclusive(t *testing.T) {
	file := backingFile(t)
	dev := loop(t, file, 512)
	plain := mustOpen(t, dev, Options{})
	holder := mustOpen(t, dev, Options{Exclusive: true})

	_, err := Open(dev, Options{Exclusive: true})
	require.ErrorIs(t, err, ErrBusy)
	_, err = Open(file, Options{Exclusive: true})
	require.ErrorIs(t, err, ErrBusy, "the file beneath it")
	require.ErrorContains(t, err, dev)
	mustOpen(t, dev, Options{})
	mustOpen(t, file, Options{})
	require.NoError(t, plain.Write(Alloc(512), 0))

	require.NoError(t, holder.Close())
	mustOpen(t, file, Options{Exclusive: true})
	mustOpen(t, dev, Options{Exclusive: true})
}

func TestExclusiveOfMountedDevice(t *testing.T) {
	needRoot(t, "mkfs.ext4")
	file := backingFile(t)
	run(t, "mkfs.ext4", "-q", file)
	dev := loop(t, file, 512)
	mount(t, dev)
	for _, path := range []string{dev, file} {
		_, err := Open(path, Options{Exclusive: true})
		require.ErrorIs(t, err, ErrBusy, path)
		require.ErrorContains(t, err, "mounted")
	}
	mustRead(t, mustOpen(t, dev, Options{ReadOnly: true}), 0, 512)
}

// A file that shrinks under an open device is an error, never a short read.
func TestShrunkFile(t *testing.T) {
	path := backingFile(t)
	d := mustOpen(t, path, Options{})
	require.NoError(t, os.Truncate(path, 8192))

	err := d.Read(Alloc(8192), 4096)
	require.ErrorIs(t, err, ErrRange)
	require.EqualError(t, err,
		"read 8192 bytes at 4096 of "+path+": only 4096 read: outside the device: it has shrunk to 8192 bytes")
	require.ErrorIs(t, d.Read(Alloc(4096), 1<<20), ErrRange)
	require.Equal(t, uint64(2), d.Stats().Read.Errors)
}

// An error contains the request, then the kernel's error.
func TestErrno(t *testing.T) {
	path := backingFile(t)
	d := mustOpen(t, path, Options{})
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &limit))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: limit.Max}))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &limit)) }()

	err := d.Write(Alloc(4096), 8192)
	require.ErrorIs(t, err, unix.EFBIG)
	require.EqualError(t, err, "write 4096 bytes at 8192 of "+path+": file too large")

	err = d.Write(Alloc(8192), 0)
	require.EqualError(t, err, "write 8192 bytes at 0 of "+path+": only 4096 written: short write")
	require.Equal(t, uint64(2), d.Stats().Write.Errors)
}

// An alignment that only the kernel rejects is explained too.
func TestKernelRefusesAlignment(t *testing.T) {
	d := mustOpen(t, loop(t, backingFile(t), 4096), Options{})
	d.info.LogicalBlock = 512
	err := d.Read(Alloc(512), 0)
	require.ErrorIs(t, err, ErrAlignment)
	require.ErrorIs(t, err, unix.EINVAL)
}

func TestCloseWaitsForRequests(t *testing.T) {
	d := mustOpen(t, backingFile(t), Options{})
	id, ok := d.ledger.begin(OpWrite)
	require.True(t, ok)
	closed := make(chan error)
	go func() { closed <- d.Close() }()

	require.Eventually(t, func() bool { return d.Read(Alloc(4096), 0) != nil }, waitLimit, waitTick,
		"requests are refused while it waits")
	select {
	case <-closed:
		t.Fatal("closed with a request under way")
	default:
	}
	d.ledger.end(id, nil)
	require.NoError(t, <-closed)
}

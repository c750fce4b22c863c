package rawio

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// pair returns the two ends of a connection, non-blocking.
func pair(t *testing.T) (ours, theirs int) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = unix.Close(fds[0]), unix.Close(fds[1]) })
	return fds[0], fds[1]
}

func TestReadAndWrite_NonBlocking_ReturnAtOnce(t *testing.T) {
	ours, theirs := pair(t)
	buf := make([]byte, 1<<20)
	_, err := Read(uintptr(ours), buf)
	require.ErrorIs(t, err, unix.EAGAIN)
	n, err := Write(uintptr(theirs), buf)
	require.NoError(t, err)
	require.Less(t, n, len(buf), "as much as fits")
	_, err = Write(uintptr(theirs), buf)
	require.ErrorIs(t, err, unix.EAGAIN)
	got, err := Read(uintptr(ours), buf)
	require.NoError(t, err)
	require.Positive(t, got)
	_, err = Read(uintptr(ours), nil)
	require.NoError(t, err, "no bytes")
	require.NoError(t, unix.Shutdown(ours, unix.SHUT_RDWR))
	_, err = Write(uintptr(theirs), buf)
	require.ErrorIs(t, err, unix.EPIPE)
}

// polled reads a connection when its arrivals are readable. If nothing is there, it calls empty before it
// waits.
func polled(t *testing.T, f *os.File, fd int, p []byte, empty func()) (n int, err error) {
	raw, err := f.SyscallConn()
	require.NoError(t, err)
	var failed error
	err = raw.Read(func(uintptr) bool {
		n, failed = Read(uintptr(fd), p)
		if failed == unix.EAGAIN {
			empty()
			return false
		}
		return true
	})
	if err == nil {
		err = failed
	}
	return n, err
}

func TestArrivals_OtherEndWrites_IsReadable(t *testing.T) {
	ours, theirs := pair(t)
	f, err := Arrivals(uintptr(ours))
	require.NoError(t, err)
	defer f.Close()
	buf := make([]byte, 16)
	for _, text := range []string{"first", "second"} {
		n, err := polled(t, f, ours, buf, func() { _, _ = Write(uintptr(theirs), []byte(text)) })
		require.NoError(t, err)
		require.Equal(t, text, string(buf[:n]))
	}
	n, err := polled(t, f, ours, buf, func() { _ = unix.Shutdown(theirs, unix.SHUT_RDWR) })
	require.NoError(t, err)
	require.Zero(t, n, "the end")
}

// wakeUps returns the number of wake-ups of the runtime's poller, if it knows watched, for a message that
// is written by ours and read by the other end.
func wakeUps(t *testing.T, watched, ours, theirs int) int {
	poller, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(poller)
	const edges = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&(1<<32-1)
	require.NoError(t, unix.EpollCtl(poller, unix.EPOLL_CTL_ADD, watched, &unix.EpollEvent{Events: edges}))
	woken := func() int {
		n, err := unix.EpollWait(poller, make([]unix.EpollEvent, 1), 0)
		require.NoError(t, err)
		return n
	}
	woken() // it was added
	_, err = Write(uintptr(ours), []byte("x"))
	require.NoError(t, err)
	n, err := Read(uintptr(theirs), make([]byte, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	return woken()
}

func TestArrivals_OtherEndReads_IsNotWoken(t *testing.T) {
	ours, theirs := pair(t)
	f, err := Arrivals(uintptr(ours))
	require.NoError(t, err)
	defer f.Close()
	raw, err := f.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		require.Zero(t, wakeUps(t, int(fd), ours, theirs))
	}))
	require.Equal(t, 1, wakeUps(t, ours, ours, theirs), "without Arrivals")
}

func TestArrivals_NoDescriptor_ReturnsError(t *testing.T) {
	_, err := Arrivals(^uintptr(0))
	require.ErrorIs(t, err, syscall.EBADF)
}

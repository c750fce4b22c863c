package wire

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/tally"
)

// TestHungUpLinkIsGone: a link that bakeryd has closed counts as gone even while its reader is in
// the device.
func TestHungUpLinkIsGone(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fds[1])
	file := os.NewFile(uintptr(fds[0]), "socket")
	conn, err := net.FileConn(file)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	l := NewLink(conn.(*net.UnixConn), time.Minute, new(tally.Codes))
	require.False(t, l.Gone())
	l.Close()
	require.True(t, l.Gone())
}

package wire

import (
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/tally"
)

// newLink returns a link with an end that nothing reads.
func newLink(t *testing.T) *Link {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fds[1]) })
	file := os.NewFile(uintptr(fds[0]), "socket")
	conn, err := net.FileConn(file)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	return NewLink(conn.(*net.UnixConn), time.Minute, new(tally.Codes))
}

// TestHungUpLinkIsGone: a link that bakeryd has closed counts as gone even while its reader is in
// the device.
func TestHungUpLinkIsGone(t *testing.T) {
	l := newLink(t)
	require.False(t, l.Gone())
	l.Close()
	require.True(t, l.Gone())
}

func TestLink_NoLockForMaxIdle_IsClosed(t *testing.T) {
	refused := api.Event{Kind: api.Refused, Code: api.CodeBusy}
	for name, c := range map[string]struct {
		until time.Duration // how long it is open
		use   func(*Link)
	}{
		"never used": {time.Minute, func(*Link) {}},
		"used again": {3 * time.Minute, func(l *Link) {
			for range 2 {
				time.Sleep(30 * time.Second)
				l.Busy()
				time.Sleep(30 * time.Second)
				l.Idle()
			}
		}},
		"held for long": {11 * time.Minute, func(l *Link) {
			l.Busy()
			time.Sleep(10 * time.Minute)
			l.Idle()
		}},
		"refused": {3 * time.Minute, func(l *Link) {
			l.Busy()
			time.Sleep(2 * time.Minute)
			l.Send(&refused)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				l := newLink(t)
				c.use(l)
				time.Sleep(time.Until(began.Add(c.until - time.Nanosecond)))
				synctest.Wait()
				require.False(t, l.Gone())
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				require.True(t, l.Gone())
			})
		})
	}
}

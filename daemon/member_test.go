package daemon

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
)

// TestLossWhileTheStateDirHangs: the system's own disk may hang as the lockspace's does. That holds up no holder's end.
func TestLossWhileTheStateDirHangs(t *testing.T) {
	c := newCluster(t, 8, 4)
	d, f := c.faultyHost(1)
	hangs := fmt.Sprintf("%s.%d", d.ids.leftFile("1"), os.Getpid())
	require.NoError(t, unix.Mkfifo(hangs, 0o600))
	t.Cleanup(func() {
		r, err := os.Open(hangs)
		require.NoError(t, err)
		t.Cleanup(func() { r.Close() })
	})
	f.Inject(blockdev.Fault{Op: blockdev.OpRead, Err: unix.EIO})
	within(t, "the end of the lease", func() { <-d.Lost() })
	within(t, "whoever asks for it", func() { require.True(t, d.mem.moments().lost) })
}

package daemon

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// TestRestart_SeveralDisks_NeedsTheSlotNotes: the next process continues the incarnation and completes the
// slot that was being written, or joins as a new one without the notes.
func TestRestart_SeveralDisks_NeedsTheSlotNotes(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"kept": false, "lost": true} {
		runInBubble(t, name, func(t *testing.T) {
			c := lockspacetest.NewSeveral(t, 3, 4, 2, time.Now())
			c.Put(c.SB.Geometry.Entry(1), func(buf []byte) error {
				return c.SB.Space().EncodeEntry(buf, layout.Entry{Lock: 1, Name: "x", Permits: 1, Token: layout.MakeTicket(1, 1), Sequence: 1,
					Creation: bakery.ClockNumber(c.SB.Formatted, c.SB.Formatted)})
			})
			var disks []*disktest.Faulty
			m := &mortal{c: newCluster(t, 4, 2), id: 1, dir: t.TempDir(), state: t.TempDir(), configure: func(cfg *Config) {
				set, faulty := c.Open()
				disks = faulty
				t.Cleanup(func() {
					for _, f := range faulty {
						f.RemoveFaults()
					}
					_ = set.Close() // what a kill has cut off is never written
				})
				through(set)(cfg)
			}}
			m.rise()
			incarnation := m.d.mem.Incarnation()
			h := acquire(t, m.d, locks.Request{Name: "x"})
			at := c.SB.Geometry.Slot(1, 1)
			for _, f := range disks[1:] {
				f.Inject(disktest.Fault{Op: blockdev.OpWrite, From: at, To: at + 1, Err: unix.EIO})
			}
			go func() { _ = h.Release() }()
			eventually(t, "the release is half-written", func() bool { return c.Slots(1, 1)[0].Phase == layout.Idle })
			for _, f := range disks {
				f.Crash()
			}
			m.kill()
			notes, err := filepath.Glob(filepath.Join(m.dir, "*.slots"))
			require.NoError(t, err)
			require.Len(t, notes, 1)
			if lost {
				require.NoError(t, os.Remove(notes[0]))
			}
			m.rise()
			require.Equal(t, !lost, m.d.mem.Resumed())
			require.FileExists(t, notes[0], "of this process")
			if !lost {
				for _, s := range c.Slots(1, 1)[:2] {
					require.Equal(t, incarnation, s.Incarnation)
					require.Equal(t, layout.Idle, s.Phase)
				}
			}
			require.NoError(t, acquire(t, m.d, locks.Request{Name: "x"}).Release())
			require.NoError(t, m.d.Close(t.Context()))
			require.NoFileExists(t, notes[0])
		})
	}
}

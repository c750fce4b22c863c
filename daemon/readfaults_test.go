package daemon

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

func TestRequestAfterRestartKeepsTheTicket(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		// makes hosts ignore the clock
		c.SB.Formatted = c.SB.Formatted.Add(time.Hour)
		c.Format()
		m := c.mortal(1)
		other := c.host(2)
		b := acquire(t, other, locks.Request{Name: "x", Permits: 2})
		holder, token := m.ask(1, "").granted()
		waiter := m.ask(2, "").waiting()
		m.restart()
		holder.again(m, token.String()).granted()
		holder.leave()
		eventually(t, "idle", func() bool { return c.Slot(1, 1).Phase == layout.Idle })
		m.kill() // the waiter has not reconnected yet
		m.rise()
		before := c.Slot(1, 1)
		require.Equal(t, token, before.Ticket)
		_, err := m.d.Request(t.Context(), "x", "please")
		require.NoError(t, err)
		after := c.Slot(1, 1)
		t.Logf("before %v after %v", before.Ticket, after.Ticket)
		require.NoError(t, b.Release())
		waiter.again(m, "")
		next := waiter.until("granted").Token
		t.Logf("first token %v, now %v", token, next)
		require.Greater(t, next, token, "TOKENS")
	})
}

func TestModeOfAnOrphan(t *testing.T) {
	c := realCluster(t, 8, 4)
	m := c.mortal(1)
	for n := range 20 {
		holder := m.ask(1+n, `, "witness": true, "mode": "shared"`)
		g := holder.until("granted")
		w, err := os.OpenFile(g.Witness, os.O_WRONLY, 0)
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 40 {
				mode := `"mode": "exclusive"`
				if i%2 == 1 {
					mode = `"mode": "shared"`
				}
				m.call("POST /v1/mode", holder.call(g.Token, mode))
			}
		}()
		vanishing()
		holder.leave()
		<-done
		w.Close()
		eventually(t, "released", func() bool { return m.session(holder) == nil })
	}
}

// TestValueOutlivesAReadErrorAtRestart: one passing read error at a restart.
func TestValueOutlivesAReadErrorAtRestart(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		holder, token := m.ask(1, "").granted()
		status, _ := m.change("/v1/value", holder.call(token, `"value": "dmFsdWU="`))
		require.Equal(t, 200, status)
		m.kill()
		m.rise(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Err: unix.EIO, After: 1, Times: 1})
		holder.again(m, token.String()).granted()
		eventually(t, "slot", func() bool { return c.Slot(1, 1).Phase == layout.Held })
		require.Equal(t, "value", string(valueOf(t, m.d).Value))
	})
}

// TestReadErrorAtRestartLeavesNothingHeld: bakeryd is killed before a release is on the disk, and
// its restart meets one passing read error. The next host still gets the lock.
func TestReadErrorAtRestartLeavesNothingHeld(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		other := c.host(2)
		holder, _ := m.ask(1, "").granted()
		eventually(t, "settled", func() bool { return c.Slot(1, 1).Phase == layout.Held })
		m.disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Err: unix.EIO})
		holder.leave()
		eventually(t, "released", func() bool { return len(m.d.Vitals()) == 0 })
		m.kill()
		m.rise(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Err: unix.EIO, After: 1, Times: 1})
		require.NoError(t, got(t, start(t, other, locks.Request{Name: "x"})).Release())
	})
}

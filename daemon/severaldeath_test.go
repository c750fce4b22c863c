package daemon

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// TestHostDies_SeveralDisks ends a host that removes or creates a lock, or only its bakeryd, while one of
// its writes is on one disk of three and never reaches the others. Other hosts use the name meanwhile.
// There are never two holders, the host resolves what it left, and all places can be used in the end.
func TestHostDies_SeveralDisks(t *testing.T) {
	for after := range removalWrites {
		for _, removes := range []bool{false, true} {
			for _, back := range []bool{false, true} {
				t.Run(fmt.Sprintf("after=%d,removes=%v,back=%v", after, removes, back), func(t *testing.T) {
					inBubble(t, func(t *testing.T) { diesHalfway(t, after, removes, back) })
				})
			}
		}
	}
}

func diesHalfway(t *testing.T, after int, removes, back bool) {
	disk := after % 3
	several := lockspacetest.NewSeveral(t, 3, 8, 4, time.Now().Add(time.Hour)) // hosts ignore the clock
	c := newCluster(t, 8, 4)
	var faulty []*disktest.Faulty
	on := func(cfg *Config) {
		set, disks := several.Open()
		faulty = disks
		t.Cleanup(func() {
			for _, f := range disks {
				f.RemoveFaults()
			}
			_ = set.Close() // what a kill has cut off is never written
		})
		through(set)(cfg)
	}
	knows, other := c.host(2, on), c.host(3, on)
	m := &mortal{c: c, id: 1, dir: t.TempDir(), state: t.TempDir(), configure: on}
	m.rise()
	in := contended(t)
	if removes {
		in.visit(knows, "x")
		in.visit(m.d, "x")
	}
	require.NoError(t, acquire(t, m.d, locks.Request{Name: "y"}).Release())
	g := several.SB.Geometry
	var crashes []*disktest.Injection
	for i, f := range faulty {
		fault := disktest.Fault{Op: blockdev.OpWrite, From: g.Entry(1), To: g.Size(), After: after, Crash: true}
		if i == disk {
			fault.After++
		}
		crashes = append(crashes, f.Inject(fault))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func(dies *Host) {
		if !removes {
			_, _, _ = dies.Create(ctx, "x", 1)
		}
		_ = dies.Remove(ctx, "x", false) // if it is there: a creation has fewer writes
	}(m.d)
	within(t, "the crash", func() { <-crashes[(disk+1)%3].Hit() })
	within(t, "the crash", func() { <-crashes[(disk+2)%3].Hit() })
	time.Sleep(time.Millisecond) // for the copy that lands
	incarnation := m.d.mem.Incarnation()
	for _, f := range faulty {
		f.Crash()
	}
	m.kill()
	users := []*Host{knows, other}
	if back {
		m.rise()
		require.Equal(t, incarnation, m.d.mem.Incarnation())
		users = append(users, m.d)
	}
	var all sync.WaitGroup
	for _, user := range users {
		all.Go(func() {
			for range 5 {
				in.visit(user, "x")
			}
		})
	}
	within(t, "using the name", all.Wait)
	if !back {
		m.end()
		m.rise()
	}
	in.visit(m.d, "x")
	in.visit(knows, "x")
	for lock := 1; lock < 3; lock++ {
		name := fmt.Sprint("new", lock)
		var err error
		require.Eventually(t, func() bool {
			_, _, err = knows.Create(t.Context(), name, 1)
			return err == nil
		}, generous, 10*time.Millisecond, "%v", err)
	}
	list, err := other.Locks(t.Context())
	require.NoError(t, err)
	require.Len(t, list.Locks, 4, "%v", list)
	require.Empty(t, list.Damaged)
}

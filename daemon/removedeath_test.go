package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// removalWrites is the number of writes of the removal of a free lock: two to read intents, one to
// acquire the lock, the mark, four to clear the entry, and one to remove the mark. The four are the
// directory's lock, the intent, the entry and the release.
const removalWrites = 9

// death is how a remover ends.
type death struct {
	after int  // writes of directory and slots that land
	late  bool // the next one lands after the other hosts have continued; else never
	whole bool // or it landed, and the remover got no answer
	back  bool // its bakeryd is restarted immediately, and continues its incarnation
}

func (d death) String() string {
	return fmt.Sprintf("after=%d,late=%v,whole=%v,back=%v", d.after, d.late, d.whole, d.back)
}

// end waits until a killed host does nothing any more.
func (m *mortal) end() {
	<-m.d.mem.Over()
	m.d.mem.Wait()
}

// dies kills a host, and waits until another one has declared it dead.
func (m *mortal) dies(by *Host) {
	m.c.t.Helper()
	incarnation := m.d.mem.Incarnation()
	m.kill()
	require.Eventually(m.c.t, func() bool {
		dead, err := by.Evict(m.c.t.Context(), m.id, incarnation, false)
		return dead && err == nil
	}, generous, 50*time.Millisecond)
	m.end()
}

// TestRemoverDies ends a remover's host, or only its bakeryd, between any two of its writes, while
// other hosts use the name. There are never two areas for the name, nor two holders, and tokens
// grow. The next write may land at any time.
func TestRemoverDies(t *testing.T) {
	for after := range removalWrites {
		deaths := []death{{}, {late: true}, {back: true}}
		if after == removalWrites-1 { // before that it is as if the next one had not landed
			deaths = append(deaths, death{whole: true}, death{whole: true, back: true})
		}
		for _, d := range deaths {
			d.after = after
			t.Run(d.String(), func(t *testing.T) { inBubble(t, d.test) })
		}
	}
}

func (d death) test(t *testing.T) {
	c := clusterOf(t, 8, 4, time.Now().Add(time.Hour)) // hosts ignore the clock
	m, knows, other := c.mortal(1), c.host(2), c.host(3)
	in, others := contended(t), contended(t)
	in.visit(knows, "x")
	in.visit(m.d, "x")
	others.visit(m.d, "y")
	from, to := c.Geo.Entry(1), c.Geo.Size()
	fault := disktest.Fault{Op: blockdev.OpWrite, From: from, To: to, After: d.after, Crash: true}
	if d.whole {
		fault.Landed = disktest.All
	}
	crash := m.disk.Inject(fault)
	if d.late {
		m.disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: from, To: to, After: d.after, Times: 1, Late: true, Err: unix.EIO})
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = m.d.Remove(ctx, "x", false) }()
	within(t, "the crash", func() { <-crash.Hit() })
	incarnation := m.d.mem.Incarnation()
	m.kill()
	if d.back {
		m.rise()
		require.Equal(t, incarnation, m.d.mem.Incarnation())
	} else {
		require.Eventually(t, func() bool { // does not wait for a whole lease
			dead, err := knows.Evict(t.Context(), 1, incarnation, false)
			return dead && err == nil
		}, generous, 50*time.Millisecond)
	}
	users := []*Host{knows, other, c.host(4)}
	if d.back {
		users = append(users, m.d)
	}
	var all sync.WaitGroup
	for i, user := range users {
		all.Go(func() {
			for n := range 10 {
				if i == 0 && n == 5 && d.late {
					h := acquire(t, user, locks.Request{Name: "x"}) // it lands under a hold
					_, err := m.disk.Land()
					assertNoError(t, err)
					time.Sleep(10 * time.Millisecond) // for an erroneous grant by it
					_, err = other.Acquire(t.Context(), locks.Request{Name: "x", Try: true})
					if !errors.Is(err, api.ErrBusy) {
						t.Errorf("together with a holder: %v", err)
					}
					assertNoError(t, h.Release())
				}
				in.visit(user, "x")
			}
		})
	}
	within(t, "using the name", all.Wait)
	require.Equal(t, 1, c.named("x"), "%v", c.directory())
	require.Equal(t, 1, c.named("y"), "%v", c.directory())

	if !d.back {
		m.end()
		m.rise()
	}
	in.visit(m.d, "x")
	require.NoError(t, ended(t, removing(t, other, "x", false)))
	require.Zero(t, c.named("x"))
	// A host that has returned intends nothing any more: every place can be used.
	for lock := 1; lock < c.Geo.Locks; lock++ {
		name := fmt.Sprint("new", lock)
		require.Eventually(t, func() bool {
			_, _, err := knows.Create(t.Context(), name, 1)
			return err == nil
		}, generous, 10*time.Millisecond)
	}
	others.visit(m.d, "new3")
}

// TestRemoveWhatMayComeBack: a lock whose creator died while it wrote the entry is not removed
// while that write may land. It is not created with other permits, either.
func TestRemoveWhatMayComeBack(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m, other := c.mortal(1), c.host(2)
		late := m.disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Entry(1), To: c.Geo.Slot(0, 1), Late: true, Err: unix.EIO})
		_, _, err := m.d.Create(t.Context(), "x", 2)
		require.ErrorIs(t, err, unix.EIO)
		require.Positive(t, late.Fired())
		m.kill()
		_, _, err = other.Create(t.Context(), "x", 3)
		require.ErrorIs(t, err, api.ErrPermits)
		require.Zero(t, c.named("x"))
		h := acquire(t, other, locks.Request{Name: "x"})
		require.Equal(t, 2, h.Lock().Entry.Permits)
		require.NoError(t, h.Release())
		require.ErrorIs(t, other.Remove(t.Context(), "x", false), api.ErrIntended)
		_, err = m.disk.Land()
		require.NoError(t, err)
		require.Equal(t, 1, c.named("x"))
		m.end()
		m.rise()
		require.Eventually(t, func() bool { return other.Remove(t.Context(), "x", false) == nil }, generous, 10*time.Millisecond)
		require.Zero(t, c.named("x"))
		require.Equal(t, 1, acquireEntry(t, c, other, "new", 1))
	})
}

// TestRestartOfARemover: a client that waits behind a remover gets the lock after a restart of
// bakeryd, either the old lock or a new one.
func TestRestartOfARemover(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		entry   bool // the end comes during the write of the entry; else of the own slot
		after   int
		removed bool
	}{
		"before the mark":       {false, 0, false},
		"before the clearing":   {true, 0, false},
		"before it is unmarked": {false, 1, true},
	} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			m, other := c.mortal(1), c.host(2)
			create(t, other, "x", 2)
			holders := []*locks.Hold{acquire(t, other, locks.Request{Name: "x"}), acquire(t, c.host(3), locks.Request{Name: "x"})}
			before := holders[0].Lock().Entry
			go func() { _ = m.d.Remove(context.Background(), "x", false) }()
			require.Eventually(t, func() bool { return c.Slot(1, 1).Phase == layout.Waiting }, generous, time.Millisecond)
			waiter := m.ask(1, "").waiting()
			at := c.Geo.Slot(1, 1)
			if test.entry {
				at = c.Geo.Entry(1)
			}
			crash := m.disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: at, To: at + 512, After: test.after, Crash: true})
			for _, h := range holders {
				require.NoError(t, h.Release())
			}
			within(t, "the crash", func() { <-crash.Hit() })
			incarnation := m.d.mem.Incarnation()
			m.restart()
			require.Equal(t, incarnation, m.d.mem.Incarnation())
			waiter.again(m, "")
			require.Greater(t, waiter.until("granted").Token, holders[1].Token())
			require.Equal(t, 1, c.named("x"))
			h, err := other.Acquire(t.Context(), locks.Request{Name: "x", Permits: 2})
			if test.removed {
				require.ErrorIs(t, err, api.ErrPermits, "it is another one")
			} else {
				require.NoError(t, err)
				require.Equal(t, before, c.Entry(1))
				require.NoError(t, h.Release())
			}
			require.Eventually(t, func() bool { return len(c.Slot(0, 1).Value) == 0 }, generous, time.Millisecond, "nothing is intended")
			waiter.leave()
		})
	}
}

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/bakeryd/bakeryd/daemon/text"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// notebook is the journal of one host of a cluster.
type notebook struct {
	t   *testing.T
	log *events.Log
}

func newNotebook(t *testing.T) *notebook {
	l := events.New(clock.Boottime, slog.New(slog.NewTextHandler(t.Output(), nil)))
	// all of these are removed together with the first one: not while a file is kept in one
	t.TempDir()
	t.Cleanup(l.Close)
	return &notebook{t, l}
}

// in makes a host keep its events there.
func (n *notebook) in(cfg *Config) { cfg.Events = n.log }

func (n *notebook) all(q events.Query) (got []events.Event) {
	n.t.Helper()
	require.NoError(n.t, n.log.Read(q, func(es []events.Event) error {
		got = append(got, es...)
		return nil
	}))
	return got
}

// of returns the events of a lock, without those of hosts.
func (n *notebook) of(lock string) (got []events.Event) {
	n.t.Helper()
	for _, e := range n.all(events.Query{Lock: lock}) {
		if e.Lock != "" {
			got = append(got, e)
		}
	}
	return got
}

func kinds(es []events.Event) (kinds []events.Kind) {
	for _, e := range es {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// until waits for an event for which is returns true.
func (n *notebook) until(what string, is func(e *events.Event) bool) (found events.Event) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), generous)
	defer cancel()
	enough := errors.New("found")
	err := n.log.Follow(ctx, events.Query{}, func(es []events.Event) error {
		for i := range es {
			if is(&es[i]) {
				found = es[i]
				return enough
			}
		}
		return nil
	})
	require.ErrorIs(n.t, err, enough, "waiting for %s; there is %v", what, kinds(n.all(events.Query{})))
	return found
}

func (n *notebook) host(kind events.Kind, id int) events.Event {
	n.t.Helper()
	return n.until(string(kind), func(e *events.Event) bool { return e.Kind == kind && e.Lock == "" && e.Host == id })
}

func (n *notebook) lock(kind events.Kind) events.Event {
	n.t.Helper()
	return n.until(string(kind), func(e *events.Event) bool { return e.Kind == kind && e.Lock == "x" })
}

// shown waits until a hold is shown on the disk.
func (c *cluster) shown(host int) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return c.Slot(1, host).Phase == layout.Held }, generous, time.Millisecond)
}

// TestNotesOfAContendedLock: which client held it, and which waited for which.
func TestNotesOfAContendedLock(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		na, nb := newNotebook(t), newNotebook(t)
		a, b := c.host(1, na.in), c.host(2, nb.in)
		h := acquire(t, a, locks.Request{Name: "x", PID: 11, Command: "backup"})
		c.shown(1)
		second := start(t, b, locks.Request{Name: "x", PID: 22, Command: "restore"})
		nb.lock(events.Ticket)
		third := start(t, b, locks.Request{Name: "x", PID: 33})
		require.NoError(t, h.Release())
		h2 := got(t, second)
		require.NoError(t, h2.Release())
		h3 := got(t, third)
		require.NoError(t, h3.Release())

		es := na.of("x")
		require.Equal(t, []events.Kind{events.Request, events.Choosing, events.Enter, events.Exit}, kinds(es))
		for _, e := range es {
			require.Equal(t, []any{1, "db1", text.Hex(a.mem.Incarnation()), 11, "backup", "exclusive"},
				[]any{e.Host, e.HostName, e.Incarnation, e.PID, e.Command, e.Mode})
		}
		require.Equal(t, h.Token(), es[1].Ticket)
		require.Equal(t, h.Token(), es[2].Token)
		require.Empty(t, es[2].Ahead, "no client was before it")
		require.Equal(t, h.Token(), es[3].Token)
		require.GreaterOrEqual(t, es[3].HeldMS, int64(driver.SettleAfter/time.Millisecond))
		require.Equal(t, es[0].Seq, es[3].Request)

		es = nb.of("x")
		require.Equal(t, []events.Kind{events.Request, events.Choosing, events.Ticket, events.Request, events.Waiting,
			events.Enter, events.Exit, events.Enter, events.Exit}, kinds(es))
		holder := events.Peer{Host: 1, HostName: "db1", Phase: "held", Mode: "exclusive", Ticket: h.Token(), PID: 11, Command: "backup"}
		require.Equal(t, []events.Peer{holder}, es[2].Ahead)
		require.Greater(t, es[2].Ticket, es[1].Ticket)
		require.Equal(t, []events.Peer{{Host: 2, HostName: "db2", Phase: "waiting", Mode: "exclusive", PID: 22, Command: "restore", Request: es[0].Seq}}, es[4].Ahead)
		require.Equal(t, es[2].Ticket, es[5].Token)
		require.Equal(t, []events.Peer{holder}, es[5].Ahead, "the holder before it")
		require.Equal(t, []any{22, es[0].Seq}, []any{es[5].PID, es[5].Request})
		require.Equal(t, []any{33, es[3].Seq, h3.Token()}, []any{es[7].PID, es[7].Request, es[7].Token})
		require.Equal(t, 22, es[7].Ahead[0].PID, "it was handed on")
		for _, e := range na.all(events.Query{}) {
			require.Contains(t, []string{"", "x"}, e.Lock)
			require.NotEqual(t, "create a lock", e.Command, "the directory's lock is not recorded")
		}
	})
}

// TestNotesOfChangesOfMode: the mode of a hold at any time, by its token.
func TestNotesOfChangesOfMode(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		n := newNotebook(t)
		h := acquire(t, c.host(1, n.in), locks.Request{Name: "x", PID: 11, Mode: layout.Shared})
		require.NoError(t, h.SetMode(t.Context(), layout.Shared), "which it has")
		require.NoError(t, h.SetMode(t.Context(), layout.Exclusive))
		require.NoError(t, h.SetMode(t.Context(), layout.Shared))
		require.NoError(t, h.Release())

		es := n.of("x")
		require.Equal(t, []events.Kind{events.Request, events.Choosing, events.Enter, events.ModeSet, events.ModeSet, events.Exit}, kinds(es))
		for i, mode := range []string{"shared", "exclusive", "shared", "shared"} {
			e := es[2+i]
			require.Equal(t, []any{mode, h.Token(), 11, 0}, []any{e.Mode, e.Token, e.PID, e.Permits}, e.Kind)
		}
	})
}

// TestNotesOfPermits: they distinguish several holders from too many.
func TestNotesOfPermits(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		n := newNotebook(t)
		h := acquire(t, c.host(1, n.in), locks.Request{Name: "x", Permits: 2})
		require.NoError(t, h.Release())
		require.Equal(t, 2, n.lock(events.Enter).Permits)
	})
}

// TestNotesOfAChangeAhead: every change of the holder that a client waits for is recorded.
func TestNotesOfAChangeAhead(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		n := newNotebook(t)
		a, b, e := c.host(1), c.host(2), c.host(3, n.in)
		h := acquire(t, a, locks.Request{Name: "x", PID: 11})
		c.shown(1)
		ctx, cancel := context.WithCancel(t.Context())
		second := make(chan error, 1)
		go func() {
			_, err := b.Acquire(ctx, locks.Request{Name: "x"})
			second <- err
		}()
		require.Eventually(t, func() bool { return c.Slot(1, 2).Phase == layout.Waiting }, generous, time.Millisecond)
		third := start(t, e, locks.Request{Name: "x", PID: 33})
		ticket := n.lock(events.Ticket)
		require.Len(t, ticket.Ahead, 2)
		require.Equal(t, []any{1, "held", 11, 2, "waiting"},
			[]any{ticket.Ahead[0].Host, ticket.Ahead[0].Phase, ticket.Ahead[0].PID, ticket.Ahead[1].Host, ticket.Ahead[1].Phase})
		cancel()
		require.ErrorIs(t, <-second, context.Canceled)
		waiting := n.lock(events.Waiting)
		require.Equal(t, []any{1, "held", 11}, []any{waiting.Ahead[0].Host, waiting.Ahead[0].Phase, waiting.Ahead[0].PID})
		require.Equal(t, []any{33, ticket.Ticket, ticket.Request}, []any{waiting.PID, waiting.Ticket, waiting.Request})
		require.NoError(t, h.Release())
		require.NoError(t, got(t, third).Release())
		require.Equal(t, 1, n.lock(events.Enter).Ahead[0].Host)
	})
}

func TestNotesOfWhoIsNotServed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 8, 1)
		n := newNotebook(t)
		a, b := c.host(1), c.host(2, c.slowly(), n.in)
		h := acquire(t, a, locks.Request{Name: "x", PID: 11})
		c.shown(1)
		const wait = 50 * time.Millisecond
		_, err := b.Acquire(timeout(t, wait), locks.Request{Name: "x", PID: 1})
		require.ErrorIs(t, err, api.ErrTimeout)
		acquireFails(t, b, locks.Request{Name: "x", PID: 2, Try: true}, api.ErrBusy)
		gone, leave := context.WithCancel(t.Context())
		leave()
		_, err = b.Acquire(gone, locks.Request{Name: "x", PID: 3})
		require.ErrorIs(t, err, context.Canceled)
		acquireFails(t, b, locks.Request{Name: "x", PID: 4, Permits: 2}, api.ErrPermits)
		acquireFails(t, b, locks.Request{Name: "y", PID: 5}, api.ErrFull)
		acquireFails(t, b, locks.Request{Name: "a\nb"}, api.ErrInvalid)
		require.NoError(t, h.Release())

		ends := map[int]events.Event{}
		for _, e := range n.all(events.Query{}) {
			require.NotContains(t, e.Lock, "\n")
			switch e.Kind {
			case events.Timeout, events.Busy, events.Cancel, events.Refused:
				ends[e.PID] = e
			case events.Enter, events.Exit:
				t.Errorf("%+v", e)
			}
		}
		require.Equal(t, []events.Kind{events.Timeout, events.Busy, events.Cancel, events.Refused, events.Refused},
			[]events.Kind{ends[1].Kind, ends[2].Kind, ends[3].Kind, ends[4].Kind, ends[5].Kind})
		require.GreaterOrEqual(t, ends[1].WaitedMS, wait.Milliseconds())
		for _, pid := range []int{1, 2} {
			require.Len(t, ends[pid].Ahead, 1)
			require.Equal(t, []any{1, 11}, []any{ends[pid].Ahead[0].Host, ends[pid].Ahead[0].PID}, "whose fault it is")
		}
		require.Contains(t, ends[4].Reason, "asked for 2")
		require.Contains(t, ends[5].Reason, "entries are taken")
	})
}

// TestNotesOfALostLease: in the journals of the host that loses it, and of the host that gets the
// lock.
func TestNotesOfALostLease(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		na, nb := newNotebook(t), newNotebook(t)
		f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
		a := c.host(1, through(f), na.in)
		t.Cleanup(f.RemoveFaults)
		b := c.host(2, nb.in)
		require.Len(t, na.host(events.Joined, 1).Boot, 32, "by which those of one boot, and clock, are known")
		require.Equal(t, 1, na.host(events.Joined, 2).ByHost)
		h := acquire(t, a, locks.Request{Name: "x", PID: 11})
		c.shown(1)
		next := start(t, b, locks.Request{Name: "x", PID: 22})
		f.Inject(disktest.Fault{Err: unix.EIO})
		<-h.Lost()
		require.Contains(t, na.host(events.AtRisk, 1).Reason, "lease is not renewed")
		require.Contains(t, na.host(events.Lost, 1).Reason, "input/output error")
		lost := na.lock(events.Lost)
		require.Equal(t, []any{h.Token(), 11}, []any{lost.Token, lost.PID})
		require.ErrorIs(t, h.Release(), api.ErrLeaseLost)
		require.Equal(t, h.Token(), na.lock(events.Exit).Token, "until when it ran on nevertheless")

		h2 := got(t, next)
		risk, dead, enter := nb.host(events.AtRisk, 1), nb.host(events.Dead, 1), nb.lock(events.Enter)
		require.Equal(t, []any{"db1", text.Hex(a.mem.Incarnation()), 2, "db2"}, []any{risk.HostName, risk.Incarnation, risk.ByHost, risk.ByHostName})
		require.Equal(t, []any{"db1", text.Hex(a.mem.Incarnation()), 2, "db2"}, []any{dead.HostName, dead.Incarnation, dead.ByHost, dead.ByHostName})
		require.Less(t, risk.Seq, dead.Seq)
		require.Less(t, dead.Seq, enter.Seq)
		require.Equal(t, []any{1, 11}, []any{enter.Ahead[0].Host, enter.Ahead[0].PID})
		require.NoError(t, h2.Release())
	})
}

func TestNotesOfHostsThatLeave(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		na, nb := newNotebook(t), newNotebook(t)
		c.host(1, na.in)
		b := c.host(2, nb.in)
		na.host(events.Joined, 2)
		require.NoError(t, b.Close(t.Context()))
		require.Zero(t, nb.host(events.Left, 2).ByHost, "by itself")
		require.Equal(t, 1, na.host(events.Left, 2).ByHost)
	})
}

func TestNotesOfAnEviction(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		na, nb := newNotebook(t), newNotebook(t)
		a := c.host(1, na.in)
		b := c.host(2, nb.in)
		na.host(events.Joined, 2)
		dead, err := a.Evict(t.Context(), 2, b.mem.Incarnation(), false)
		require.NoError(t, err)
		require.False(t, dead)
		require.Equal(t, 1, na.host(events.Asked, 2).ByHost)
		require.Equal(t, []any{1, "db1"}, []any{nb.host(events.Asked, 2).ByHost, nb.host(events.Asked, 2).ByHostName})
	})
}

func TestNotesOfFencing(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.SetPolicy(layout.PolicyFence)
		n := newNotebook(t)
		agent := func(cfg *Config) { cfg.Fence = fence.Config{Agent: "exec", Command: "true"} }
		c.host(1, agent, n.in)
		f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
		c.host(2, agent, through(f))
		t.Cleanup(f.RemoveFaults)
		f.Inject(disktest.Fault{Err: unix.EIO})
		fenced, dead := n.host(events.Fenced, 2), n.host(events.Dead, 2)
		require.Less(t, fenced.Seq, dead.Seq)
		require.Equal(t, 1, fenced.ByHost)
	})
}

// TestNotesOfARemoval_NameItsRequest: the removal ends the wait of the client that requested it,
// and no other.
func TestNotesOfARemoval_NameItsRequest(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		n := newNotebook(t)
		d := c.host(1, n.in)
		_, _, err := d.Create(t.Context(), "x", 1)
		require.NoError(t, err)
		require.NoError(t, d.Remove(t.Context(), "x", false))
		request, removed := n.lock(events.Request), n.lock(events.Removed)
		require.Equal(t, []any{events.Removing, request.Seq}, []any{removed.Command, removed.Request})
		require.ErrorIs(t, d.Remove(t.Context(), "x", false), api.ErrNoLock)
		all := n.of("x")
		require.Equal(t, []events.Kind{events.Request, events.Refused}, kinds(all[len(all)-2:]))
	})
}

// TestNotesOfADeath_BeforeTheHostJoined_SaySo: the time of the event is not that of the death.
func TestNotesOfADeath_BeforeTheHostJoined_SaySo(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		na, nc := newNotebook(t), newNotebook(t)
		c.host(1, na.in)
		f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
		c.host(2, through(f))
		t.Cleanup(f.RemoveFaults)
		f.Inject(disktest.Fault{Err: unix.EIO})
		require.Empty(t, na.host(events.Dead, 2).Reason)
		c.host(3, nc.in)
		require.Equal(t, "before this host joined", nc.host(events.Dead, 2).Reason)
	})
}

// TestNotesOfARestart: the journal continues, and records what was kept.
func TestNotesOfARestart(t *testing.T) {
	c := realCluster(t, 8, 4)
	first, second := newNotebook(t), newNotebook(t)
	m := &mortal{c: c, id: 1, dir: t.TempDir(), state: t.TempDir(), configure: first.in}
	m.rise()
	holder := m.ask(1, `, "witness": true, "pid": 11`)
	g := holder.until("granted")
	waiter := m.ask(2, `, "pid": 22`).waiting()
	m.kill()
	first.log.Close()
	m.configure = second.in
	m.rise()
	resumed := second.lock(events.Resumed)
	require.Equal(t, []any{11, g.Token}, []any{resumed.PID, resumed.Token})
	require.Equal(t, text.Hex(m.d.mem.Incarnation()), second.host(events.Resumed, 1).Incarnation)
	waiter.again(m, "")
	g = holder.again(m, g.Token.String()).until("granted")

	command := exec.Command("sleep", "1000")
	witness, err := os.OpenFile(g.Witness, os.O_WRONLY, 0)
	require.NoError(t, err)
	command.ExtraFiles = []*os.File{witness}
	require.NoError(t, command.Start())
	require.NoError(t, witness.Close())
	holder.leave()
	orphan := second.lock(events.Orphan)
	require.Equal(t, []any{11, g.Token}, []any{orphan.PID, orphan.Token})
	require.Equal(t, resumed.Seq, orphan.Request, "it names the event that resumed it")
	m.disk.Inject(disktest.Fault{Err: unix.EIO})
	defer m.disk.RemoveFaults()
	require.Error(t, command.Wait(), "it is stopped")
	kill := second.lock(events.Kill)
	require.Regexp(t, `^(SIGTERM to 1 process: their lease is about to end|SIGKILL to 1 process: their lease is over)$`, kill.Reason)
	require.Equal(t, []any{11, g.Token}, []any{kill.PID, kill.Token})
	// else the process of the test stood still for that long
	if strings.HasPrefix(kill.Reason, "SIGTERM") {
		exit := second.lock(events.Exit)
		require.Equal(t, "the processes that its client left have ended", exit.Reason)
	}

	all := second.all(events.Query{})
	require.Equal(t, events.Joined, all[0].Kind, "the first event is that of the previous bakeryd")
	for i := 1; i < len(all); i++ {
		require.Greater(t, all[i].Seq, all[i-1].Seq)
	}
}

package daemon

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// mortal is a host whose bakeryd can be killed and restarted.
type mortal struct {
	*served
	c     *cluster
	id    int
	dir   string // for files that do not survive a reboot
	state string // for those that do
	disk  *disktest.Faulty
	lives int

	configure func(*Config) // nil if none
}

func (c *cluster) mortal(id int) *mortal {
	c.t.Helper()
	m := &mortal{c: c, id: id, dir: c.t.TempDir(), state: c.t.TempDir()}
	m.rise()
	return m
}

// rise starts bakeryd, on a disk that has faults already.
func (m *mortal) rise(faults ...disktest.Fault) {
	m.c.t.Helper()
	m.lives++
	m.disk = disktest.NewFaulty(m.c.Disk.Open(), disktest.FaultyOptions{})
	for _, f := range faults {
		m.disk.Inject(f)
	}
	d := m.c.host(m.id, through(m.disk), func(cfg *Config) {
		cfg.RuntimeDir, cfg.StateDir, cfg.Keep = m.dir, m.state, true
		if m.configure != nil {
			m.configure(cfg)
		}
	})
	m.served = serveSocket(m.c.t, d)
}

// kill ends bakeryd as SIGKILL does, as far as its disk and its files are concerned. The rest of
// the old daemon runs until its lease is over, and affects only itself.
func (m *mortal) kill() {
	m.c.t.Helper()
	d := m.d
	m.disk.Crash()
	d.handover.Close()
	locks, err := filepath.Glob(filepath.Join(m.dir, "*.lock"))
	require.NoError(m.c.t, err)
	for _, file := range locks {
		require.NoError(m.c.t, os.Remove(file)) // the old daemon keeps it, and the next one locks a new one
	}
	next := filepath.Join(m.c.t.TempDir(), "next") // where the old daemon does not find its files
	require.NoError(m.c.t, os.Rename(m.dir, next))
	m.dir = next
	d.Halt()
	m.c.t.Cleanup(func() {
		<-d.mem.Over()
		d.ending.End()
		d.mem.Wait()
		d.Manager.Wait()
		d.tasks.Wait()
	})
}

// readHandover reads the handover file of a host, as the next process does.
func readHandover(t testing.TB, h *Host, now time.Duration) (handover.Term, []handover.Session) {
	t.Helper()
	next, term, sessions, err := handover.Resume(filepath.Dir(h.handover.Path), h.disk.SB.UUID, h.mem.ID(), now)
	require.NoError(t, err)
	next.Close()
	return term, sessions
}

// recorded returns the record of a session in the handover file.
func (m *mortal) recorded(id string) handover.Session {
	m.c.t.Helper()
	_, kept := readHandover(m.c.t, m.d, m.c.clock.Now())
	i := slices.IndexFunc(kept, func(r handover.Session) bool { return r.ID == id })
	require.NotEqual(m.c.t, -1, i, "session %s in %v", id, kept)
	return kept[i]
}

// put puts a record into the handover file.
func (m *mortal) put(r handover.Session) {
	m.c.t.Helper()
	m.d.handover.Reserve(r.ID)
	m.d.handover.Put(r)
	require.NoError(m.c.t, m.d.handover.Err())
}

// edit changes the record of a session in the handover file.
func (m *mortal) edit(id string, change func(*handover.Session)) {
	m.c.t.Helper()
	r := m.recorded(id)
	change(&r)
	m.put(r)
}

// restart ends bakeryd as SIGKILL does, and starts it again.
func (m *mortal) restart() {
	m.c.t.Helper()
	m.kill()
	m.rise()
}

// TestKilledGivesUpItsLockFile: the goroutines of a killed daemon run on in these tests, and do not
// block the next process.
func TestKilledGivesUpItsLockFile(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := newCluster(t, 4, 2).mortal(1)
		killed := m.d.ids
		m.kill()
		// as for a write of its record
		require.NoError(t, killed.TakeLockFile(1))
		m.rise()
		require.True(t, m.d.mem.Resumed())
	})
}

// testSession is a client that can reconnect.
type testSession struct {
	t     *testing.T
	id    string
	extra string
	conn  net.Conn
	r     *http.Response
}

func (m *mortal) ask(n int, extra string) *testSession {
	s := &testSession{t: m.t, id: fmt.Sprintf("%032x", n), extra: extra}
	return s.again(m, "")
}

// again sends the request again, on another connection.
func (s *testSession) again(m *mortal, token string) *testSession {
	s.t.Helper()
	s.conn, s.r = m.post(s.body(cmp.Or(token, "0")))
	return s
}

// granted returns when the session holds the lock.
func (s *testSession) granted() (*testSession, layout.Ticket) {
	s.t.Helper()
	return s, s.until("granted").Token
}

// waiting returns when the session waits.
func (s *testSession) waiting() *testSession {
	s.t.Helper()
	s.until("waiting")
	return s
}

func (s *testSession) body(token string) string {
	return fmt.Sprintf(`{"name": "x", "session": %q, "token": %q%s}`, s.id, token, s.extra)
}

// until returns the next event of a kind.
func (s *testSession) until(kind string) api.Event {
	s.t.Helper()
	for {
		if e := nextEvent(s.t, s.r); e.Kind == kind {
			return e
		}
	}
}

func (s *testSession) leave() { require.NoError(s.t, s.conn.Close()) }

func TestRestartKeepsHoldsAndPlaces(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		other := c.host(2)
		holder, token := m.ask(1, "").granted()
		first, second := m.ask(2, ""), m.ask(3, "")
		first.until("waiting")
		second.until("waiting")
		elsewhere := make(chan layout.Ticket, 1)
		go func() {
			h, err := other.Acquire(context.Background(), locks.Request{Name: "x"})
			if assertNoError(t, err) {
				elsewhere <- h.Token()
				assertNoError(t, h.Release())
			}
		}()
		incarnation := m.d.mem.Incarnation()
		m.restart()
		require.Equal(t, incarnation, m.d.mem.Incarnation(), "the incarnation continues")

		second.again(m, "") // the later one reconnects first, and keeps its place
		first.again(m, "")
		holder.again(m, token.String())
		require.Equal(t, token, holder.until("granted").Token)
		first.until("waiting")
		holder.leave()
		next := first.until("granted").Token
		require.Greater(t, next, token)
		first.leave()
		last := second.until("granted").Token
		require.Greater(t, last, next)
		second.leave()
		require.NotZero(t, <-elsewhere)
	})
}

func TestRestartReleasesWhatNobodyComesBackFor(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		holder, _ := m.ask(1, "").granted()
		waiter := m.ask(2, "").waiting()
		m.edit(holder.id, func(r *handover.Session) { r.PeerStarted++ }) // a process that is gone
		m.restart()
		waiter.again(m, "").granted()
		holder.again(m, "1")
		require.Equal(t, http.StatusBadRequest, holder.r.StatusCode, "a token that no host draws")
		holder.again(m, layout.MakeTicket(7, 1).String())
		require.Equal(t, http.StatusGone, holder.r.StatusCode)
	})
}

// TestRestartKeepsAnOrphan: the command runs on although both bakeryd and the wrapper are gone.
func TestRestartKeepsAnOrphan(t *testing.T) {
	c := realCluster(t, 8, 4)
	m := c.mortal(1)
	holder := m.ask(1, `, "witness": true`)
	g := holder.until("granted")
	command, err := os.OpenFile(g.Witness, os.O_WRONLY, 0)
	require.NoError(t, err)
	waiter := m.ask(2, "").waiting()
	m.edit(holder.id, func(r *handover.Session) { r.PeerStarted, r.Cgroup = r.PeerStarted+1, "" })
	m.restart()
	waiter.again(m, "")
	eventually(t, "the hold is an orphan", func() bool {
		s := m.session(holder)
		return s != nil && s.IsOrphan() && !s.Detached()
	})
	require.Equal(t, g.Token.String(), m.status().Locks[0].Holders[0].Token.String())
	waiter.until("waiting")
	require.NoError(t, command.Close())
	require.Greater(t, waiter.until("granted").Token, g.Token)
	eventually(t, "removing the witness", func() bool { // the next one is granted before that
		_, err := os.Lstat(filepath.Join(m.dir, filepath.Base(g.Witness)))
		return err != nil
	})
}

// TestWrapperGoneCommandLives: the end of the connection does not end a hold with a FIFO.
func TestWrapperGoneCommandLives(t *testing.T) {
	c := realCluster(t, 8, 4)
	m := c.mortal(1)
	holder := m.ask(1, `, "witness": true`)
	g := holder.until("granted")
	require.True(t, strings.HasPrefix(g.Witness, m.dir))
	command, err := os.OpenFile(g.Witness, os.O_WRONLY, 0)
	require.NoError(t, err)
	waiter := m.ask(2, "").waiting()
	holder.leave()
	eventually(t, "the hold is an orphan", m.session(holder).IsOrphan)
	acquireFails(t, m.d, locks.Request{Name: "x", Try: true}, api.ErrBusy)
	require.NoError(t, command.Close())
	waiter.until("granted")
}

// TestRestartTooLateJoinsAnew: from the end of the lease, other hosts may have the lock.
func TestRestartTooLateJoinsAnew(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		holder := m.ask(1, "")
		token := holder.until("granted").Token
		incarnation := m.d.mem.Incarnation()
		deadline := m.d.mem.Moments().Deadline
		m.kill()
		<-m.d.Lost()
		m.rise()
		require.NotEqual(t, incarnation, m.d.mem.Incarnation())
		require.Greater(t, m.d.mem.Moments().Deadline, deadline)
		holder.again(m, token.String())
		require.Equal(t, http.StatusGone, holder.r.StatusCode)
		holder.again(m, "")
		require.Greater(t, holder.until("granted").Token, token)
	})
}

// TestRestartThatTakesLong: holds do not count as lost when the lease that the previous process had
// is over. Waiting clients have time to reconnect.
func TestRestartThatTakesLong(t *testing.T) {
	c := realCluster(t, 8, 4)
	m := c.mortal(1)
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, acquire(t, m.d, locks.Request{Name: name}).Release())
	}
	holder := m.ask(1, `, "witness": true`)
	g := holder.until("granted")
	witness, err := os.OpenFile(g.Witness, os.O_WRONLY, 0)
	require.NoError(t, err)
	command := exec.Command("sleep", "1000")
	command.ExtraFiles = []*os.File{witness}
	require.NoError(t, command.Start())
	require.NoError(t, witness.Close())
	waiter := m.ask(2, "").waiting()
	m.kill()
	// The own slots of all locks are read, one after the other. None is stuck.
	m.rise(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(0, 1), To: c.Geo.Slot(4, 2),
		Delay: (c.SB.Lease + session.MinReturn + c.SB.Lease/10) / 5, Times: 5})
	require.True(t, m.d.mem.Resumed())
	restored := m.session(waiter)
	require.NotNil(t, restored)
	waiter.again(m, "")
	holder.again(m, g.Token.String()).granted()
	require.True(t, m.d.handover.Intact())
	require.Same(t, restored, m.session(waiter))
	require.NoError(t, command.Process.Signal(syscall.Signal(0)))
	require.NoError(t, command.Process.Kill())
	require.Error(t, command.Wait())
	holder.leave()
	waiter.until("granted")
	waiter.leave()
}

// TestRestartOfManyWhoAreGone: they end while others are still being restored.
func TestRestartOfManyWhoAreGone(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		holder, token := m.ask(1, "").granted()
		r := m.recorded(holder.id)
		r.State, r.Token = handover.Waiting, 0
		r.PeerStarted++ // a process that is gone
		for n := range 2000 {
			r.ID, r.Nth = fmt.Sprintf("%032x", 2+n), uint64(2+n)
			m.put(r)
		}
		m.restart()
		holder.again(m, token.String())
		require.Equal(t, token, holder.until("granted").Token)
		eventually(t, "the others are forgotten", func() bool { return m.d.sessions.Count() == 1 })
		_, kept := readHandover(t, m.d, c.clock.Now())
		require.Equal(t, 1, len(kept), "they would be waited for again")
		holder.leave()
	})
}

// TestRestartWithClientsUnknown: such as those of another pid namespace. They may be alive.
func TestRestartWithClientsUnknown(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		holder, token := m.ask(1, "").granted()
		m.edit(holder.id, func(r *handover.Session) { r.Peer, r.PeerStarted = 0, 0 })
		m.restart()
		time.Sleep(4 * driver.SettleAfter) // enough for a release, if there were one
		holder.again(m, token.String())
		require.Equal(t, token, holder.until("granted").Token)
		holder.leave()
	})
}

// TestRestart_AloneWhoseClientDoesNotComeBack_IsReleasedWhenItsCommandIsKilled: a wrapper that is
// stopped has stopped nothing.
func TestRestart_AloneWhoseClientDoesNotComeBack_IsReleasedWhenItsCommandIsKilled(t *testing.T) {
	m := realCluster(t, 8, 4).mortal(1)
	m.confirmInTime()
	client := m.link(`{"lock":{"name":"x","confirm":true}}`)
	g := client.until("granted")
	client.say(fmt.Sprintf(`{"confirm":"%v"}`, g.Token))
	client.until("confirmed")
	held, _ := m.d.sessions.Holding()
	require.Len(t, held, 1)
	command, group := contained(t, held[0].ID)
	m.edit(held[0].ID, func(r *handover.Session) { r.Cgroup = group.Dir }) // the killed bakeryd does not know of it
	m.restart()
	require.True(t, m.d.mem.Resumed())
	next := m.link(`{"lock":{"name":"x"}}`)
	next.until("waiting")
	require.True(t, command.Alive())
	next.until("granted")
	require.False(t, command.Alive())
}

// TestRestartWithALockThatIsAnother: a client that requested the old lock does not get the new one.
func TestRestartWithALockThatIsAnother(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		holder, token := m.ask(1, "").granted()
		r := m.recorded(holder.id)
		r.State, r.Token = handover.Waiting, 0
		r.ID, r.Nth, r.Name, r.Creation = fmt.Sprintf("%032x", 2), 2, "y", r.Creation-1
		m.put(r)
		m.restart()
		require.Equal(t, 1, m.d.sessions.Count())
		holder.again(m, token.String()).granted()
		holder.leave()
	})
}

// TestStateOfAnotherGeometry: a state file with locks or hosts that do not exist is rejected.
func TestStateOfAnotherGeometry(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := layout.Geometry{Stride: 512, Hosts: 4, Locks: 4}
		require.NoError(t, fits(g, handover.Term{HostID: 4}, []handover.Session{{Lock: 4}, {Lock: 0}}))
		require.ErrorContains(t, fits(g, handover.Term{HostID: 5}, nil), "host id 5, want 1 to 4")
		require.ErrorContains(t, fits(g, handover.Term{HostID: 1}, []handover.Session{{ID: "x", Lock: 5}}), "lock 5, want at most 4")

		c := newCluster(t, 4, 4)
		m := c.mortal(1)
		m.ask(1, "").granted()
		m.kill()
		file, term, sessions, err := handover.Resume(m.dir, c.SB.UUID, 1, c.clock.Now())
		require.NoError(t, err)
		require.Len(t, sessions, 1)
		sessions[0].Lock = 5
		file.Put(sessions[0])
		file.Close()
		m.rise()
		require.NotEqual(t, term.Incarnation, m.d.mem.Incarnation(), "it has joined again")
	})
}

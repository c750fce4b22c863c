package session

import (
	"os"
	"path"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/cgroup"
	"github.com/bakeryd/bakeryd/daemon/command"
	"github.com/bakeryd/bakeryd/daemon/liveness"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/test/processtest"
)

func TestConfirmWithin(t *testing.T) {
	require.Equal(t, 2*time.Second, confirmWithin(30*time.Second))
	require.Equal(t, time.Second, confirmWithin(6*time.Second))
}

// A bakeryd that was stopped sends the first SIGKILL long after the end of the lease.
func TestKilling_FirstSignalLongAfterTheLease_IsNotOverdue(t *testing.T) {
	const deadline, now = time.Hour, 2 * time.Hour
	var k killing
	require.False(t, k.overdue(deadline, now))
	require.False(t, k.overdue(deadline, now+command.RemainWithin))
	require.True(t, k.overdue(deadline, now+command.RemainWithin+1))
	require.False(t, k.overdue(2*deadline, now+command.RemainWithin+2), "of another lease")
}

// TestSession_StatusOfAnOrphan_DoesNotKeepItsLock: a process that does not hold the lock does not
// get to hold it by being shown.
func TestSession_StatusOfAnOrphan_DoesNotKeepItsLock(t *testing.T) {
	s := (&Table{}).make("")
	w, err := liveness.Make(t.TempDir(), "w.fifo", os.Geteuid())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Remove()) })
	s.FIFO, s.orphan = w, true
	f := processtest.OpenFIFO(t, s.FIFO.Path)
	command := processtest.Start(t, `sleep 1000 3>&- & echo $!; wait`, f)
	processtest.KillChildren(t, command)
	require.NoError(t, f.Close())
	// A process that a parallel test forks has all descriptors until it executes its program.
	require.Eventually(t, func() bool {
		pids, _ := s.LeftOver()
		return len(pids) == 2
	}, time.Minute, time.Millisecond, "only the command, and what it has started without the witness")
	require.NoError(t, command.Signal(syscall.SIGKILL))
	s.FIFO.Watch()
	<-w.Gone()
	require.False(t, w.Alive())
	require.False(t, s.running())
}

// A release for an earlier stay does not release the hold of a command that the client has left
// since.
func TestSession_ReleaseOfAnEarlierStay_DoesNothing(t *testing.T) {
	s := (&Table{}).make("")
	s.stays = 2
	s.release(1, "nothing was left") // would release a hold that s does not have
	require.False(t, s.over || s.released)
}

func TestSessions_OneUser_LeavesTheRest(t *testing.T) {
	const uid = 54321
	ss := &Table{byID: map[string]*Session{}, byUser: map[int]int{uid: MaxSessions / 4}, changed: make(chan struct{})}
	s := ss.make("00000000000000000000000000000001")
	s.UID = uid
	_, err := ss.admit(s)
	require.ErrorIs(t, err, api.ErrOverload)
	require.ErrorContains(t, err, "of user 54321")
	s.UID++
	fresh, err := ss.admit(s)
	require.NoError(t, err)
	require.True(t, fresh)
	ss.remove(s)
	require.NotContains(t, ss.byUser, s.UID)
}

// TestSession_WaitsWithProcessesInItsCgroup_IsGoneWithItsClient: those processes wait to become the
// command.
func TestSession_WaitsWithProcessesInItsCgroup_IsGoneWithItsClient(t *testing.T) {
	s := (&Table{}).make("")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(path.Join(dir, "cgroup.events"), []byte("populated 1\nfrozen 0\n"), 0o600))
	s.Group = &cgroup.Group{Dir: dir}
	require.True(t, s.Group.Populated())
	require.True(t, s.gone())
	s.hold = &locks.Hold{}
	close(s.done)
	require.False(t, s.gone())
}

func TestUnreadRequestsAreFew(t *testing.T) {
	s := (&Table{telling: newTelling()}).make("")
	for n := range 3 * maxUnread {
		s.requested(locks.Requested{Host: n})
	}
	require.Len(t, s.requests, maxUnread)
	require.Equal(t, 2*maxUnread, s.requests[0].Host, "the newest are kept")
}

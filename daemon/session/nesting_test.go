package session

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/process"
)

// TestNesters_ManyClientsWait_AreExaminedTogether: each client was once examined alone, with a list
// of all sessions. With 2,000 clients the host did nothing else.
func TestNesters_ManyClientsWait_AreExaminedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients = 2000
		ss := &Table{}
		examined, rounds := map[*Session]bool{}, 0
		began := time.Now()
		ss.nesters.examine = func(waiting []*Session) []*queue.Queue {
			rounds++
			for _, s := range waiting {
				require.False(t, examined[s], "once")
				require.GreaterOrEqual(t, time.Since(s.since), nestAfter)
				require.LessOrEqual(t, time.Since(s.since), nestAfter+nestPause)
				examined[s] = true
			}
			return nil
		}
		granted := ss.make("")
		granted.watchNesting()
		close(granted.done)
		for range clients { // in the course of a second
			s := ss.make("")
			s.watchNesting()
			s.watchNesting()
			time.Sleep(time.Second / clients)
		}
		time.Sleep(nestAfter + 2*nestPause)
		synctest.Wait()
		require.Len(t, examined, clients)
		require.NotContains(t, examined, granted)
		require.LessOrEqual(t, rounds, int(time.Since(began)/nestPause))
		require.False(t, ss.nesters.armed, "no timer runs while no client waits")
	})
}

// TestNesters_WriteOfASlotHangs_OthersAreExamined: the driver of one lock may hang on the device until the
// lease is lost, as on a sector that cannot be written.
func TestNesters_WriteOfASlotHangs_OthersAreExamined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ss := &Table{}
		examined := 0
		hang := make(chan struct{})
		ss.nesters.examine = func(waiting []*Session) []*queue.Queue {
			examined += len(waiting)
			return []*queue.Queue{nil}
		}
		ss.nesters.show = func(*queue.Queue) { <-hang }
		ss.make("").watchNesting()
		time.Sleep(2 * nestAfter)
		ss.make("").watchNesting()
		time.Sleep(2 * nestAfter)
		synctest.Wait()
		require.Equal(t, 2, examined)
		require.Empty(t, ss.nesters.queue)
		close(hang)
	})
}

// TestAncestry_SeveralHolders_SameLockElseTheNearest: a client that waits for a lock that its own
// ancestor holds waits forever, which is the worst of several.
func TestAncestry_SeveralHolders_SameLockElseTheNearest(t *testing.T) {
	self, err := process.Of(os.Getpid())
	require.NoError(t, err)
	session := func(lock string, pid int) *Session {
		s := (&Table{}).make("")
		s.req.Name, s.Peer = lock, self
		s.Peer.PID = pid
		return s
	}
	nearest, same := session("a", self.PID), session("x", self.PID)
	a := ancestry{
		parents: map[int]int{1000001: 1000002, 1000002: self.PID, self.PID: 1},
		holders: map[int][]*Session{self.PID: {nearest, same}},
	}
	require.Same(t, same, a.outer(session("x", 1000001)))
	require.Same(t, nearest, a.outer(session("y", 1000001)))
	require.Same(t, nearest, a.outer(session("a", 1000001)))
	require.Nil(t, a.outer(session("x", self.PID)), "its own hold is no ancestor's")
	require.Nil(t, a.outer(session("x", 0)), "of another pid namespace")
	gone := session("x", self.PID)
	gone.Peer.Started++
	a.holders = map[int][]*Session{self.PID: {gone}}
	require.Nil(t, a.outer(session("x", 1000001)), "another process has that pid now")
}

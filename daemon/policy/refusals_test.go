package policy

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/test/logtest"
)

func refusedTo(uid, pid int) *access.Refusal {
	return &access.Refusal{Caller: access.Caller{UID: uid, GID: 5, PID: pid}, Action: access.Lock, Lock: "x", Reason: "no line"}
}

func newRefusals() (*Refusals, *logtest.Log) {
	log := new(logtest.Log)
	return NewRefusals(slog.New(slog.NewTextHandler(log, nil))), log
}

// TestALoopDoesNotFillTheLog: a client that repeats a request makes one line a minute, which has
// all refusals.
func TestALoopDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs, log := newRefusals()
		for range 1000 {
			rs.Note(refusedTo(60001, 7))
		}
		require.Equal(t, refusalsLogged, strings.Count(log.String(), "\n"))
		require.Contains(t, log.String(), "level=WARN msg=\"access refused\" uid=60001 gid=5 pid=7 action=lock lock=x reason=\"no line\"")
		// another user is not lost among these
		rs.Note(refusedTo(60002, 8))
		require.Contains(t, log.String(), "uid=60002 gid=5 pid=8")
		time.Sleep(refusalsSpan - time.Second)
		synctest.Wait()
		rs.Note(refusedTo(60001, 9))
		require.Equal(t, refusalsLogged+1, strings.Count(log.String(), "\n"))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, refusalsLogged+2, strings.Count(log.String(), "\n"))
		require.Contains(t, log.String(), fmt.Sprintf("uid=60001 gid=5 pid=9 action=lock lock=x reason=\"no line\" times=%d", 1000-refusalsLogged+1))
		time.Sleep(10 * refusalsSpan)
		synctest.Wait()
		require.Equal(t, refusalsLogged+2, strings.Count(log.String(), "\n"), "no more has come")
		rs.Note(refusedTo(60001, 10))
		require.Contains(t, log.String(), "pid=10 ", "after the span they are logged one by one again")
	})
}

// TestManyUsersDoNotFillTheLog: nor the memory. A user namespace has any number of users.
func TestManyUsersDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs, log := newRefusals()
		const users = 5000
		for uid := range users {
			rs.Note(refusedTo(100000+uid, 7))
		}
		require.Len(t, rs.users, refusedUsers+1, "one entry has all others")
		require.Equal(t, refusedUsers+refusalsLogged, strings.Count(log.String(), "\n"))
		rs.Flush() // as at the end of bakeryd
		require.Contains(t, log.String(), fmt.Sprintf("times=%d", users-refusedUsers-refusalsLogged))
		rs.Flush()
		require.Equal(t, refusedUsers+refusalsLogged+1, strings.Count(log.String(), "\n"))
		time.Sleep(2 * refusalsSpan)
		rs.Note(refusedTo(99, 7))
		require.Len(t, rs.users, 1, "the others were long ago")
	})
}

// TestRefusalNamesTheUser: if the user has a name.
func TestRefusalNamesTheUser(t *testing.T) {
	rs, log := newRefusals()
	no := refusedTo(0, 7)
	rs.Note(no)
	require.Equal(t, "root", no.User)
	require.Contains(t, log.String(), "user=root lock=x")
	no = refusedTo(-1, 0)
	rs.Note(no)
	require.Empty(t, no.User)
}

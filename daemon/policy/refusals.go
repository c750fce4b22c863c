package policy

import (
	"log/slog"
	"maps"
	"math"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/access"
)

// Every refusal is logged. The first refusalsLogged of a user within refusalsSpan are
// logged one by one, the others of that span together at its end. Therefore a user that repeats a
// request does not fill the log.

const (
	refusalsSpan   = time.Minute
	refusalsLogged = 10 // of one user in this span, one by one
	// number of users with separate records; all others of a span share one
	refusedUsers = 256
)

// Refusals are the refusals of a server.
type Refusals struct {
	log *slog.Logger

	mu    sync.Mutex       // guards the rest
	users map[int]*refused // by uid, and those of otherUsers
}

// otherUsers is in place of a uid for the users beyond refusedUsers.
const otherUsers = math.MinInt

// NewRefusals returns the refusals of a server that logs to log.
func NewRefusals(log *slog.Logger) *Refusals {
	return &Refusals{log: log, users: map[int]*refused{}}
}

// refused is the record of one user's refusals in the current span.
type refused struct {
	user     string
	since    time.Time
	logged   int
	unlogged int
	last     access.Refusal // of the unlogged ones
	timer    *time.Timer    // logs these; nil if none
}

// Note logs a refusal when it is due, and sets the user's name.
func (rs *Refusals) Note(no *access.Refusal) {
	rs.mu.Lock()
	of, begun := rs.of(no.Caller.UID)
	if begun {
		rs.mu.Unlock() // a remote user database may be slow
		name := userName(no.Caller.UID)
		rs.mu.Lock()
		of.user = name
	}
	no.User = of.user
	log := of.logged < refusalsLogged
	if log {
		of.logged++
	} else {
		of.unlogged++
		of.last = *no
		if of.timer == nil {
			of.timer = time.AfterFunc(max(0, refusalsSpan-time.Since(of.since)), func() { rs.tell(of) })
		}
	}
	rs.mu.Unlock()
	if log {
		rs.warn("access refused", no)
	}
}

// of returns the record of a user; begun reports that it is new. Called with mu held.
func (rs *Refusals) of(uid int) (of *refused, begun bool) {
	over := func(_ int, of *refused) bool { return of.timer == nil && time.Since(of.since) >= refusalsSpan }
	if rs.users[uid] == nil && len(rs.users) >= refusedUsers {
		maps.DeleteFunc(rs.users, over)
	}
	if rs.users[uid] == nil && len(rs.users) >= refusedUsers {
		uid = otherUsers
	}
	of = rs.users[uid]
	switch {
	case of == nil:
		of = &refused{since: time.Now()}
		rs.users[uid] = of
		return of, uid != otherUsers
	case over(uid, of):
		of.since, of.logged = time.Now(), 0
	}
	return of, false
}

// tell logs the refusals that were not logged one by one.
func (rs *Refusals) tell(of *refused) {
	rs.mu.Lock()
	if of.timer == nil {
		rs.mu.Unlock()
		return
	}
	of.timer.Stop()
	n, last := of.unlogged, of.last
	of.since, of.logged, of.unlogged, of.timer = time.Now(), 0, 0, nil
	rs.mu.Unlock()
	rs.warn("access refused repeatedly, this is the last refusal", &last, "times", n)
}

// Flush logs immediately what was to be logged later.
func (rs *Refusals) Flush() {
	rs.mu.Lock()
	all := slices.Collect(maps.Values(rs.users))
	rs.mu.Unlock()
	for _, of := range all {
		rs.tell(of)
	}
}

func (rs *Refusals) warn(message string, no *access.Refusal, more ...any) {
	attrs := []any{"uid", no.Caller.UID, "gid", no.Caller.GID, "pid", no.Caller.PID, "action", no.Action}
	if no.User != "" {
		attrs = append(attrs, "user", no.User)
	}
	if no.Lock != "" {
		attrs = append(attrs, "lock", no.Lock)
	}
	rs.log.Warn(message, append(append(attrs, "reason", no.Reason), more...)...)
}

// userName returns a user's name, for display; empty if none.
func userName(uid int) string {
	if uid < 0 {
		return ""
	}
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return ""
	}
	return u.Username
}

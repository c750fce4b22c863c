package policy

import (
	"log/slog"
	"math"
	"os/user"
	"strconv"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/access"
)

// Every refusal is logged. The first refusalsLogged of a user within refusalsSpan are logged one by
// one, the others at the end of the span together. Therefore a user that repeats a request does not
// fill the log.
const (
	refusalsSpan   = time.Minute // from the first refusal of any user on
	refusalsLogged = 10
	refusedUsers   = 256 // users with separate records; all others of a span share that of otherUsers
	otherUsers     = math.MinInt
)

// Refusals are the refusals of a server.
type Refusals struct {
	log *slog.Logger

	mu    sync.Mutex       // guards the rest
	users map[int]*refused // of the current span, by uid
}

// NewRefusals returns the refusals of a server that logs to log.
func NewRefusals(log *slog.Logger) *Refusals {
	return &Refusals{log: log, users: map[int]*refused{}}
}

// refused is the record of one user's refusals in a span.
type refused struct {
	name     func() string // of the user
	logged   int
	unlogged int
	last     access.Refusal // of the unlogged ones
}

// Note logs a refusal when it is due, and sets the user's name.
func (rs *Refusals) Note(no *access.Refusal) {
	rs.mu.Lock()
	name := rs.of(no.Caller.UID).name
	rs.mu.Unlock() // a remote user database may be slow
	no.User = name()
	rs.mu.Lock()
	of := rs.of(no.Caller.UID)
	log := of.logged < refusalsLogged
	if log {
		of.logged++
	} else {
		of.unlogged++
		of.last = *no
	}
	rs.mu.Unlock()
	if log {
		rs.warn("access refused", no)
	}
}

// of returns the record of a user. Called with mu held.
func (rs *Refusals) of(uid int) *refused {
	if len(rs.users) == 0 {
		time.AfterFunc(refusalsSpan, rs.Flush)
	}
	if rs.users[uid] == nil && len(rs.users) >= refusedUsers {
		uid = otherUsers
	}
	of := rs.users[uid]
	if of == nil {
		of = &refused{name: sync.OnceValue(func() string { return userName(uid) })}
		rs.users[uid] = of
	}
	return of
}

// Flush ends the span: it logs the refusals that were not logged one by one.
func (rs *Refusals) Flush() {
	rs.mu.Lock()
	all := rs.users
	rs.users = map[int]*refused{}
	rs.mu.Unlock()
	for _, of := range all {
		if of.unlogged > 0 {
			rs.warn("access refused repeatedly, this is the last refusal", &of.last, "times", of.unlogged)
		}
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

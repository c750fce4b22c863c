package supervise

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/client"
)

// Held is a hold of bakeryd or of a host in this process.
type Held interface {
	Deadline() time.Time
	StopAt() time.Duration // on CLOCK_BOOTTIME
	Grace() time.Duration
	Warned() <-chan struct{}
	Lost() <-chan struct{}
	Err() error
}

// Grant is a held lock with all that running a command under it requires.
type Grant struct {
	Held
	Token   client.Token
	HostID  int
	Inherit func() (client.Descriptor, error) // returns the descriptor by which the command holds the lock; nil: it does not inherit the lock
	Silent  <-chan struct{}                   // receives when bakeryd has been gone for two seconds; nil: no bakeryd
	Wanted  <-chan client.Request             // receives the requests of other clients for the lock; nil: none
	Weak    string                            // why bakeryd cannot contain the command; empty: it can, or no bakeryd
	There   func() bool                       // reports whether bakeryd is connected and takes over remaining processes; nil: it never does
	Release func() error
}

// errTooLate is returned when the command must not start any more.
var errTooLate = errors.New("its lease is about to end without a renewal")

// Why returns why the holder must stop.
func (g *Grant) Why() error { return cmp.Or(g.Err(), errTooLate) }

// over reports whether the lock is lost, or about to be.
func (g *Grant) over() bool { return IsClosed(g.Warned()) || IsClosed(g.Lost()) }

// settles blocks until ok returns true, and reports that. It returns false if the lock is over, or
// after MessageTimeout: a process that was stopped asks bakeryd for so long whether the lease was
// renewed, or the command killed.
func (g *Grant) settles(ok func() bool) bool {
	for giveUp := time.Now().Add(MessageTimeout); !g.over() && time.Now().Before(giveUp); {
		if ok() {
			return true
		}
		select {
		case <-g.Warned():
		case <-g.Lost():
		case <-time.After(briefly):
		}
	}
	return false
}

// A command reaches the hold that it runs under by these environment variables.
const (
	EnvSession = "BAKERY_SESSION"
	EnvToken   = "BAKERY_TOKEN"
	envSocket  = "BAKERY_SOCKET"
)

// surroundings returns this process's environment without the session of a lock that encloses the
// command's own lock.
func surroundings() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, EnvSession+"=") })
}

// additions returns the variables that the command's environment adds to surroundings.
func (l Launch) additions(g *Grant) []string {
	env := []string{"BAKERY_LOCK=" + l.Lock, EnvToken + "=" + g.Token.String(), "BAKERY_HOST_ID=" + strconv.Itoa(g.HostID)}
	if l.Session != "" {
		socket, err := filepath.Abs(l.Socket) // the command may change its directory
		if err != nil {
			socket = l.Socket
		}
		env = append(env, EnvSession+"="+l.Session, envSocket+"="+socket)
	}
	return env
}

// environment returns the environment of the scripts of --on-lost and --on-request.
func (l Launch) environment(g *Grant) []string { return append(surroundings(), l.additions(g)...) }

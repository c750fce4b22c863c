package supervise

import (
	"time"

	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/layout"
)

// Held is a hold of bakeryd or of a host in this process.
type Held interface {
	Token() layout.Ticket
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
	HostID  int
	Inherit func() (client.Descriptor, error) // returns the descriptor by which the command holds the lock; nil: it does not inherit the lock
	Silent  <-chan struct{}                   // receives when bakeryd has been gone for two seconds; nil: no bakeryd
	Wanted  <-chan client.Request             // receives the requests of other clients for the lock; nil: none
	Weak    string                            // why bakeryd cannot contain the command; empty: it can, or no bakeryd
	There   func() bool                       // reports whether bakeryd is connected and takes over remaining processes; nil: it never does
	Session string                            // of the hold at bakeryd; empty: this process is the host
	Socket  string                            // of that bakeryd
	Bound   bool                              // the lock ends with this process, so the command must, too
	Release func() error
}

package supervise

import (
	"time"

	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/layout"
)

// Held is a lock held, by bakeryd for us or by this process itself.
type Held interface {
	Token() layout.Ticket
	Deadline() time.Time
	StopAt() time.Duration // on CLOCK_BOOTTIME
	Grace() time.Duration
	Warned() <-chan struct{}
	Lost() <-chan struct{}
	Err() error
}

// Grant is a held lock and what running a command under it takes.
type Grant struct {
	Held
	HostID  int
	Inherit func() (client.Descriptor, error) // of what the command holds the lock by; nil: it cannot, or must not
	Silent  <-chan struct{}                   // gets one when bakeryd has been gone for two seconds; nil: there is none
	Wanted  <-chan client.Request             // gets what others ask for the lock by; nil: nothing
	Weak    string                            // why bakeryd cannot contain the command; empty: it can, or there is none
	There   func() bool                       // reports whether bakeryd takes over what is left running; nil: it never does
	Session string                            // by which bakeryd knows the hold; empty: it is this process's own
	Socket  string                            // of that bakeryd
	Bound   bool                              // the lock ends with this process, so the command must as well
	Release func() error
}

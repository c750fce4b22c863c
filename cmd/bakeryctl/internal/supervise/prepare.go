package supervise

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
)

// Preparation is what is done for a command while its lock is waited for: once it is granted,
// others wait.
type Preparation struct {
	work     sync.WaitGroup
	known    chan struct{}  // closed when bakeryd knows the session
	over     chan struct{}  // closed when the lock is not waited for any more
	told     sync.Once      // closes known
	children chan os.Signal // gets SIGCHLD
	starter  *starter       // set by work; nil: none
}

// Prepare begins to prepare. If early is false, the stub is started after the grant: for a
// request that does not wait, which is refused more often than granted, and for a command that is
// bound to the thread that starts it.
func Prepare(l Launch, inbox *signals.Inbox, early bool) *Preparation {
	p := &Preparation{known: make(chan struct{}), over: make(chan struct{}), children: make(chan os.Signal, 1)}
	p.work.Go(func() {
		signal.Notify(p.children, syscall.SIGCHLD)
		inbox.ForwardMore(l.Signals)
		if !early {
			return
		}
		s, err := startStub(l, false)
		if err != nil {
			return // the attempt after the grant reports it
		}
		p.starter = s
		if s.weak != nil {
			select {
			case <-p.known:
				s.contain(l.Session, l.Socket)
			case <-p.over:
			}
		}
	})
	return p
}

// SessionKnown is called when bakeryd has answered for the first time.
func (p *Preparation) SessionKnown() { p.told.Do(func() { close(p.known) }) }

// use returns the stub when the lock was granted. One that has ended by then, by a signal to the
// process group, is replaced.
func (p *Preparation) use(l Launch, bound bool) (*starter, error) {
	p.SessionKnown()
	p.work.Wait()
	if p.starter != nil && !IsClosed(p.starter.ended) {
		return p.starter, nil
	}
	s, err := startStub(l, bound)
	if err == nil && s.weak != nil {
		s.contain(l.Session, l.Socket)
	}
	return s, err
}

// Abandon ends the stub of a lock that was not granted.
func (p *Preparation) Abandon() {
	close(p.over)
	p.work.Wait()
	if p.starter != nil {
		p.starter.abandon()
	}
}

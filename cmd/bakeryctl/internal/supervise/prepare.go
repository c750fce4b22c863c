package supervise

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
)

// preparation is the work for a command that is done during the wait for its lock. After the grant,
// other clients wait.
type preparation struct {
	work         sync.WaitGroup
	sessionKnown func()         // is called when bakeryd knows the session; contain can be asked then
	over         chan struct{}  // closed when the wait ends without a grant
	children     chan os.Signal // receives SIGCHLD
	starter      *starter       // set by work; nil: none
}

// prepare starts the preparation. If early is false, the stub starts after the grant.
func prepare(l Launch, inbox *signals.Inbox, early bool) *preparation {
	known := make(chan struct{})
	p := &preparation{sessionKnown: sync.OnceFunc(func() { close(known) }), over: make(chan struct{}), children: make(chan os.Signal, 1)}
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
			case <-known:
				s.contain(l.Session, l.Socket)
			case <-p.over:
			}
		}
	})
	return p
}

// use returns the stub after the grant. It replaces a stub that has ended, such as by a signal to
// the process group.
func (p *preparation) use(l Launch, bound bool) (*starter, error) {
	p.sessionKnown()
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

// abandon ends the preparation of a lock that was not granted.
func (p *preparation) abandon() {
	close(p.over)
	p.work.Wait()
	if p.starter != nil {
		p.starter.abandon()
	}
}

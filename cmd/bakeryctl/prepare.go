package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// preparation is what is done for a command while its lock is waited for: once it is granted,
// others wait.
type preparation struct {
	work     sync.WaitGroup
	known    chan struct{}  // closed when bakeryd knows the session
	over     chan struct{}  // closed when the lock is not waited for any more
	told     sync.Once      // closes known
	children chan os.Signal // gets SIGCHLD
	starter  *starter       // set by work; nil: none
}

// prepareCommand begins to prepare. If early is false, the stub is started after the grant: for a
// request that does not wait, which is refused more often than granted, and for a command that is
// bound to the thread that starts it.
func prepareCommand(l launch, signals *inbox, early bool) *preparation {
	p := &preparation{known: make(chan struct{}), over: make(chan struct{}), children: make(chan os.Signal, 1)}
	p.work.Go(func() {
		signal.Notify(p.children, syscall.SIGCHLD)
		signals.forwardMore(l.signals)
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
				s.contain(l.session, l.socket)
			case <-p.over:
			}
		}
	})
	return p
}

// sessionKnown is called when bakeryd has answered for the first time.
func (p *preparation) sessionKnown() { p.told.Do(func() { close(p.known) }) }

// use returns the stub when the lock was granted. One that has ended by then, by a signal to the
// process group, is replaced.
func (p *preparation) use(l launch, bound bool) (*starter, error) {
	p.sessionKnown()
	p.work.Wait()
	if p.starter != nil && !isClosed(p.starter.ended) {
		return p.starter, nil
	}
	s, err := startStub(l, bound)
	if err == nil && s.weak != nil {
		s.contain(l.session, l.socket)
	}
	return s, err
}

// abandon ends the stub of a lock that was not granted.
func (p *preparation) abandon() {
	close(p.over)
	p.work.Wait()
	if p.starter != nil {
		p.starter.abandon()
	}
}

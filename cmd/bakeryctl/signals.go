package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// forwarded are the signals that a command gets when they are sent to bakeryctl. Those of job
// control are for the whole process group; bakeryctl needs SIGCHLD and SIGPIPE itself.
var forwarded = []syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT,
}

// inbox receives the signals of this process, from before the wait for the lock until the command has
// ended, so that none is lost between the two.
type inbox struct {
	signals chan os.Signal
	ignored chan os.Signal
}

// openInbox begins to receive signals. A signal that was ignored when this process started stays
// ignored, here and in the command.
func openInbox(inherited signalState) *inbox {
	b := &inbox{signals: make(chan os.Signal, 64), ignored: make(chan os.Signal, 1)}
	inherited.ignore()
	for _, s := range forwarded {
		if !inherited.ignored.has(s) {
			signal.Notify(b.signals, s)
		}
	}
	noteSources(inherited, syscall.SIGINT, syscall.SIGQUIT)
	if !inherited.ignored.has(syscall.SIGPIPE) {
		// A closed standard error must not kill us while there is a command to stop. To ignore the
		// signal would make the command ignore it too.
		signal.Notify(b.ignored, syscall.SIGPIPE)
	}
	return b
}

// forwardMore begins to receive the signals that are seldom sent. Each takes the runtime two
// changes of threads.
func (b *inbox) forwardMore(inherited signalState) {
	const firstRealTime = 34 // the C library keeps those before to itself
	for s := syscall.Signal(firstRealTime); s <= lastSignal; s++ {
		if !inherited.ignored.has(s) {
			signal.Notify(b.signals, s)
		}
	}
}

// close gives the signals back before err is reported, which may take until one of them ends it. A
// silent end is spared that: every signal takes the runtime two changes of threads.
func (b *inbox) close(err error) {
	if !silent(err) {
		signal.Stop(b.signals)
		signal.Stop(b.ignored)
	}
}

// interruption is the cause of a wait that a signal ended.
type interruption struct {
	signal syscall.Signal
}

func (i interruption) Error() string { return fmt.Sprintf("interrupted by %v", i.signal) }

// interrupts returns a context that a signal cancels with an interruption, and what stops listening for
// signals, which then stay in the inbox.
func (b *inbox) interrupts(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	done := make(chan struct{})
	var listener sync.WaitGroup
	listener.Go(func() {
		for {
			select {
			case <-done:
				return
			case s := <-b.signals:
				switch s {
				case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
					cancel(interruption{s.(syscall.Signal)})
					return
				}
			}
		}
	})
	return ctx, func() {
		close(done)
		listener.Wait()
	}
}

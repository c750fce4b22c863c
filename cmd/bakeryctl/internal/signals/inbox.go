package signals

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
)

// Forwarded are the signals that bakeryctl passes on to a command. Job control signals go to the
// whole process group; bakeryctl needs SIGCHLD and SIGPIPE itself.
var Forwarded = []syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT,
}

// Ends reports whether a signal ends a wait or hold. The other signals are meant for commands.
func Ends(s os.Signal) bool {
	return s == syscall.SIGHUP || s == syscall.SIGINT || s == syscall.SIGQUIT || s == syscall.SIGTERM
}

// Inbox receives the signals of this process, from before the wait for the lock until the command
// has ended, so that no signal is lost in between.
type Inbox struct {
	C       chan os.Signal
	ignored chan os.Signal
}

// Open starts receiving signals. A signal that was ignored when this process started stays ignored,
// here and in the command.
func Open(inherited State) *Inbox {
	b := &Inbox{C: make(chan os.Signal, 64), ignored: make(chan os.Signal, 1)}
	inherited.ignore()
	for _, s := range Forwarded {
		if !inherited.ignored.has(s) {
			signal.Notify(b.C, s)
		}
	}
	noteSources(inherited, syscall.SIGINT, syscall.SIGQUIT)
	if !inherited.ignored.has(syscall.SIGPIPE) {
		// A closed standard error must not kill bakeryctl while it has a command to stop. Ignoring
		// the signal would make the command ignore it, too.
		signal.Notify(b.ignored, syscall.SIGPIPE)
	}
	return b
}

// realTime calls f for each real-time signal that was not inherited as ignored.
func realTime(inherited State, f func(syscall.Signal)) {
	const first = 34 // the C library reserves the signals below
	for n := syscall.Signal(first); n <= Last; n++ {
		if !inherited.ignored.has(n) {
			f(n)
		}
	}
}

// CatchMore makes ForwardMore receive the real-time signals that arrive from now on, even if it runs
// later. It returns false if this is not possible on this architecture.
func (b *Inbox) CatchMore(inherited State) bool {
	realTime(inherited, func(n syscall.Signal) { noteSources(inherited, n) })
	return catches
}

// ForwardMore starts receiving the real-time signals. It runs when nothing waits for it, because each
// signal costs the runtime two thread switches.
func (b *Inbox) ForwardMore(inherited State) {
	realTime(inherited, func(n syscall.Signal) {
		signal.Notify(b.C, n)
		if caught(n) { // before, or just now: then C gets it twice, and SentToUs returns true once
			select {
			case b.C <- n:
			default: // C is full
			}
		}
	})
}

// Close stops receiving signals before err is reported, so that a signal can end a slow report. It
// does nothing if err is not reported: each signal costs the runtime two thread switches.
func (b *Inbox) Close(err error) {
	if !cli.Silent(err) {
		signal.Stop(b.C)
		signal.Stop(b.ignored)
	}
}

// Interruption is the cancellation cause of a wait that a signal ended.
type Interruption struct {
	Signal syscall.Signal
}

func (i Interruption) Error() string { return fmt.Sprintf("interrupted by %v", i.Signal) }

// Interrupts returns a context that a signal cancels with an Interruption, and a function that
// stops the listener. Later signals stay in the inbox.
func (b *Inbox) Interrupts(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	done := make(chan struct{})
	var listener sync.WaitGroup
	listener.Go(func() {
		for {
			select {
			case <-done:
				return
			case s := <-b.C:
				if Ends(s) {
					cancel(Interruption{s.(syscall.Signal)})
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

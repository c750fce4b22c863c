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

// Forwarded are the signals that a command gets when they are sent to bakeryctl. Those of job
// control are for the whole process group; bakeryctl needs SIGCHLD and SIGPIPE itself.
var Forwarded = []syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT,
}

// Inbox receives the signals of this process, from before the wait for the lock until the command
// has ended, so that none is lost between the two.
type Inbox struct {
	C       chan os.Signal
	ignored chan os.Signal
}

// Open begins to receive signals. A signal that was ignored when this process started stays
// ignored, here and in the command.
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
		// A closed standard error must not kill us while there is a command to stop. To ignore the
		// signal would make the command ignore it too.
		signal.Notify(b.ignored, syscall.SIGPIPE)
	}
	return b
}

// ForwardMore begins to receive the signals that are seldom sent. Each takes the runtime two
// changes of threads.
func (b *Inbox) ForwardMore(inherited State) {
	const firstRealTime = 34 // the C library keeps those before to itself
	for s := syscall.Signal(firstRealTime); s <= Last; s++ {
		if !inherited.ignored.has(s) {
			signal.Notify(b.C, s)
		}
	}
}

// Close gives the signals back before err is reported, which may take until one of them ends it. A
// silent end is spared that: every signal takes the runtime two changes of threads.
func (b *Inbox) Close(err error) {
	if !cli.Silent(err) {
		signal.Stop(b.C)
		signal.Stop(b.ignored)
	}
}

// Interruption is the cause of a wait that a signal ended.
type Interruption struct {
	Signal syscall.Signal
}

func (i Interruption) Error() string { return fmt.Sprintf("interrupted by %v", i.Signal) }

// Interrupts returns a context that a signal cancels with an Interruption, and what stops listening
// for signals, which then stay in the inbox.
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
				switch s {
				case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
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

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// relayed are the signals that a command gets when they are sent to bakeryctl. It is in our process group,
// so a terminal's SIGTSTP and SIGWINCH reach it anyway, and SIGTSTP stops us both.
var relayed = []syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT,
}

// inbox receives the signals of this process, from before the wait for the lock until the command has
// ended, so that none is lost between the two.
type inbox struct {
	signals chan os.Signal
	ignored chan os.Signal
}

func openInbox() *inbox {
	b := &inbox{signals: make(chan os.Signal, 64), ignored: make(chan os.Signal, 1)}
	for _, s := range relayed {
		// To ask for a signal that was ignored when we were started (nohup) would make the command die of it.
		if !signal.Ignored(s) {
			signal.Notify(b.signals, s)
		}
	}
	// A closed standard error must not kill us while there is a command to stop. To ignore the signal would
	// make the command ignore it too.
	signal.Notify(b.ignored, syscall.SIGPIPE)
	return b
}

// close gives the signals back before err is told, which may take until one of them ends it. Who ends without a word
// is spared that: every signal takes the runtime two changes of threads.
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

// reachedGroup says whether a signal that we got has most likely reached the command as well: the terminal
// and a shell's job control send these to the whole foreground process group. Who sent it is not to be seen.
func reachedGroup(s os.Signal) bool {
	switch s {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGCONT:
		return inForeground()
	}
	return false
}

func inForeground() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return false // no controlling terminal
	}
	defer func() { _ = unix.Close(fd) }()
	group, err := unix.IoctlGetUint32(fd, unix.TIOCGPGRP)
	return err == nil && int(group) == unix.Getpgrp()
}

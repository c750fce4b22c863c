package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// preparation is what can be done for a command while its lock is waited for: once that is granted, every moment is
// one for which others wait.
type preparation struct {
	work     sync.WaitGroup // to be waited for before the others are used
	place    *place         // of the command's cgroup; nil: it gets none
	children chan os.Signal // gets SIGCHLD
}

func prepareCommand() *preparation {
	p := &preparation{children: make(chan os.Signal, 1)}
	p.work.Go(func() {
		p.place = findPlace()
		signal.Notify(p.children, syscall.SIGCHLD)
		tryHandles()
	})
	return p
}

// tryHandles has the runtime find out now, and not when the command is started, whether it can have handles of
// processes. It starts a process to see that.
func tryHandles() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Release()
	}
}

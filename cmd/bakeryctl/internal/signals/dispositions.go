// Package signals knows the signals that bakeryctl gets: how it inherited their dispositions and
// the mask, which a command is to inherit in turn, whether a process or the terminal sent one, and
// how to receive them without losing any. It imports only package cli of the project.
package signals

import (
	"fmt"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Last is the greatest number that a signal has on Linux.
const Last = 64

// Set is a set of signals: bit n-1 is signal n.
type Set uint64

func (s Set) has(n syscall.Signal) bool { return s&(1<<(n-1)) != 0 }

// started is what entry (source_amd64.s) has found when the process was executed.
var started struct {
	known   uint64 // 1: entry has run
	mask    Set    // signals that are blocked
	actions [Last]sigaction
}

// sigaction is the kernel's struct of that name.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     Set
}

func (a *sigaction) get(n syscall.Signal) error {
	return rtSigaction(n, nil, a)
}

func (a *sigaction) set(n syscall.Signal) error {
	return rtSigaction(n, a, nil)
}

func rtSigaction(n syscall.Signal, to, was *sigaction) error {
	_, _, no := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(was)), unsafe.Sizeof(to.mask), 0, 0)
	if no != 0 {
		return no
	}
	return nil
}

const sigIgnore = 1 // SIG_IGN

// State is what a command inherits of signals.
type State struct {
	ignored, Blocked Set
}

func (s State) String() string {
	return fmt.Sprintf("%x,%x", uint64(s.ignored), uint64(s.Blocked))
}

// ParseState reads what String wrote.
func ParseState(text string) (s State, err error) {
	_, err = fmt.Sscanf(text, "%x,%x", (*uint64)(&s.ignored), (*uint64)(&s.Blocked))
	return s, err
}

// Inherited returns the state in which this process was started. If bakeryctl was linked
// without entry, that is what the Go runtime kept: whether SIGHUP and SIGINT are ignored, the
// signals that it has no handler for, and most of the mask.
func Inherited() (s State) {
	if started.known == 1 {
		for i, action := range started.actions {
			if action.handler == sigIgnore {
				s.ignored |= 1 << i
			}
		}
		s.Blocked = started.mask
		return s
	}
	for n := syscall.Signal(1); n <= Last; n++ {
		if signal.Ignored(n) {
			s.ignored |= 1 << (n - 1)
		}
	}
	s.Blocked, _ = SetMask(nil)
	return s
}

// ignore has this process ignore what it inherited as ignored, and so all that it starts. SIGCHLD
// is left out: without it no child could be waited for.
func (s State) ignore() {
	for n := syscall.Signal(1); n <= Last; n++ {
		if s.ignored.has(n) && n != syscall.SIGCHLD {
			signal.Ignore(n)
		}
	}
}

// Restore gives this process, which is about to execute another program, the dispositions that the
// program is to have. The Go runtime keeps those that it needs until then: the kernel resets
// handlers at execve.
func (s State) Restore() {
	for n := syscall.Signal(1); n <= Last; n++ {
		var action sigaction
		switch n {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGURG, syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGABRT:
			if !s.ignored.has(n) {
				continue // the runtime's own
			}
		}
		if s.ignored.has(n) {
			action.handler = sigIgnore
		}
		_ = action.set(n) // refused for two that the C library keeps
	}
}

// SetMask sets the mask of the calling thread, and returns the one before; nil: it changes nothing.
func SetMask(to *Set) (before Set, err error) {
	var was unix.Sigset_t
	var set *unix.Sigset_t
	if to != nil {
		set = new(unix.Sigset_t)
		set.Val[0] = uint64(*to)
	}
	err = unix.PthreadSigmask(unix.SIG_SETMASK, set, &was)
	return Set(was.Val[0]), err
}

// StartWith starts a command with a mask of its own: what is forked inherits that of the thread.
func StartWith(mask Set, cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := SetMask(&mask)
	if err != nil {
		return err
	}
	defer func() { _, _ = SetMask(&before) }()
	return cmd.Start()
}

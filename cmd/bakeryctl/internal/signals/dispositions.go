// Package signals handles the signals that bakeryctl receives. It determines the dispositions and
// the mask that bakeryctl inherited and passes to a command, and whether a process or the terminal
// sent a signal. It receives signals without losing any. It imports only package cli of the
// project.
package signals

import (
	"cmp"
	"fmt"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Last is the highest signal number on Linux.
const Last = 64

// Set is a set of signals: bit n-1 is signal n.
type Set uint64

func (s Set) has(n syscall.Signal) bool { return s&(1<<(n-1)) != 0 }

// started holds what entry (source_amd64.s) found when the process was executed.
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

// rtSigaction sets a disposition, unless to is nil, and returns the previous one in was, unless nil.
func rtSigaction(n syscall.Signal, to, was *sigaction) error {
	_, _, no := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(was)), unsafe.Sizeof(to.mask), 0, 0)
	if no != 0 {
		return no
	}
	return nil
}

const sigIgnore = 1 // SIG_IGN

// State is the signal state that a command inherits.
type State struct {
	ignored, Blocked Set
}

func (s State) String() string {
	return fmt.Sprintf("%x,%x", uint64(s.ignored), uint64(s.Blocked))
}

// ParseState parses the result of String.
func ParseState(text string) (s State, err error) {
	ignored, blocked, _ := strings.Cut(text, ",")
	i, err := strconv.ParseUint(ignored, 16, 64)
	b, blockedErr := strconv.ParseUint(blocked, 16, 64)
	return State{Set(i), Set(b)}, cmp.Or(err, blockedErr)
}

// Inherited returns the state in which this process was started. If bakeryctl was linked without
// entry, it returns what the Go runtime kept: whether SIGHUP and SIGINT are ignored, the signals
// that the runtime has no handler for, and most of the mask.
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

// ignore makes this process and its children ignore the signals that were inherited as ignored.
// SIGCHLD is excepted: if it is ignored, no child can be waited for.
func (s State) ignore() {
	for n := syscall.Signal(1); n <= Last; n++ {
		if s.ignored.has(n) && n != syscall.SIGCHLD {
			signal.Ignore(n)
		}
	}
}

// needed are the signals that the Go runtime needs, and the two that have one disposition.
const needed Set = 1<<(syscall.SIGKILL-1) | 1<<(syscall.SIGSTOP-1) | 1<<(syscall.SIGURG-1) |
	1<<(syscall.SIGSEGV-1) | 1<<(syscall.SIGBUS-1) | 1<<(syscall.SIGFPE-1) | 1<<(syscall.SIGILL-1) |
	1<<(syscall.SIGTRAP-1) | 1<<(syscall.SIGSYS-1) | 1<<(syscall.SIGABRT-1)

// Restore sets the dispositions of the program that this process is about to execute. The
// dispositions that the Go runtime needs stay until then: the kernel resets handlers at execve.
func (s State) Restore() {
	for n := syscall.Signal(1); n <= Last; n++ {
		var action sigaction
		if s.ignored.has(n) {
			action.handler = sigIgnore
		} else if needed.has(n) {
			continue
		}
		_ = rtSigaction(n, &action, nil) // fails for the two signals that the C library reserves
	}
}

// SetMask sets the mask of the calling thread unless to is nil. It returns the previous mask.
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

// With calls f in a thread with the given signal mask, which a child or a program that f executes
// inherits. Usually all threads have that mask; to lock one, the runtime must start another.
func With(mask Set, f func() error) error {
	if now, err := SetMask(nil); err == nil && now == mask {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := SetMask(&mask)
	if err != nil {
		return err
	}
	defer func() { _, _ = SetMask(&before) }()
	return f()
}

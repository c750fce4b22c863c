package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/cgroup"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/layout"
)

// beat is a record of the beats file, which every command of the chaos run appends to while it
// works.
type beat struct {
	Token   layout.Ticket
	At      time.Duration // on CLOCK_BOOTTIME, just before the write
	Section uint32
	Lock    uint32
}

const beatSize = int(unsafe.Sizeof(beat{}))

func decodeBeat(b []byte) (r beat) {
	_, _ = binary.Decode(b, binary.NativeEndian, &r) // b has the size of r
	return r
}

// traits are what a command of the chaos run does to escape a stop. A command has any number of
// them.
var traits = []string{
	"closes",   // closes all descriptors that it inherited
	"daemon",   // starts a new session and forks twice; the parents end
	"chains",   // runs a chain of processes: each forks the next one and ends
	"stubborn", // ignores SIGTERM
	"root",     // becomes root: its program is set-user-ID, and its wrapper runs as another user
}

// longFile, in the working directory of a host, makes the host's next command work for the time
// that it contains.
const longFile = "long"

// runBeat is a command under bakeryctl lock in the chaos run.
func runBeat(_ context.Context, args []string) error {
	has := map[string]*bool{}
	fs := flag.NewFlagSet("beat", flag.ContinueOnError)
	for _, t := range append(traits, "escapes") {
		has[t] = fs.Bool(t, false, "")
	}
	path := fs.String("beats", "", "`file` of beats")
	section := fs.Uint("section", 0, "its `number`")
	lock := fs.Uint("lock", 0, "its `number`")
	lasts := fs.Duration("for", 0, "how long to work")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *has["root"] {
		if err := errors.Join(unix.Setresgid(0, 0, 0), unix.Setresuid(0, 0, 0)); err != nil {
			return fmt.Errorf("become root: %w", err)
		}
	}
	if *has["escapes"] {
		if err := escape(); err != nil {
			return err
		}
	}
	if *has["closes"] {
		if err := unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
			return fmt.Errorf("close descriptors: %w", err)
		}
		argv := append([]string{os.Args[0], "beat"}, args...)
		return unix.Exec("/proc/self/exe", append(argv, "--closes=false", "--escapes=false"), os.Environ())
	}
	if *has["stubborn"] {
		signal.Ignore(unix.SIGTERM)
	}
	if text, err := os.ReadFile(longFile); err == nil && os.Remove(longFile) == nil {
		if *lasts, err = time.ParseDuration(string(text)); err != nil {
			return err
		}
	}
	r := &beat{Section: uint32(*section), Lock: uint32(*lock)}
	if err := r.Token.UnmarshalText([]byte(os.Getenv("BAKERY_TOKEN"))); err != nil {
		return fmt.Errorf("BAKERY_TOKEN: %w", err)
	}
	fd, err := unix.Open(*path, unix.O_WRONLY|unix.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", *path, err)
	}
	runtime.LockOSThread()
	work(fd, r, clock.Boottime.Now()+*lasts, *has["daemon"], *has["chains"])
	return nil
}

// work appends beats until the end. From the first fork on it only makes system calls: the child of
// a Go process has one thread and no runtime.
func work(fd int, r *beat, end time.Duration, daemon, chains bool) {
	if daemon {
		for range 2 {
			if fork() != 0 {
				exit()
			}
			_, _, _ = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
		}
	}
	links := chains && fork() == 0 // otherwise this process works next to the chain
	rest := unix.NsecToTimespec(int64(pulse))
	var now unix.Timespec
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&now)), 0)
		if r.At = time.Duration(now.Nano()); r.At >= end {
			exit()
		}
		_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(r)), uintptr(beatSize))
		_, _, _ = syscall.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&rest)), 0, 0)
		if links && fork() != 0 {
			exit()
		}
	}
}

// fork returns 0 in the child, and a nonzero value in the parent or if it fails.
func fork() uintptr {
	pid, _, no := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if no != 0 {
		return 1
	}
	return pid
}

func exit() { _, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0) }

// escape moves this process out of the command's cgroup. Only sabotage does that.
func escape() error {
	dirs, err := cgroup.Parents(os.Getpid())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(filepath.Dir(dirs[0]), "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}

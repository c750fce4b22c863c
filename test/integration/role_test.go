//go:build integration

package integration

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/layout"
)

// The test binary is also the command under locks, and the server of the filesystem: its first
// argument says which.
const (
	roleWorker  = "role:worker"  // JOURNAL NAME [stubborn|deaf]
	roleScatter = "role:scatter" // JOURNAL NAME HOW
	roleKnock   = "role:knock"   // SOCKET COUNT
	roleDisk    = "role:disk"    // DIRECTORY FILE
)

// play plays a role if args name one, and returns the exit code.
func play(args []string) (code int, played bool) {
	if len(args) < 2 {
		return 0, false
	}
	roles := map[string]func([]string) error{roleWorker: work, roleScatter: scatter, roleKnock: knockAll, roleDisk: serveDisk}
	role, played := roles[args[1]]
	if !played {
		return 0, false
	}
	if err := role(args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", args[1], err)
		return 1, true
	}
	return 0, true
}

// self returns the path of the test binary.
func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// sinceBoot is the clock of the entries in a journal.
func sinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// beat is how often a command writes that it is alive.
const beat = 2 * time.Millisecond

// recorder writes a command's entries to a journal. An entry is one write to a file opened for
// appending, so entries never mix.
type recorder struct {
	file  *os.File
	path  string
	name  string
	pid   string
	token layout.Ticket
}

// hostProc is the environment variable with the path of this machine's /proc, for a process in
// another pid namespace.
const hostProc = "HOST_PROC"

// begin opens the recorder of a running command and records its entry.
func begin(path, name string) (*recorder, error) {
	pid, err := os.Readlink(filepath.Join(cmp.Or(os.Getenv(hostProc), "/proc"), "self"))
	if err != nil {
		return nil, err
	}
	d := &recorder{path: path, name: name, pid: pid}
	if err := d.token.UnmarshalText([]byte(os.Getenv("BAKERY_TOKEN"))); err != nil {
		return nil, fmt.Errorf("BAKERY_TOKEN: %w", err)
	}
	if d.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	d.write("enter", 0)
	others, err := readJournal(path, "enter", "exit")
	if err != nil {
		return nil, err
	}
	for _, h := range others {
		if h.token != d.token && h.exit == 0 && h.alive() {
			d.write("other", uint64(h.pid))
		}
	}
	return d, nil
}

func (d *recorder) write(event string, value uint64) {
	_, err := fmt.Fprintf(d.file, "%s %s %s %d %d %d\n", event, d.name, d.pid, d.token, value, sinceBoot())
	if err != nil {
		panic(err)
	}
}

// work is a busy command. It ends when it reads a line or standard input ends. A stubborn one
// ignores SIGTERM, and a deaf one does not read, either.
func work(args []string) error {
	stubborn := len(args) == 3
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	d, err := begin(args[0], args[1])
	if err != nil {
		return err
	}
	done := make(chan struct{})
	if !stubborn || args[2] != "deaf" {
		go func() {
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
			close(done)
		}()
	}
	for tick := time.NewTicker(beat); ; {
		select {
		case <-done:
			d.write("exit", 0)
			return nil
		case <-stop:
			d.write("term", 0)
			if !stubborn {
				d.write("exit", 0)
				return errors.New("stopped by SIGTERM")
			}
		case <-tick.C:
			d.write("alive", 0)
		}
	}
}

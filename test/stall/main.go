// Command stall runs a command and stops all its processes at random moments, like a machine that
// is paused, swaps or is overloaded.
//
//	go run ./test/stall [--seed N] [--least 100ms] [--most 5s] [--every 3s] COMMAND [ARGUMENT...]
//
// It prints its seed at the start, and the sum of the stalls at the end. It exits with the status
// of COMMAND, or with 128 and the signal that killed it. On SIGINT and SIGTERM it continues all
// processes, passes the signal on and makes no more stalls. BAKERY_TEST_STALL tells COMMAND the
// longest stall: a test whose faults last for a part of a lease needs a lease that outlives it.
//
// The command gets a cgroup of version 2, which is frozen (group.go). If no cgroup can be created,
// the tool sends SIGSTOP and SIGCONT to all descendants (signals.go).
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// tree is the processes of a command.
type tree interface {
	attributes() *syscall.SysProcAttr // of the command's first process
	stop() error
	resume() error // continues what stop stopped
	close()
}

// stalls are the stalls of one run.
type stalls struct {
	rng         *rand.Rand
	least, most time.Duration
	every       time.Duration // mean time between two stalls

	n   int
	sum time.Duration
}

func run(args []string, errs io.Writer) int {
	flags := flag.NewFlagSet("stall", flag.ContinueOnError)
	flags.SetOutput(errs)
	seed := flags.Uint64("seed", uint64(time.Now().UnixNano())%1e6, "repeats the stalls of a run")
	s := &stalls{}
	flags.DurationVar(&s.least, "least", 100*time.Millisecond, "shortest stall")
	flags.DurationVar(&s.most, "most", 5*time.Second, "longest stall")
	flags.DurationVar(&s.every, "every", 3*time.Second, "mean time from a stall to the next")
	if err := flags.Parse(args); err != nil {
		return 64
	}
	if flags.NArg() == 0 || s.least <= 0 || s.most < s.least || s.every <= 0 {
		fmt.Fprintln(errs, "stall: want a command, and 0 < least <= most, 0 < every")
		return 64
	}
	s.rng = rand.New(rand.NewPCG(*seed, 0))
	fmt.Fprintf(errs, "stall: seed %d\n", *seed)
	begin := time.Now()
	status, err := s.command(flags.Args())
	if err != nil {
		fmt.Fprintf(errs, "stall: %v\n", err)
		return 1
	}
	fmt.Fprintf(errs, "stall: seed %d, %d stalls of %v in all, in %v\n",
		*seed, s.n, s.sum.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// command runs a command under stalls to its end.
func (s *stalls) command(argv []string) (unix.WaitStatus, error) {
	t, err := newTree()
	if err != nil {
		return 0, err
	}
	defer t.close()
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	defer signal.Stop(signals)
	p, err := os.StartProcess(program, argv, &os.ProcAttr{
		Env:   append(os.Environ(), "BAKERY_TEST_STALL="+s.most.String()),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   t.attributes(),
	})
	if err != nil {
		return 0, err
	}
	ended := make(chan unix.WaitStatus, 1)
	go func() { ended <- reap(p.Pid) }()
	return s.stall(t, p, ended, signals)
}

// reap waits for a child, and for orphans that became children of this process.
func reap(pid int) unix.WaitStatus {
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, 0, nil)
		if got == pid || err != nil && !errors.Is(err, unix.EINTR) {
			return status
		}
	}
}

// stall stops and resumes the tree of a process until that ends.
func (s *stalls) stall(t tree, p *os.Process, ended <-chan unix.WaitStatus, signals <-chan os.Signal) (unix.WaitStatus, error) {
	for {
		select {
		case status := <-ended:
			return status, nil
		case got := <-signals:
			return passOn(p, got, ended, signals), nil
		case <-time.After(time.Duration(2 * s.rng.Float64() * float64(s.every))):
		}
		length := s.length()
		begin := time.Now()
		err := t.stop()
		var got os.Signal
		select {
		case got = <-signals:
		case <-time.After(length):
		}
		err = errors.Join(err, t.resume())
		s.n++
		s.sum += time.Since(begin)
		switch {
		case got != nil:
			return passOn(p, got, ended, signals), nil
		case err != nil:
			_ = p.Kill()
			<-ended
			return 0, err
		}
	}
}

// length draws the length of a stall: short ones are more frequent than long ones.
func (s *stalls) length() time.Duration {
	return time.Duration(float64(s.least) * math.Pow(float64(s.most)/float64(s.least), s.rng.Float64()))
}

// passOn passes signals on to a process until it ends.
func passOn(p *os.Process, got os.Signal, ended <-chan unix.WaitStatus, signals <-chan os.Signal) unix.WaitStatus {
	for {
		_ = p.Signal(got)
		select {
		case got = <-signals:
		case status := <-ended:
			return status
		}
	}
}

func newTree() (tree, error) {
	if g, err := newGroup(); err == nil {
		return g, nil
	}
	return newDescendants()
}

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/acquire"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
)

// terminal is a pseudo terminal with a process that leads its session.
type terminal struct {
	*wrapper
	master *os.File

	mu     sync.Mutex // guards screen
	screen strings.Builder
}

// onTerminal starts a process whose standard streams are a terminal of its own.
func onTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	return onTerminalBy(t, nil, args...)
}

// onTerminalBy starts the process by another program, which leads the session.
func onTerminalBy(t *testing.T, by []string, args ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no pseudo terminals here, and CI skips nothing: ", err)
		}
		t.Skip("SKIP: no pseudo terminals here: ", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	slave := openSlave(t, master)
	defer func() { _ = slave.Close() }()
	x := &terminal{wrapper: prepare(t, args...), master: master}
	if len(by) > 0 {
		exe := x.cmd.Path
		if x.cmd.Path, err = exec.LookPath(by[0]); err != nil {
			t.Fatal(err)
		}
		x.cmd.Args = slices.Concat(by, []string{exe}, args)
	}
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = slave, slave, slave
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	x.start()
	read := make(chan struct{})
	go func() {
		defer close(read)
		in := bufio.NewReader(master)
		for {
			b, err := in.ReadByte()
			if err != nil {
				return // the terminal is not open any more
			}
			x.mu.Lock()
			x.screen.WriteByte(b)
			x.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = master.Close()
		<-read
	})
	return x
}

func openSlave(t *testing.T, master *os.File) *os.File {
	t.Helper()
	raw, err := master.SyscallConn()
	require.NoError(t, err)
	var number uint32
	var unlockErr, numberErr error
	err = raw.Control(func(fd uintptr) {
		unlockErr = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		number, numberErr = unix.IoctlGetUint32(int(fd), unix.TIOCGPTN)
	})
	require.NoError(t, errors.Join(err, unlockErr, numberErr))
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	return slave
}

func (x *terminal) shown() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.screen.String()
}

func (x *terminal) await(text string) {
	x.t.Helper()
	x.t.Cleanup(func() {
		if x.t.Failed() {
			x.t.Logf("the terminal has %q", x.shown())
		}
	})
	eventually(x.t, fmt.Sprintf("%q on the terminal", text), func() bool { return strings.Contains(x.shown(), text) })
}

func (x *terminal) press(keys string) {
	x.t.Helper()
	if _, err := x.master.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

const ctrlC, ctrlS, ctrlQ = "\x03", "\x13", "\x11"

// asCounter is the argv[0] that makes the test binary count its SIGINTs.
const asCounter = "bakeryctl.counter"

// countInterrupts prints the number of SIGINTs at each one, and ends on SIGUSR1. With leave it
// first makes itself the foreground process group of the terminal, as a shell does.
func countInterrupts(leave bool) {
	got := make(chan os.Signal, 100)
	signal.Notify(got, syscall.SIGINT, syscall.SIGUSR1)
	if leave {
		signal.Ignore(syscall.SIGTTOU) // sent to a background process for that
		err := unix.Setpgid(0, 0)
		if err := errors.Join(err, unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, unix.Getpid())); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	fmt.Println("ready")
	for n := 0; ; {
		if <-got == syscall.SIGUSR1 {
			fmt.Printf("all %d.\n", n)
			os.Exit(5)
		}
		n++
		fmt.Printf("int %d.\n", n)
	}
}

func counter(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), asCounter)
	require.NoError(t, os.Symlink(exe, link))
	return link
}

func TestInterrupt_CtrlC_ReachesTheCommandOnce(t *testing.T) {
	const times = 10
	for _, group := range [][]string{nil, {"leave"}} {
		t.Run(strings.Join(group, " "), func(t *testing.T) {
			b := serve(t, holding)
			x := onTerminal(t, append([]string{"lock", "--socket", b.Socket, "x", "--", counter(t)}, group...)...)
			x.await("ready")
			for n := 1; n <= times; n++ {
				x.press(ctrlC)
				x.await(fmt.Sprintf("int %d.", n))
			}
			// Signals that the wrapper forwarded before have arrived by then.
			x.signal(syscall.SIGUSR1)
			x.await(fmt.Sprintf("all %d.", times))
			x.exits(5)
		})
	}
}

func TestInterrupt_CommandInItsOwnForegroundGroup_IsForwarded(t *testing.T) {
	b := serve(t, holding)
	x := onTerminal(t, "lock", "--socket", b.Socket, "x", "--", counter(t), "leave")
	x.await("ready")
	x.signal(syscall.SIGINT) // only to the wrapper
	x.await("int 1.")
	x.signal(syscall.SIGUSR1)
	x.await("all 1.")
	x.exits(5)
}

// The terminal did not send the signal.
func TestInterrupt_SentToTheWrapperInTheForeground_IsForwarded(t *testing.T) {
	b := serve(t, holding)
	x := onTerminal(t, "lock", "--socket", b.Socket, "x", "--", counter(t))
	x.await("ready")
	x.signal(syscall.SIGINT)
	x.await("int 1.")
	x.press(ctrlC)
	x.await("int 2.")
	x.signal(syscall.SIGUSR1)
	x.await("all 2.")
	x.exits(5)
}

// The terminal would stop the wrapper, which would then acquire and keep the lock.
func TestWaitLine_BackgroundAndToStop_IsNotWritten(t *testing.T) {
	t.Parallel()
	waiting, release := make(chan int), make(chan struct{})
	b := serve(t, func(x *exchange) {
		x.Wait(2, time.Minute)
		waiting <- x.PID
		<-release
		holding(x)
	})
	ran := filepath.Join(t.TempDir(), "ran")
	x := onTerminalBy(t, []string{"bash", "-c", `set -m; stty tostop; (exec -a "$0" "$@") & wait`, asItself},
		"lock", "--socket", b.Socket, "x", "--", "sh", "-c", `echo >"$0"`, ran)
	pid := <-waiting
	time.Sleep(2 * acquire.WaitSilent) // enough time for the line
	require.NotEqual(t, "T", state(pid), "the wrapper is stopped")
	close(release)
	eventually(t, "the command to run", func() bool { _, err := os.Stat(ran); return err == nil })
	x.exits(0)
}

func TestInterrupt_CtrlCWhileWaiting_EndsTheWait(t *testing.T) {
	t.Parallel()
	b := serve(t, func(x *exchange) {
		x.Send(`{"event":"waiting","ahead":2,"queued":1}`)
		<-x.Gone
	})
	x := onTerminal(t, "lock", "--socket", b.Socket, "x", "--", "echo", "ran")
	x.await("bakeryctl: waiting for \"x\": 2 ahead")
	x.press(ctrlC)
	x.exits(130)
	require.NotContains(t, x.shown(), "ran", "the command ran")
	b.AwaitRelease()
}

func TestWaitLine_QueueMoves_IsUpdatedAndRemoved(t *testing.T) {
	t.Parallel()
	first, second := make(chan struct{}), make(chan struct{})
	b := serve(t, func(x *exchange) {
		x.Send(`{"event":"waiting","ahead":2,"queued":1}`)
		<-first
		x.Send(`{"event":"waiting","ahead":1,"queued":1}`)
		<-second
		holding(x)
	})
	x := onTerminal(t, "lock", "--socket", b.Socket, "x", "--", "echo", "ran")
	const clear = "\r\x1b[K"
	x.await(clear + `bakeryctl: waiting for "x": 2 ahead`)
	close(first)
	x.await(clear + `bakeryctl: waiting for "x": 1 ahead`)
	close(second)
	x.exits(0)
	x.await("1 ahead" + clear + "ran\r\n")
}

func TestWaitLine_Blocker_IsShownInOneRow(t *testing.T) {
	t.Parallel()
	moved, release := make(chan struct{}), make(chan struct{})
	b := serve(t, func(x *exchange) {
		x.Wait(2, time.Minute)
		<-moved
		x.Wait(1, time.Minute)
		<-release
		holding(x)
	})
	var asked atomic.Int32
	blocked(b, func() string { return fmt.Sprintf("held by db%d (host 1), pid 2234", asked.Add(1)) })
	x := onTerminal(t, "lock", "--socket", b.Socket, "x", "--", "echo", "ran")
	const clear = "\r\x1b[K"
	x.await(clear + `bakeryctl: waiting for "x": held by db1 (host 1), pid 2234; 2 ahead`)
	raw, err := x.master.SyscallConn()
	require.NoError(t, err)
	var sizeErr error
	err = raw.Control(func(fd uintptr) {
		sizeErr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 51})
	})
	require.NoError(t, errors.Join(err, sizeErr))
	close(moved)
	x.await(clear + `bakeryctl: waiting for "x": 1 ahead`)                // the holder has gone
	x.await(clear + `bakeryctl: waiting for "x": held by db...; 1 ahead`) // 50 columns
	close(release)
	x.exits(0)
	x.await("1 ahead" + clear + "ran\r\n")
}

func TestWaitLine_ShortWait_ShowsNothing(t *testing.T) {
	b := serve(t, func(x *exchange) {
		x.Send(`{"event":"waiting","ahead":2,"queued":1}`)
		holding(x)
	})
	for slow := true; slow; { // repeat if the wait was long
		began := time.Now()
		x := onTerminal(t, "lock", "--socket", b.Socket, "x", "--", "echo", "ran")
		x.await("ran\r\n")
		slow = time.Since(began) >= acquire.WaitSilent
		require.True(t, slow || x.shown() == "ran\r\n", "%q", x.shown())
	}
}

func TestWaitLine_Warning_GoesAboveTheLine(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	b := serve(t, func(x *exchange) {
		x.Wait(2, time.Minute)
		x.Send(`{"event":"warning","message":"process 5 holds it"}`)
		<-release
		holding(x)
	})
	x := onTerminal(t, "lock", "--socket", b.Socket, "x", "--", "echo", "ran")
	const clear, line = "\r\x1b[K", `bakeryctl: waiting for "x": 2 ahead`
	x.await("bakeryctl: warning: process 5 holds it\r\n")
	x.await(line)
	close(release)
	x.exits(0)
	x.await(line + clear + "ran\r\n")
}

// Ctrl-S has stopped the terminal.
func TestWaitLine_WarningToAStoppedTerminal_DelaysNothing(t *testing.T) {
	t.Parallel()
	stopped := make(chan struct{})
	ran := filepath.Join(t.TempDir(), "ran")
	b := serve(t, func(x *exchange) {
		x.Wait(2, time.Minute)
		<-stopped
		x.Send(`{"event":"warning","message":"process 5 holds it"}`)
		holding(x)
	})
	x := onTerminal(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", `echo >"$0"; read line`, ran)
	x.await("2 ahead")
	slave := openSlave(t, x.master)
	x.press(ctrlS)
	eventually(t, "the terminal to stop", func() bool { return !term.Writable(slave) })
	close(stopped)
	eventually(t, "the command to run", func() bool { _, err := os.Stat(ran); return err == nil })
	x.press(ctrlQ)
	eventually(t, "the terminal to continue", func() bool { return term.Writable(slave) })
	_ = slave.Close()
	x.press("\n")
	x.exits(0)
	require.NotContains(t, x.shown(), "warning", "the warning came after the wait")
}

// TestLock_GivesUpOnAStoppedTerminal_Exits: Ctrl-S has stopped the terminal.
func TestLock_GivesUpOnAStoppedTerminal_Exits(t *testing.T) {
	t.Parallel()
	stopped := make(chan struct{})
	b := serve(t, func(x *exchange) {
		x.Wait(2, time.Minute)
		<-stopped
		x.Refuse("timeout", "no", "")
	})
	x := onTerminal(t, "lock", "--socket", b.Socket, "-w", "1", "-E", "9", "x", "--", "true")
	x.await("2 ahead")
	slave := openSlave(t, x.master)
	x.press(ctrlS)
	eventually(t, "the terminal to stop", func() bool { return !term.Writable(slave) })
	close(stopped)
	x.exits(9)
	_ = slave.Close()
}

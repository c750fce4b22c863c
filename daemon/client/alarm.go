package client

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// boottime returns the time since the machine booted. Unlike the clock of Go's timers it goes on while the
// machine sleeps, as a lease does.
func boottime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic("client: no CLOCK_BOOTTIME: " + err.Error()) // every Linux that Go runs on has it
	}
	return time.Duration(now.Nano())
}

// alarm rings at a moment of boottime.
type alarm struct {
	file *os.File
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create timer: %w", err)
	}
	return &alarm{file: os.NewFile(uintptr(fd), "timerfd")}, nil
}

// set moves the moment to at, whether or not the alarm has rung.
func (a *alarm) set(at time.Duration) error {
	raw, err := a.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("set timer: %w", err)
	}
	// A moment of zero would turn the timer off.
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(at, 1)))}
	var setErr error
	err = raw.Control(func(fd uintptr) { setErr = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil) })
	if err == nil {
		err = setErr
	}
	if err != nil {
		return fmt.Errorf("set timer: %w", err)
	}
	return nil
}

// wait returns nil when the alarm rings, an error when it was closed.
func (a *alarm) wait() error {
	var rings [8]byte
	_, err := a.file.Read(rings[:])
	return err
}

func (a *alarm) close() { _ = a.file.Close() }

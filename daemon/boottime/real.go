//go:build !sim

package boottime

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Simulated tells whether time is that of a simulation.
const Simulated = false

// Now is the time on CLOCK_BOOTTIME.
func Now() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic("boottime: no CLOCK_BOOTTIME: " + err.Error()) // every Linux that Go runs on has it
	}
	return time.Duration(now.Nano())
}

// Alarm rings at a moment, also if the machine slept until then or beyond.
type Alarm struct {
	file *os.File
}

// NewAlarm returns an alarm that is yet to be set.
func NewAlarm() (*Alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create timer: %w", err)
	}
	return &Alarm{file: os.NewFile(uintptr(fd), "timerfd")}, nil
}

// Set moves the moment to at, whether or not the alarm has rung. What is over
// rings at once. It fails only on an alarm that was closed.
func (a *Alarm) Set(at time.Duration) error {
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

// Wait returns nil when the alarm rings, and an error once it was closed.
func (a *Alarm) Wait() error {
	var rings [8]byte
	_, err := a.file.Read(rings[:])
	return err
}

// Close ends every Wait.
func (a *Alarm) Close() { _ = a.file.Close() }

package clock

import (
	"cmp"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Boottime is CLOCK_BOOTTIME of this machine.
var Boottime Clock = boottime{}

type boottime struct{}

func (boottime) Now() time.Duration {
	var now unix.Timespec
	// A raw call, because it never blocks: then the scheduler need not know of it.
	_, _, err := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&now)), 0)
	if err != 0 {
		panic("clock: no CLOCK_BOOTTIME: " + err.Error()) // every Linux that Go runs on has it
	}
	return time.Duration(now.Nano())
}

func (boottime) NewAlarm() (Alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create timer: %w", err)
	}
	return timer{os.NewFile(uintptr(fd), "timerfd")}, nil
}

// timer is a timerfd.
type timer struct{ file *os.File }

func (t timer) Set(at time.Duration) error {
	// A time of zero would disarm the timer.
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(at, 1)))}
	var setErr error
	raw, err := t.file.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { setErr = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil) })
	}
	if err = cmp.Or(err, setErr); err != nil {
		return fmt.Errorf("set timer: %w", err)
	}
	return nil
}

func (t timer) Wait() error {
	var rings [8]byte
	_, err := t.file.Read(rings[:])
	return err
}

func (t timer) Close() { _ = t.file.Close() }

// A spin blocks a thread.
const (
	spinLimit   = time.Millisecond // exclusive
	timerSlack  = 50 * time.Microsecond
	maxSpinners = 8
)

var spinning atomic.Int32

func (boottime) Spin(d time.Duration) bool {
	if d >= spinLimit {
		return false
	}
	defer spinning.Add(-1)
	if spinning.Add(1) > maxSpinners {
		return false
	}
	ts := unix.NsecToTimespec(max(1, d-timerSlack).Nanoseconds())
	_ = unix.Nanosleep(&ts, nil) // a signal ends it early, which does no harm
	return true
}

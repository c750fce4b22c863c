//go:build !linux

package clock

import (
	"errors"
	"time"
)

// Boottime has no alarms and stands still: bakeryd runs on Linux only.
var Boottime Clock = boottime{}

type boottime struct{}

func (boottime) Now() time.Duration { return 0 }

func (boottime) NewAlarm() (Alarm, error) { return nil, errors.ErrUnsupported }

func (boottime) Spin(time.Duration) bool { return false }

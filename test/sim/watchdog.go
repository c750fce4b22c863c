package sim

import (
	"time"

	"github.com/bakeryd/bakeryd/daemon/watchdog"
)

// machineWatchdog is a machine's watchdog, which runs even while the machine is paused.
type machineWatchdog struct {
	m       *machine
	timeout time.Duration
	timer   *time.Timer
	armed   bool
}

// watchdogHandle is a process's handle of it.
type watchdogHandle struct {
	*machineWatchdog
	p *process
}

var _ watchdog.Device = watchdogHandle{}

func (p *process) openWatchdog(_ string, want time.Duration) (watchdog.Device, error) {
	d := p.m.watchdog
	d.timeout, d.armed = want, true
	if d.timer == nil {
		d.timer = time.AfterFunc(want, d.fires)
	}
	d.timer.Reset(want)
	return watchdogHandle{d, p}, nil
}

// fires resets the machine.
func (d *machineWatchdog) fires() {
	if !d.armed || !d.m.up {
		return
	}
	d.m.w.count("watchdog fired")
	d.m.powerCut()
	d.m.w.after(d.m.rng, 200*time.Millisecond, 2*time.Second, d.m.boot)
}

func (d *machineWatchdog) stop() {
	d.armed = false
	if d.timer != nil {
		d.timer.Stop()
	}
}

func (l watchdogHandle) Timeout() time.Duration { return l.timeout }

func (l watchdogHandle) Feed() error {
	if l.p.alive && l.armed && !l.m.paused {
		l.timer.Reset(l.timeout)
	}
	return nil
}

func (l watchdogHandle) Disarm() error {
	if l.p.alive {
		l.stop()
	}
	return nil
}

func (l watchdogHandle) Leave() error { return nil }

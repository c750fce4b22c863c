package sim

import (
	"time"

	"github.com/bakeryd/bakeryd/daemon/watchdog"
)

// dog is the watchdog of a machine, which goes on while that is paused.
type dog struct {
	m       *machine
	timeout time.Duration
	timer   *time.Timer
	armed   bool
}

// leash is a dog as a process has it open.
type leash struct {
	*dog
	p *process
}

var _ watchdog.Device = leash{}

func (p *process) openDog(_ string, want time.Duration) (watchdog.Device, error) {
	d := p.m.dog
	d.timeout, d.armed = want, true
	if d.timer == nil {
		d.timer = time.AfterFunc(want, d.fires)
	}
	d.timer.Reset(want)
	return leash{d, p}, nil
}

// fires resets the machine.
func (d *dog) fires() {
	if !d.armed || !d.m.up {
		return
	}
	d.m.w.count("watchdog fired")
	d.m.powerCut()
	d.m.w.after(d.m.rng, 200*time.Millisecond, 2*time.Second, d.m.boot)
}

func (d *dog) stop() {
	d.armed = false
	if d.timer != nil {
		d.timer.Stop()
	}
}

func (l leash) Timeout() time.Duration { return l.timeout }

func (l leash) Feed() error {
	if l.p.alive && l.armed && !l.m.paused {
		l.timer.Reset(l.timeout)
	}
	return nil
}

func (l leash) Disarm() error {
	if l.p.alive {
		l.stop()
	}
	return nil
}

func (l leash) Leave() error { return nil }

package lease

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/layout"
)

// shared is a device of two hosts. In an outage its IO fails near the end of its budget, and later IO takes
// a quarter of that.
type shared struct {
	rigs     []*rig
	now      time.Duration
	from, to time.Duration // of the outage
	rng      *rand.Rand
	takes    map[*rig]time.Duration // how long the IO under way takes
	fences   int
}

func twoHosts(t *testing.T, rng *rand.Rand, after time.Duration) *shared {
	t.Helper()
	d := &shared{now: time.Hour, from: never, to: never, rng: rng, takes: map[*rig]time.Duration{}}
	for id := 1; id <= 2; id++ {
		self := self
		self.MachineID = machineID(byte(id))
		r := newRig(t, Config{ID: id, Policy: layout.PolicyFence, Self: self,
			Times: timing.Times{Lease: times.Lease, FenceAfter: after}})
		r.m.cfg.Incarnation = func() uint64 { return uint64(100 * id) }
		if r.now = d.now; id > 1 {
			r.table = d.rigs[0].table
		}
		d.rigs = append(d.rigs, r)
		r.start()
		d.run(d.now + 6*time.Second + time.Duration(rng.Int64N(int64(after/3))))
		require.True(t, r.m.Ready())
	}
	return d
}

// run carries out the actions of both machines until a time, in the order of their times.
func (d *shared) run(until time.Duration) {
	for {
		var next *rig
		at := never
		for _, r := range d.rigs {
			if x := d.due(r); x < at {
				next, at = r, x
			}
		}
		if at > until {
			d.now = until
			return
		}
		d.step(next, at)
	}
}

// requested reports which IO a machine has requested, and whether that fails.
func (d *shared) requested(r *rig) (reads, writes, fails bool) {
	_, reads = got[ReadTable](r)
	_, writes = got[Write](r)
	return reads, writes, (reads || writes) && r.now >= d.from && r.now < d.to
}

// due returns when the IO of a machine returns, or when it is to be woken.
func (d *shared) due(r *rig) time.Duration {
	reads, writes, fails := d.requested(r)
	switch w, ok := got[Wait](r); {
	case (reads || writes) && r.now < d.from:
		return r.now
	case reads || writes:
		if part := int64(r.times.Budget() / 4); d.takes[r] == 0 {
			d.takes[r] = time.Duration(1 + d.rng.Int64N(part))
			if fails {
				d.takes[r] += r.times.Budget() - time.Duration(part)
			}
		}
		return r.now + d.takes[r]
	case ok:
		return max(r.now, w.Until)
	}
	return never
}

func (d *shared) step(r *rig, at time.Duration) {
	reads, writes, fails := d.requested(r)
	delete(d.takes, r)
	switch r.now = at; {
	case reads && fails:
		r.out = r.m.ReadFailed(r.now)
	case reads:
		r.read(0)
	case writes && fails:
		r.out = r.m.WriteFailed(r.now)
	case writes:
		r.write(0)
	default:
		r.out = r.m.Tick(r.now)
	}
	if _, ok := got[Fence](r); ok {
		d.fences++
	}
}

// look has each idle machine read the table, as locks that wait for another host do.
func (d *shared) look() {
	for _, r := range d.rigs {
		if reads, writes, _ := d.requested(r); !reads && !writes {
			r.now = d.now
			r.out = r.m.Refresh(r.now)
		}
	}
}

// TestSteady_ShortOutageOfTheDevice_FencesNobody: the host that reads first after it may have renewed in
// time, while the other one has to wait for its next attempt.
func TestSteady_ShortOutageOfTheDevice_FencesNobody(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	after := layout.MinFenceAfter(times.Lease)
	for range 3000 {
		d := twoHosts(t, rng, after)
		d.from = d.now + time.Duration(rng.Int64N(int64(after/3)))
		lasts := after/4 + time.Duration(rng.Int64N(int64(after/2)))
		d.to = d.from + lasts
		for end := d.to + 2*after; d.now < end; d.look() {
			d.run(d.now + after/30)
		}
		require.Zero(t, d.fences, "an outage of %v", lasts)
	}
}

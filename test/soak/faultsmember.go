package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/clock"
	status "github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/test/fusetest"
)

// Faults of one disk of several, for all hosts. The first host has no faults of its own: a majority
// of the disks answers it all the time. It must keep its lease and its locks.

// memberFault is one of these faults.
type memberFault struct {
	name  string
	least float64 // shortest duration in leases; the longest is 3
	state fusetest.State
	shows func(status.Disk) bool // reports whether a host's status shows the fault
}

var memberFaults = []memberFault{
	{"disk-fail", 0.1, fusetest.State{Fail: fusetest.All}, func(d status.Disk) bool { return d.State == "down" }},
	{"disk-hang", 1.2, fusetest.State{Hang: fusetest.All}, func(d status.Disk) bool { return d.Behind > 0 }},
	{"disk-slow", 0.5, fusetest.State{Slow: fusetest.All, Delay: 50 * time.Millisecond}, func(d status.Disk) bool { return d.IO.Write.MaxUS >= 50_000 }},
}

func (s *soak) several() bool { return len(s.disks) > 1 }

// calm reports whether the host has no faults of its own.
func (h *host) calm() bool { return h.s.several() && h.id == 1 }

// troubleDisks makes one disk after the other faulty until now ends. Before the next one, the calm
// host uses the disk again.
func (s *soak) troubleDisks(ctx, now context.Context) {
	random := rand.New(rand.NewPCG(s.o.seed, 999))
	var deck []int
	for pauseFor(now, upTo(random, s.o.lease)) == nil {
		if len(deck) == 0 {
			deck = random.Perm(len(memberFaults))
		}
		i, f := random.IntN(len(s.disks)), memberFaults[deck[0]]
		deck = deck[1:]
		s.report.inject(f.name)
		s.logf("disk %d: %s", i+1, f.name)
		since, err := s.troubleDisk(ctx, random, i, f)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.violate("%q of disk %d: %v", f.name, i+1, err)
			return
		}
		s.report.recover(f.name, time.Since(since))
		s.logf("disk %d: back in %v", i+1, time.Since(since).Round(time.Millisecond))
	}
}

// troubleDisk makes a disk faulty for a drawn duration, and waits until the calm host has seen the
// fault and its end. It returns when the fault ended.
func (s *soak) troubleDisk(ctx context.Context, random *rand.Rand, i int, f memberFault) (since time.Time, err error) {
	faults := &s.disks[i].faults
	calm := s.hosts[0]
	faults.Set(f.state)
	defer faults.Repair()
	if err := calm.awaitDisk(ctx, i, "is faulty", f.shows); err != nil {
		return since, err
	}
	if err := pauseFor(ctx, calm.leases(random, f.least, 3)); err != nil {
		return since, err
	}
	faults.Repair()
	return time.Now(), calm.awaitDisk(ctx, i, "is used again", func(d status.Disk) bool { return d.Up() && d.Behind == 0 })
}

// awaitDisk waits until the host reports a disk with a condition.
func (h *host) awaitDisk(ctx context.Context, i int, what string, holds func(status.Disk) bool) error {
	var last status.Disk
	err := until(ctx, patience, fmt.Sprintf("host %d shows that disk %d %s", h.id, i+1, what), func() bool {
		var r status.Report
		if h.client().Call(ctx, http.MethodGet, "/v1/status", nil, &r) != nil || i >= len(r.Disks) {
			return false
		}
		last = r.Disks[i]
		return holds(last)
	})
	if err != nil {
		return fmt.Errorf("%w: %+v", err, last)
	}
	return nil
}

// leaseLost is what bakeryd logs.
const leaseLost = "lease lost, every hold is over"

// checkCalm checks that the calm host has kept its lease, unless the machine stood still.
func (s *soak) checkCalm() {
	h, now := s.hosts[0], clock.Boottime.Now()
	if !h.calm() {
		return
	}
	if n := strings.Count(fileFrom(h.log, 0), leaseLost); n > h.lost {
		h.lost = n
		s.store.with(func(j *judge) {
			if !j.stoodStill(h.id, now-2*s.o.lease, now) {
				s.violate("host %d lost its lease although a majority of the disks answered: %s%s", h.id, lastLines(h.log, 5), s.evidence(now))
			}
		})
	}
}

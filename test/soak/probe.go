package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/clock"
)

// The probe reads the calm host's paths to all disks, in a process of its own: nothing of bakeryd is between
// it and the loop devices. A violation of the calm host shows what the probe saw. It excuses nothing.

const (
	probeEvery = 20 * time.Millisecond
	probeSlow  = 50 * time.Millisecond // what takes less is not noted
)

// probed is a read of the probe that was slow. On disk 0 it is a time in which the probe did not run.
type probed struct {
	Disk  int           `json:"disk"` // from 1
	Began time.Duration `json:"began"`
	Took  time.Duration `json:"took,omitzero"` // 0: it had not returned
}

func (p probed) end() time.Duration {
	if p.Took == 0 {
		return 1<<63 - 1
	}
	return p.Began + p.Took
}

// runProbe reads devices until it is killed, and writes what is slow to its output.
func runProbe(ctx context.Context, devices []string) error {
	slow := make(chan probed, 1000)
	for i, path := range devices {
		dev, err := blockdev.Open(path, blockdev.Options{ReadOnly: true})
		if err != nil {
			return err
		}
		buf := blockdev.Alloc(dev.Info().LogicalBlock)
		go probe(slow, i+1, func() { _ = dev.Read(buf, 0) })
	}
	go probe(slow, 0, func() {})
	out := json.NewEncoder(os.Stdout)
	for {
		select {
		case p := <-slow:
			if err := out.Encode(p); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func probe(slow chan<- probed, disk int, read func()) {
	for {
		began := clock.Boottime.Now()
		if disk == 0 {
			time.Sleep(probeEvery)
			began += probeEvery
		}
		waits := time.AfterFunc(probeSlow, func() { slow <- probed{Disk: disk, Began: began} })
		read()
		waits.Stop()
		if took := clock.Boottime.Now() - began; took >= probeSlow {
			slow <- probed{Disk: disk, Began: began, Took: took}
		}
		if disk != 0 {
			time.Sleep(probeEvery)
		}
	}
}

// probeLog is what the probe writes.
func (s *soak) probeLog() string { return filepath.Join(s.dir, "probe", "log") }

// startProbe starts the probe of the calm host's paths.
func (s *soak) startProbe() (stop func(), err error) {
	argv := []string{s.self, "probe"}
	for _, p := range s.hosts[0].paths {
		argv = append(argv, p.loop)
	}
	dir := filepath.Dir(s.probeLog())
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	p, err := start(dir, s.probeLog(), nil, argv...)
	if err != nil {
		return nil, err
	}
	return func() {
		_ = unix.Kill(p.pid(), unix.SIGKILL)
		select {
		case <-p.ended:
		case <-time.After(patience): // a disk hangs
		}
	}, nil
}

// parseProbe returns the reads of a probe's log, without the notes on those that returned later.
func parseProbe(log []byte) (reads []probed) {
	for lines := bufio.NewScanner(bytes.NewReader(log)); lines.Scan(); {
		var p probed
		if json.Unmarshal(lines.Bytes(), &p) != nil {
			continue
		}
		reads = slices.DeleteFunc(reads, func(q probed) bool { return q.Disk == p.Disk && q.Began == p.Began })
		reads = append(reads, p)
	}
	return reads
}

// silence returns the part of an interval in which fewer than a majority of the disks answered the probe.
func silence(reads []probed, disks int, from, to time.Duration) (silent time.Duration) {
	const step = 5 * time.Millisecond
	for at := from; at < to; at += step {
		answer := disks
		for disk := 1; disk <= disks; disk++ {
			if slices.ContainsFunc(reads, func(p probed) bool { return p.Disk == disk && p.Began+probeSlow <= at && at < p.end() }) {
				answer--
			}
		}
		if answer <= disks/2 {
			silent += step
		}
	}
	return silent
}

// evidence describes what the probe and the servers of the disks saw in the two leases before a time.
func (s *soak) evidence(at time.Duration) string {
	log, err := os.ReadFile(s.probeLog())
	if err != nil {
		return err.Error()
	}
	from, began := at-2*s.o.lease, time.Now().Add(at-2*s.o.lease-clock.Boottime.Now())
	reads := slices.DeleteFunc(parseProbe(log), func(p probed) bool { return p.Began >= at || p.end() <= from })
	var text strings.Builder
	fmt.Fprintf(&text, "\n  in the lease before it the probe had no answer of a majority of the disks for %v, in the one before for %v",
		silence(reads, len(s.disks), at-s.o.lease, at), silence(reads, len(s.disks), from, at-s.o.lease))
	for disk := range len(s.disks) + 1 {
		n, most, last := 0, time.Duration(0), time.Duration(0)
		for _, p := range reads {
			if p.Disk == disk {
				n, most, last = n+1, max(most, min(p.end(), at)-p.Began), p.Began-at
			}
		}
		what := "the probe did not run"
		if disk > 0 {
			what = fmt.Sprintf("disk %d: slow reads of the probe", disk)
		}
		fmt.Fprintf(&text, "\n  %s: %d of %v or more, at most %v, the last one began %v after it", what, n, probeSlow, most.Round(time.Millisecond), last.Round(time.Millisecond))
		if disk > 0 {
			n, most := s.hosts[0].paths[disk-1].file.Slow(began, began.Add(2*s.o.lease))
			fmt.Fprintf(&text, "; slow requests that its server took up: %d, at most %v, %d hang now",
				n, most.Round(time.Millisecond), s.disks[disk-1].faults.Hanging())
		}
	}
	return text.String()
}

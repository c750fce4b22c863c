package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/client"
)

// close ends all hosts and checks what they leave.
func (s *soak) close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	if err := s.readSectionLogs(); err != nil {
		return err
	}
	s.checkCalm()
	s.readLogs()
	if s.chaos != nil {
		s.chaos.finish(ctx)
	} else if err := s.measureLeaks(ctx); err != nil {
		return err
	}
	for _, h := range s.hosts {
		for _, p := range h.paths {
			if n := p.file.WroteTwice(); n > 0 {
				s.violate("host %d wrote %d times to where a write of its own was under way", h.id, n)
			}
		}
	}
	var ends sync.WaitGroup
	for _, h := range s.hosts {
		ends.Go(func() {
			if code, err := h.end(ctx, unix.SIGTERM); err != nil || code != 0 {
				s.violate("bakeryd of host %d ended with code %d: %v", h.id, code, err)
			}
		})
	}
	ends.Wait()
	out, code, err := output(ctx, append([]string{s.bakeryctl, "check"}, s.loops()...)...)
	s.report.checked(out)
	if code != 0 || strings.Contains(out, "warning: ") {
		s.violate("bakeryctl check: %v: %s", err, out)
	}
	if pids := processesIn(s.dir, true); len(pids) > 0 {
		var said []string
		for _, pid := range pids {
			said = append(said, fmt.Sprintf("%d (%s)", pid, program(pid)))
		}
		s.violate("processes are left: %s", strings.Join(said, ", "))
	}
	for _, dev := range s.allLoops() {
		if err := detach(ctx, dev); err != nil {
			return err
		}
	}
	if err := until(ctx, patience, "all loop devices end", func() bool { return len(attachedBelow(s.dir)) == 0 }); err != nil {
		s.violate("%v: %v", err, attachedBelow(s.dir))
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// loops returns the soak's own loop device of each disk.
func (s *soak) loops() (devs []string) {
	for _, d := range s.disks {
		devs = append(devs, d.own.loop)
	}
	return devs
}

func (s *soak) allLoops() []string {
	devs := s.loops()
	for _, h := range s.hosts {
		for _, p := range h.paths {
			devs = append(devs, p.loop)
		}
	}
	return devs
}

// readSectionLogs checks the clients' logs against each other.
func (s *soak) readSectionLogs() error {
	paths, err := filepath.Glob(filepath.Join(s.dir, "diaries", "*"))
	if err != nil {
		return err
	}
	parts, failed, err := readSectionLogs(paths)
	if err != nil {
		return err
	}
	var checked porcupineReport
	var found []string
	s.store.with(func(j *judge) {
		checked, found = checkSectionLogs(parts, j.stoodStill, s.drawHistory)
		for _, e := range parts {
			if s.hosts[e.Host-1].calm() && e.How != endWell && !j.stoodStill(e.Host, e.Asked, e.End) {
				found = append(found, fmt.Sprintf("a section of host %d ended %q although a majority of the disks answered: %+v%s", e.Host, e.How, e, s.evidence(e.End)))
			}
		}
	})
	for _, v := range found {
		s.violate("%s", v)
	}
	s.report.sectionLogs(parts, failed, checked)
	return nil
}

var (
	errorLine = regexp.MustCompile(`level=ERROR msg=("(?:[^"\\]|\\.)*"|\S+)`)
	panicLine = regexp.MustCompile(`(?m)^(panic:|fatal error:|WARNING: DATA RACE|runtime: |unexpected fault address).*$`)
)

// expectedErrors are the messages that bakeryd logs at level ERROR under these faults.
var expectedErrors = map[string]bool{
	leaseLost:      true,
	"IO hangs":     true,
	"bakeryd ends": true,
}

// readLogs checks the logs for panics and unexpected errors.
func (s *soak) readLogs() {
	logs, _ := filepath.Glob(filepath.Join(s.dir, "h*", "*.log"))
	twins, _ := filepath.Glob(filepath.Join(s.dir, "h*", "*", "*.log"))
	for _, path := range append(logs, twins...) {
		b, err := os.ReadFile(path)
		if err != nil {
			s.violate("read a log: %v", err)
			continue
		}
		for _, m := range errorLine.FindAllStringSubmatch(string(b), -1) {
			what := strings.Trim(m[1], `"`)
			s.report.logged(what)
			if !expectedErrors[what] {
				s.violate("%s has an error that no fault explains: %s", path, what)
			}
		}
		if m := panicLine.FindString(string(b)); m != "" {
			s.violate("%s: %s", path, m)
		}
	}
}

// measureLeaks compares the bakeryd that was never ended, which is idle now, with a new one.
func (s *soak) measureLeaks(ctx context.Context) error {
	h := s.hosts[len(s.hosts)-1]
	old, err := h.footprint(ctx)
	if err != nil {
		return err
	}
	fresh, err := h.footprint(ctx)
	if err != nil {
		return err
	}
	for _, v := range s.report.leaks(h.id, old, fresh) {
		s.violate("%s", v)
	}
	return nil
}

// footprint returns what an idle bakeryd uses. Counting its goroutines ends it; when footprint
// returns, another one runs.
func (h *host) footprint(ctx context.Context) (f footprint, err error) {
	if err := h.well(ctx); err != nil {
		return f, err
	}
	for _, l := range locks { // bakeryd has a goroutine for each lock that was used
		hold, err := h.client().Lock(ctx, l.name, client.Options{Timeout: patience})
		if err != nil {
			return f, err
		}
		if err := hold.Unlock(); err != nil {
			return f, err
		}
	}
	h.client().Close() // the soak's own connections
	if err := pauseFor(ctx, max(time.Second, h.s.o.lease)); err != nil {
		return f, err
	}
	if f, err = measure(h.daemon.pid()); err != nil {
		return f, err
	}
	begin := fileSize(h.log)
	if _, err := h.end(ctx, unix.SIGQUIT); err != nil {
		return f, err
	}
	f.Goroutines = strings.Count(fileFrom(h.log, begin), "\ngoroutine ")
	if f.Goroutines == 0 {
		return f, errors.New("bakeryd did not print its goroutines")
	}
	return f, h.up(ctx)
}

// timeline draws the events of all hosts as a page, if this bakeryctl can.
func (s *soak) timeline() {
	ctx := context.Background()
	events, _ := filepath.Glob(filepath.Join(s.dir, "h*", "state", "*.events"))
	if _, code, _ := output(ctx, s.bakeryctl, "timeline", "--help"); code != 0 || len(events) == 0 {
		return
	}
	page := filepath.Join(s.dir, "timeline.html")
	_, _, err := output(ctx, append(append([]string{s.bakeryctl, "timeline"}, events...), "-o", page)...)
	if _, none := os.Stat(page); none != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return
	}
	fmt.Println("see", page) // the page may show violations, which are in err, too
}

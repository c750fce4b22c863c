package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// footprint is what a process uses.
type footprint struct {
	RSS        int64 `json:"rss_kb"`
	Files      int   `json:"files"`
	Threads    int   `json:"threads"`
	Goroutines int   `json:"goroutines,omitzero"`
}

func (f footprint) String() string {
	return fmt.Sprintf("%.1f MB, %d files, %d threads, %d goroutines", float64(f.RSS)/1024, f.Files, f.Threads, f.Goroutines)
}

// measure reads the footprint of a process from /proc.
func measure(pid int) (f footprint, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return f, err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		number, _, _ := strings.Cut(strings.TrimSpace(value), " ")
		n, _ := strconv.ParseInt(number, 10, 64)
		switch name {
		case "VmRSS":
			f.RSS = n
		case "Threads":
			f.Threads = int(n)
		}
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	f.Files = len(files)
	return f, err
}

// daemonReport is the greatest footprint of a host's bakeryds.
type daemonReport struct {
	Host    int       `json:"host"`
	Most    footprint `json:"most"`
	samples []int64   // RSS of the running one, in kB
	pid     int
}

func (d daemonReport) String() string {
	return fmt.Sprintf("at most %.1f MB, %d files, %d threads", float64(d.Most.RSS)/1024, d.Most.Files, d.Most.Threads)
}

// sample measures all daemons.
func (r *report) sample(hosts []*host) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Daemons == nil {
		for _, h := range hosts {
			r.Daemons = append(r.Daemons, daemonReport{Host: h.id})
		}
	}
	for i, h := range hosts {
		h.mu.Lock()
		pid := h.daemon.pid()
		h.mu.Unlock()
		f, err := measure(pid)
		if err != nil || f.RSS == 0 {
			continue // it has ended
		}
		d := &r.Daemons[i]
		if d.pid != pid {
			d.pid, d.samples = pid, nil
		}
		d.samples = append(d.samples, f.RSS)
		d.Most = footprint{RSS: max(d.Most.RSS, f.RSS), Files: max(d.Most.Files, f.Files), Threads: max(d.Most.Threads, f.Threads)}
	}
}

// leakReport compares the bakeryd that was never ended with a new one.
type leakReport struct {
	Host     int       `json:"host"`
	Old      footprint `json:"old"`
	Fresh    footprint `json:"fresh"`
	EarlyRSS int64     `json:"early_rss_kb"` // median of the second quarter of its run
	LateRSS  int64     `json:"late_rss_kb"`  // median of the last quarter
}

func (l leakReport) String() string {
	return fmt.Sprintf("host %d, never ended: %v; started again: %v; memory %.1f MB in the second quarter, %.1f MB in the last",
		l.Host, l.Old, l.Fresh, float64(l.EarlyRSS)/1024, float64(l.LateRSS)/1024)
}

const (
	slackGoroutines = 6
	slackFiles      = 8 + 3*8  // the rings that three member disks keep at most
	slackRSS        = 12 << 10 // kB
)

// leaks returns what has grown.
func (r *report) leaks(host int, old, fresh footprint) (found []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &leakReport{Host: host, Old: old, Fresh: fresh}
	for _, d := range r.Daemons {
		if n := len(d.samples); d.Host == host && n >= 8 {
			l.EarlyRSS, l.LateRSS = median(d.samples[n/4:n/2]), median(d.samples[n*3/4:])
		}
	}
	r.Leak = l
	return l.found()
}

func (l *leakReport) found() (found []string) {
	if l.Old.Goroutines > l.Fresh.Goroutines+slackGoroutines {
		found = append(found, fmt.Sprintf("goroutines leak: %v", l))
	}
	if l.Old.Files > l.Fresh.Files+slackFiles {
		found = append(found, fmt.Sprintf("files leak: %v", l))
	}
	if l.LateRSS > l.EarlyRSS*3/2+slackRSS {
		found = append(found, fmt.Sprintf("memory leaks: %v", l))
	}
	return found
}

func median(of []int64) int64 {
	of = slices.Clone(of)
	slices.Sort(of)
	return of[len(of)/2]
}

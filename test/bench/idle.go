package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// idling is the cost of an idle bakeryd.
type idling struct {
	LeaseMS int64   `json:"lease_ms"`
	Seconds float64 `json:"seconds"`

	RSSBytes     int64 `json:"rss_bytes"`
	RSSAnonBytes int64 `json:"rss_anon_bytes"`
	Threads      int   `json:"threads"`

	CPUSeconds float64 `json:"cpu_seconds"` // according to the scheduler
	TickCPU    float64 `json:"tick_cpu_seconds"`

	// Per L/6.
	Wakeups    float64            `json:"wakeups"` // voluntary context switches of all threads
	ReadBytes  float64            `json:"read_bytes"`
	WriteBytes float64            `json:"write_bytes"`
	Calls      map[string]float64 `json:"calls,omitempty"`    // of another bakeryd, under strace(1)
	Requests   map[string]float64 `json:"requests,omitempty"` // system calls of a third bakeryd on its device
	NoCalls    string             `json:"no_calls,omitempty"`
}

const leaseOfIdle = 30 * time.Second

// idle measures one of three bakeryds, and traces the others: tracing itself costs time.
func (s *setup) idle(ctx context.Context) (*idling, error) {
	settle, watch := 20*time.Second, 2*leaseOfIdle
	if s.quick {
		settle, watch = time.Second, 5*time.Second
	}
	l, err := s.newLockspace(ctx, "idle", 16, 3, "--lease", leaseOfIdle.String())
	if err != nil {
		return nil, err
	}
	defer l.end()
	for host := range l.hosts { // each has used the lock
		if _, err := turnsOf(ctx, nil, l.loop(host, 100*time.Millisecond)...); err != nil {
			return nil, err
		}
	}
	if err := wait(ctx, settle); err != nil {
		return nil, err
	}
	out := &idling{LeaseMS: leaseOfIdle.Milliseconds()}
	var calls, requests map[string]float64
	var failed [2]error
	var tracing sync.WaitGroup
	tracing.Go(func() { calls, failed[0] = s.trace(ctx, "strace", l.hosts[1].pid(), watch) })
	tracing.Go(func() { requests, failed[1] = s.trace(ctx, "strace-device", l.hosts[2].pid(), watch, "-P", l.file) })
	before, begun := usageOf(l.hosts[0].pid()), time.Now()
	err = wait(ctx, watch)
	after := usageOf(l.hosts[0].pid())
	out.Seconds = time.Since(begun).Seconds()
	if tracing.Wait(); err != nil {
		return nil, err
	}
	out.Calls, out.Requests = calls, requests
	if err := cmp.Or(failed[0], failed[1]); err != nil {
		out.NoCalls = err.Error()
	}
	beats := out.Seconds / (leaseOfIdle / 6).Seconds()
	out.RSSBytes, out.RSSAnonBytes, out.Threads = after.rss, after.anon, after.threads
	out.CPUSeconds = float64(after.ran-before.ran) / 1e9
	out.TickCPU = float64(after.ticks-before.ticks) / 100
	out.Wakeups = float64(after.switches-before.switches) / beats
	out.ReadBytes, out.WriteBytes = float64(after.read-before.read)/beats, float64(after.written-before.written)/beats
	return out, nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// usage is the resource usage of a process, from /proc.
type usage struct {
	rss, anon     int64 // bytes
	threads       int
	ran           int64 // nanoseconds on a processor
	ticks         int64 // the same, in hundredths of a second
	switches      int64
	read, written int64
}

func usageOf(pid int) (u usage) {
	proc := fmt.Sprintf("/proc/%d", pid)
	kib := func(s string) int64 { n, _ := strconv.ParseInt(strings.Fields(s)[0], 10, 64); return n << 10 }
	number := func(s string) int64 { n, _ := strconv.ParseInt(strings.TrimSpace(s), 10, 64); return n }
	status := pairs(proc + "/status")
	u.rss, u.anon, u.threads = kib(status["VmRSS"]+" 0"), kib(status["RssAnon"]+" 0"), int(number(status["Threads"]))
	io := pairs(proc + "/io")
	u.read, u.written = number(io["read_bytes"]), number(io["write_bytes"])
	if b, err := os.ReadFile(proc + "/stat"); err == nil {
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:])) // from the third field on
		u.ticks = number(f[11]) + number(f[12])
	}
	tasks, _ := filepath.Glob(proc + "/task/*")
	for _, task := range tasks {
		u.switches += number(pairs(task + "/status")["voluntary_ctxt_switches"])
		if b, err := os.ReadFile(task + "/schedstat"); err == nil {
			u.ran += number(strings.Fields(string(b))[0])
		}
	}
	return u
}

// pairs reads lines of "key: value".
func pairs(path string) map[string]string {
	b, _ := os.ReadFile(path)
	m := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			m[k] = strings.TrimSpace(v)
		}
	}
	return m
}

// trace counts the system calls of a process, per L/6.
func (s *setup) trace(ctx context.Context, name string, pid int, d time.Duration, more ...string) (map[string]float64, error) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		return nil, err
	}
	summary := filepath.Join(s.work, name+".counts")
	p, err := s.start(name, nil, append([]string{strace, "-c", "-f", "-p", strconv.Itoa(pid), "-o", summary}, more...)...)
	if err != nil {
		return nil, err
	}
	err = wait(ctx, d)
	select {
	case <-p.over:
		return nil, fmt.Errorf("strace ended: %w: %s", p.err, p.said())
	default:
	}
	p.end(unix.SIGINT)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(summary)
	if err != nil {
		return nil, err
	}
	counts := map[string]float64{}
	beats := d.Seconds() / (leaseOfIdle / 6).Seconds()
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 5 || f[len(f)-1] == "total" {
			continue
		}
		if n, err := strconv.ParseFloat(f[3], 64); err == nil {
			counts[f[len(f)-1]] = n / beats
		}
	}
	return counts, nil
}

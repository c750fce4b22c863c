package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/bench"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

// benchSpace is a lockspace in a file on which a bench runs.
type benchSpace struct {
	t    *testing.T
	path string
}

func newBenchSpace(t *testing.T, lease time.Duration) *benchSpace {
	t.Helper()
	needDirectIO(t)
	s := &benchSpace{t: t, path: filepath.Join(t.TempDir(), "disk.img")}
	_, err := format.Format(t.Context(), s.path, format.Options{Hosts: 4, Locks: 4, Lease: lease, Policy: layout.PolicyLease})
	require.NoError(t, err)
	return s
}

func (s *benchSpace) report() *report.Report {
	s.t.Helper()
	dev, err := blockdev.Open(s.path, blockdev.Options{ReadOnly: true})
	require.NoError(s.t, err)
	defer dev.Close()
	snapshot, err := lockspace.Inspect(dev)
	require.NoError(s.t, err)
	return report.Of(snapshot)
}

// measuring waits until the lock of the bench was held once.
func (s *benchSpace) measuring() {
	s.t.Helper()
	eventually(s.t, "the bench to measure", func() bool {
		dev, err := blockdev.Open(s.path, blockdev.Options{ReadOnly: true})
		require.NoError(s.t, err)
		defer dev.Close()
		snapshot, err := lockspace.Inspect(dev)
		require.NoError(s.t, err)
		used := false
		for _, slot := range snapshot.Slots {
			used = used || slot.Lock > 0 && slot.Ticket != 0
		}
		return used
	})
}

// left checks that every host has left in good time.
func (s *benchSpace) left() {
	s.t.Helper()
	hosts := s.report().Hosts
	require.NotEmpty(s.t, hosts)
	for _, h := range hosts {
		require.Equal(s.t, layout.StateLeft, h.State, "%+v", h)
	}
}

// TestBenchInterrupted: whenever a signal comes, the lock goes and the hosts leave.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		signal syscall.Signal
		only   string
		code   int
	}{
		{syscall.SIGINT, "uncontended", 130},
		{syscall.SIGTERM, "handover", 143},
		{syscall.SIGTERM, "handoff", 143},
		{syscall.SIGINT, "wrapper", 130},
	} {
		t.Run(test.only, func(t *testing.T) {
			t.Parallel()
			s := newBenchSpace(t, lockspace.DefaultLease)
			p := begin(t, "bench", "--device", s.path, "--duration", "1h", "--only", test.only)
			s.measuring()
			p.signal(test.signal)
			require.Equal(t, test.code, p.wait())
			p.printed(t, "", "")
			require.Empty(t, s.report().Locks)
			s.left()
		})
	}
}

// TestBenchInterruptedAtOnce: while its hosts are still joining.
func TestBenchInterruptedAtOnce(t *testing.T) {
	t.Parallel()
	s := newBenchSpace(t, lockspace.DefaultLease)
	p := begin(t, "bench", "--device", s.path, "--duration", "1h")
	eventually(t, "a host to join", func() bool { return len(s.report().Hosts) > 0 })
	p.signal(syscall.SIGINT)
	require.Equal(t, 130, p.wait())
	p.printed(t, "", "")
	require.Empty(t, s.report().Locks)
	s.left()
}

// TestBenchKilled: its child leaves; what stays is the lock, and a host that is dead.
func TestBenchKilled(t *testing.T) {
	t.Parallel()
	s := newBenchSpace(t, lockspace.DefaultLease)
	p := begin(t, "bench", "--device", s.path, "--duration", "1h", "--only", "uncontended")
	s.measuring()
	p.signal(syscall.SIGKILL)
	require.Equal(t, -1, p.wait())
	eventually(t, "the child to leave", func() bool { return s.report().Hosts[0].State == layout.StateLeft })
	require.Len(t, s.report().Locks, 1)
	require.True(t, strings.HasPrefix(s.report().Locks[0].Name, "bakeryctl-bench-"))
}

// TestBenchChildCannotServe: what it says is what bakeryctl says.
func TestBenchChildCannotServe(t *testing.T) {
	t.Parallel()
	s := newBenchSpace(t, 6*time.Second) // half of it passes until none of the ids is known to be free
	for range 4 {                        // all ids
		// A process that a parallel test forks has the lock files of this one until it executes its program.
		eventually(t, "a host to join", func() bool {
			d := daemon.New(daemon.Config{Device: s.path})
			err := d.Join(t.Context())
			if errors.Is(err, hostid.ErrTaken) {
				return false
			}
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, leave(d)) })
			return true
		})
	}
	p := begin(t, "bench", "--device", s.path)
	require.Equal(t, exitUnavailable, p.wait())
	require.Regexp(t, `(?m)^bakeryctl: join the lockspace on .*: no host id is free\nhint: stop a host, or format for more --hosts\n\z`, p.told())
	require.Equal(t, "", p.content(p.stdout))
}

// measured is a result as a disk might give it.
func measured(t *testing.T) *benchReport {
	t.Helper()
	var r benchReport
	require.NoError(t, json.Unmarshal([]byte(`{"device": "/dev/mapper/locks", "lockspace": "prod", "stride": 4096, "hosts": 16, "highest": 5,
		"handover": {"count": 790, "p50_us": 432, "p99_us": 1200, "p999_us": 12345, "floor_p50_us": 306, "ratio": 1.412, "between": "A and B", "hold_us": 2000},
		"handoff": {"per_second": 21400, "in_process_per_second": 61000, "clients": 8},
		"wrapper": {"p50_us": 4100, "true_p50_us": 1100, "flock_p50_us": 2000, "over_flock_us": 2100, "count": 300},
		"skipped": [{"name": "in_process", "reason": "no id"}]}`), &r))
	return &r
}

func TestShowBench(t *testing.T) {
	var out bytes.Buffer
	r := measured(t)
	require.NoError(t, showBench(&out, r))
	require.Equal(t, `lockspace prod on /dev/mapper/locks
  records 4096 bytes apart, a read covers 5 slots of 16

local hand-off  8 clients: 21400 a second by bakeryd, 61000 in process
hand-over       A and B, each holds it for 2.00 ms
wrapper         bakeryctl lock NAME -- true: 4.10 ms
                2.10 ms more than flock FILE true, 2.00 ms; true alone: 1.10 ms

skipped in_process: no id
`, out.String())
}

// samples runs a bench whose times are given, in microseconds: those of the floor, and of the lock.
func TestShowHistogram(t *testing.T) {
	var floor, lock bench.Times
	for i := range 1000 {
		floor.Add(time.Duration(200+i%100) * time.Microsecond)
		lock.Add(time.Duration(300+i%200) * time.Microsecond)
	}
	lock.Add(time.Second)
	var out bytes.Buffer
	require.NoError(t, showHistogram(&out, &bench.Result{
		Floor: &bench.Floor{Times: &floor}, Uncontended: &bench.Lock{Times: &lock},
	}))
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")[1:]
	require.Regexp(t, `^ +floor +uncontended, by bakeryd$`, lines[0])
	require.LessOrEqual(t, len(lines), barRows+2)
	require.Regexp(t, `^ +longer  `, lines[len(lines)-1])
	longest := 0
	for _, line := range lines {
		require.LessOrEqual(t, len(line), 80)
		longest = max(longest, strings.Count(line, "#"))
	}
	require.GreaterOrEqual(t, longest, barWidth)
	require.NotContains(t, lines[1], "  0.1%", "the floor begins the scale")

	// All the same: one row is enough, and nothing is divided by zero.
	var same bench.Times
	same.Add(250 * time.Microsecond)
	out.Reset()
	require.NoError(t, showHistogram(&out, &bench.Result{Floor: &bench.Floor{Times: &same}, InProcess: &bench.Lock{Times: &same}}))
	require.Contains(t, out.String(), "100.0% ######################")
	require.Contains(t, out.String(), "uncontended, in process")
}

func TestBenchTime(t *testing.T) {
	for us, want := range map[int64]string{
		0: "0 us", 999: "999 us", 1000: "1.00 ms", 8284: "8.28 ms", 34_900: "34.9 ms", 120_400: "120 ms", -300: "-300 us", -2500: "-2.50 ms",
	} {
		require.Equal(t, want, benchTime(us))
	}
}

// TestBenchLeavesNoFile: nothing stays in the directory for temporary files.
func TestBenchLeavesNoFile(t *testing.T) {
	t.Parallel()
	s := newBenchSpace(t, lockspace.DefaultLease)
	tmp := filepath.Join(filepath.Dir(s.path), "t")
	require.NoError(t, os.Mkdir(tmp, 0o755))
	p := prepare(t, "bench", "--device", s.path, "--duration", "10ms", "--only", "wrapper")
	p.cmd.Env = append(p.cmd.Env, "TMPDIR="+tmp)
	p.start()
	require.Equal(t, 0, p.wait(), p.told())
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Empty(t, s.report().Locks)
	s.left()
}

package main

import (
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
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

// benchSpace is a lockspace in a file for a bench.
type benchSpace struct {
	t    *testing.T
	path string
}

func newBenchSpace(t *testing.T, lease time.Duration) *benchSpace {
	t.Helper()
	needDirectIO(t)
	s := &benchSpace{t: t, path: filepath.Join(t.TempDir(), "disk.img")}
	_, err := format.Format(t.Context(), []string{s.path}, format.Options{Hosts: 4, Locks: 4, Lease: lease, Policy: layout.PolicyLease})
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
	return report.FromSnapshot(snapshot)
}

// measuring blocks until the lock of the bench was held once.
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

// left checks that every host has left.
func (s *benchSpace) left() {
	s.t.Helper()
	hosts := s.report().Hosts
	require.NotEmpty(s.t, hosts)
	for _, h := range hosts {
		require.Equal(s.t, layout.StateLeft, h.State, "%+v", h)
	}
}

// After a signal the lock is removed and the hosts leave.
func TestBench_InterruptedWhileMeasuring_RemovesTheLock(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		signal syscall.Signal
		only   string
		code   int
	}{
		{syscall.SIGINT, "uncontended", 130},
		{syscall.SIGINT, "reacquire", 130},
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

// The signal arrives while the hosts are joining.
func TestBench_InterruptedWhileJoining_Leaves(t *testing.T) {
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

// The child leaves; the lock and a dead host remain.
func TestBench_Killed_ChildLeaves(t *testing.T) {
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

// bakeryctl reports the error of the child.
func TestBench_ChildCannotServe_ReportsWhy(t *testing.T) {
	t.Parallel()
	s := newBenchSpace(t, 6*time.Second) // after half of it, all ids are known to be in use
	for range 4 {                        // all ids
		// A process forked by a parallel test inherits the lock files of this process until execve.
		eventually(t, "a host to join", func() bool {
			d, err := daemon.Join(t.Context(), daemon.Config{Devices: []string{s.path}})
			if errors.Is(err, hostid.ErrTaken) {
				return false
			}
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, ondevice.Leave(d)) })
			return true
		})
	}
	p := begin(t, "bench", "--device", s.path)
	require.Equal(t, cli.ExitUnavailable, p.wait())
	require.Regexp(t, `(?m)^bakeryctl: join the lockspace on .*: no host id is free\nhint: stop a host, or format for more --hosts\n\z`, p.messages())
	require.Equal(t, "", p.content(p.stdout))
}

// No temporary file remains.
func TestBench_Done_LeavesNoFile(t *testing.T) {
	t.Parallel()
	s := newBenchSpace(t, lockspace.DefaultLease)
	tmp := filepath.Join(filepath.Dir(s.path), "t")
	require.NoError(t, os.Mkdir(tmp, 0o755))
	p := prepare(t, "bench", "--device", s.path, "--duration", "10ms", "--only", "wrapper")
	p.cmd.Env = append(p.cmd.Env, "TMPDIR="+tmp)
	p.start()
	require.Equal(t, 0, p.wait(), p.messages())
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Empty(t, s.report().Locks)
	s.left()
}

// TestBench_Rows_LingerOnlyInReacquire: an uncontended acquire is a fresh one, by requests to the disk.
func TestBench_Rows_LingerOnlyInReacquire(t *testing.T) {
	t.Parallel()
	s := newBenchSpace(t, lockspace.DefaultLease)
	p := prepare(t, "bench", "--device", s.path, "--duration", "10ms", "--only", "uncontended,reacquire", "--json")
	p.start()
	require.Equal(t, 0, p.wait(), p.messages())
	var r struct {
		Uncontended struct {
			PassedOn int `json:"passed_on"`
		} `json:"uncontended"`
		Reacquire struct {
			WithoutIO int `json:"without_io"`
		} `json:"reacquire"`
	}
	require.NoError(t, json.Unmarshal([]byte(p.content(p.stdout)), &r))
	require.Zero(t, r.Uncontended.PassedOn)
	require.Positive(t, r.Reacquire.WithoutIO)
}

//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/layout"
)

// request is a system call on the device, as shown by strace(1).
type request struct {
	call        string
	length, off int64
}

func (r request) String() string { return fmt.Sprintf("%s(%d bytes at %d)", r.call, r.length, r.off) }

const traced = "pread64,pwrite64,preadv,pwritev,preadv2,pwritev2,fsync,fdatasync,sync_file_range,io_uring_enter,io_submit,read,write,lseek"

// trace returns bakeryd's requests to its device while f runs.
func (h *host) trace(f func()) []request {
	h.t.Helper()
	return onDevice(h.t, h.calls(traced, f), h.dev)
}

// calls returns bakeryd's calls of the given system calls while f runs, in the format of strace(1).
func (h *host) calls(which string, f func()) string {
	h.t.Helper()
	out := filepath.Join(h.dir, "trace")
	p := launch(h.t, h.dir, "strace", "-f", "-y", "-s", "0", "-e", "trace="+which, "-o", out, "-p", strconv.Itoa(h.cmd.Process.Pid))
	eventually(h.t, "strace is attached", func() bool {
		require.True(h.t, p.running(), "strace has ended: %s", p.said())
		return strings.Contains(p.said(), "attached") && h.isTraced()
	})
	f()
	p.signal(syscall.SIGINT)
	select {
	case <-p.ended:
	case <-time.After(patience):
		h.t.Fatal("strace has not ended")
	}
	b, err := os.ReadFile(out)
	require.NoError(h.t, err)
	return string(b)
}

// isTraced reports whether each thread of bakeryd has a tracer.
func (h *host) isTraced() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", h.cmd.Process.Pid))
	require.NoError(h.t, err)
	for _, thread := range threads {
		if b, _ := os.ReadFile(thread); strings.Contains(string(b), "\nTracerPid:\t0\n") {
			return false
		}
	}
	return true
}

var (
	lineRE    = regexp.MustCompile(`^(\d+)\s+(.*)$`)
	resumedRE = regexp.MustCompile(`^<\.\.\. \w+ resumed>`)
	callRE    = regexp.MustCompile(`^(\w+)\(\d+<([^<>]*)[^)]*?>(?:, .*?, (\d+), (\d+))?.*\) += (-?\d+|\?)`)
)

// onDevice parses a trace: the calls on the device, in the order of their begin. It includes writes
// that had not returned at its end: others may have seen them on the disk.
func onDevice(t *testing.T, trace, dev string) (requests []request) {
	type begun struct {
		text  string
		index int
	}
	unfinished := map[string]begun{}
	lines := make(map[int]string)
	n := 0
	for line := range strings.Lines(trace) {
		m := lineRE.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		pid, text := m[1], m[2]
		if head, ok := strings.CutSuffix(text, " <detached ...>"); ok {
			text = head + ") = ?"
		}
		if head, ok := strings.CutSuffix(text, " <unfinished ...>"); ok {
			unfinished[pid] = begun{head, n}
			lines[n] = head + ") = ?"
			n++
			continue
		}
		if at := resumedRE.FindString(text); at != "" {
			if call, ok := unfinished[pid]; ok { // otherwise it began before the trace
				lines[call.index] = call.text + strings.TrimPrefix(text, at)
			}
			continue
		}
		lines[n] = text
		n++
	}
	for i := range n {
		m := callRE.FindStringSubmatch(lines[i])
		if m == nil || m[2] != dev || m[5] == "?" && m[3] == "" {
			continue
		}
		r := request{call: m[1]}
		r.length, _ = strconv.ParseInt(m[3], 10, 64)
		r.off, _ = strconv.ParseInt(m[4], 10, 64)
		if m[5] != "?" && m[5] != m[3] && strings.HasPrefix(m[1], "p") {
			t.Errorf("short or failed: %s", lines[i])
		}
		requests = append(requests, r)
	}
	return requests
}

// ofLock keeps the requests for one lock's slots. It drops renewals, which read the superblocks and
// the host table and write the own record. It drops the scrub after joining, which reads the
// directory and the own slot of every lock alone; a held lock's slot is read that way, too. It
// keeps calls without an offset, such as a flush.
func (h *host) ofLock(requests []request, lock, id int) (kept []request) {
	g := h.s.geo
	for _, r := range requests {
		elsewhere := r.off < g.Slot(lock, 1) || r.off > g.Slot(lock, g.Hosts)
		scrub := r.call == "pread64" && r.length == int64(g.Stride) && r.off == g.Slot(lock, id)
		if positioned := r.length > 0; positioned && (elsewhere || scrub) {
			continue
		}
		kept = append(kept, r)
	}
	return kept
}

// TestRequests counts the requests that the README promises for a free lock: one write and one read
// to take it, one write to release it.
func TestRequests(t *testing.T) {
	bySector(t, func(t *testing.T, sector int) {
		s := newSpace(t, sector, "--lease", "30s")
		h := s.host(2)
		require.Zero(t, h.lock("x", "--", "true").code)
		lock := h.report("x").Number
		const times = 10
		var got []request
		// A hold of more than 50 ms costs another write, which shows it on the disk. Then the
		// machine was too slow: count again.
		for slow := true; slow; {
			slow = false
			got = h.ofLock(h.trace(func() {
				for range times {
					began := time.Now()
					hold, err := h.client().Lock(t.Context(), "x", client.Options{NonBlock: true})
					require.NoError(t, err)
					err = hold.Unlock()
					slow = slow || time.Since(began) > 40*time.Millisecond
					require.True(t, err == nil || slow, "unlock: %v", err)
					eventually(t, "the slot is idle", func() bool { return s.slot(lock, 2).Record.Phase == layout.Idle })
				}
			}), lock, 2)
		}
		g := s.geo
		// The slots of ids 1 to 4 are read: up to its own, and two above.
		write := request{"pwrite64", int64(g.Stride), g.Slot(lock, 2)}
		read := request{"pread64", 4 * int64(g.Stride), g.Slot(lock, 1)}
		var want []request
		for range times {
			want = append(want, write, read, write)
		}
		require.Equal(t, want, got)
	})
}

// TestRequestsUnderContention: a waiter writes its slot twice to enter.
func TestRequestsUnderContention(t *testing.T) {
	bySector(t, func(t *testing.T, sector int) {
		s := newSpace(t, sector, "--lease", "30s")
		a, b := s.host(1), s.host(2)
		require.Zero(t, b.lock("x", "--", "true").code)
		lock := b.report("x").Number
		holder, _ := a.holds("x")
		a.settles(a, "x")
		writes := func(requests []request) (n int) {
			for _, r := range b.ofLock(requests, lock, 2) {
				switch {
				case r.call == "pwrite64":
					require.Equal(t, request{"pwrite64", int64(s.geo.Stride), s.geo.Slot(lock, 2)}, r)
					n++
				default:
					require.Equal(t, "pread64", r.call)
				}
			}
			return n
		}
		var next *process
		requests := b.trace(func() {
			next = b.take("x")
			a.sees(b, "x")
			holder.letGo()
			next.entered()
			a.settles(b, "x")
		})
		t.Logf("%d requests while it waited", len(requests))
		require.Equal(t, 3, writes(requests), "choosing, waiting, and held for all to see: %v", b.ofLock(requests, lock, 2))
		require.Equal(t, 1, writes(b.trace(func() {
			next.letGo()
			a.free("x")
			next.exits(0) // others may see its write before the call returns
		})))
	})
}

// timerRE matches a wait that ended because a timer was due.
var timerRE = regexp.MustCompile(`epoll_pwait\d?\(.*, [1-9]\d*, NULL, \d+\) += 0|epoll_pwait\d? resumed>.*, [1-9]\d*, NULL, \d+\) += 0`)

// TestIdleHostIsQuiet: without holds bakeryd reads and writes once for each renewal, and nothing
// else wakes it, after it has read its slots following the join.
func TestIdleHostIsQuiet(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512, leased(3*time.Second))
	h := s.host(2)
	s.host(1)
	require.Zero(t, h.lock("x", "--", "true").code)
	g := s.geo
	write := request{"pwrite64", int64(g.Stride), g.Host(2)}
	eventually(t, "it is quiet", func() bool {
		trace := h.calls(traced+",epoll_pwait", func() {
			for range 5 {
				before := s.hostRecord(2).Record.Sequence
				eventually(t, "a renewal", func() bool { return s.hostRecord(2).Record.Sequence != before })
			}
		})
		reads, writes, others := 0, 0, 0
		for _, r := range onDevice(t, trace, h.dev) {
			switch {
			case r == write:
				writes++
			case r.call == "pread64" && r.off+r.length <= g.Entry(1):
				reads++
			default:
				others++
			}
		}
		woken := len(timerRE.FindAllString(trace, -1))
		t.Logf("%d reads, %d writes, %d other requests, woken by %d timers", reads, writes, others, woken)
		require.Less(t, writes, 8)
		return others == 0 && woken == 0 && reads-writes <= 1 && writes-reads <= 1
	})
}

func TestDeviceIsOpenedDirectAndDurable(t *testing.T) {
	t.Parallel()
	h := newSpace(t, 512).host(1)
	proc := fmt.Sprintf("/proc/%d", h.cmd.Process.Pid)
	fds, err := os.ReadDir(proc + "/fd")
	require.NoError(t, err)
	found := 0
	for _, fd := range fds {
		if target, _ := os.Readlink(filepath.Join(proc, "fd", fd.Name())); target != h.dev {
			continue
		}
		found++
		info, err := os.ReadFile(filepath.Join(proc, "fdinfo", fd.Name()))
		require.NoError(t, err)
		m := regexp.MustCompile(`(?m)^flags:\s+([0-7]+)$`).FindSubmatch(info)
		require.NotNil(t, m, "%s", info)
		flags, err := strconv.ParseInt(string(m[1]), 8, 64)
		require.NoError(t, err)
		require.NotZero(t, flags&unix.O_DIRECT, "%#o", flags)
		require.NotZero(t, flags&unix.O_DSYNC, "%#o", flags)
	}
	require.Equal(t, 1, found)
}

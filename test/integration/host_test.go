//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

// host is a machine: a loop device for each disk, its own directories, and a bakeryd while it is up.
type host struct {
	*process // bakeryd
	t        *testing.T
	s        *space
	id       string // for --host-id
	dir      string
	dev      string
	more     []string // devices of the other member disks; nil if there is one disk
	socket   string
	programs programs
	flags    []string
	wrap     []string // command that starts bakeryd; nil: none
}

// machine returns a host that is down.
func (s *space) machine(id string, flags ...string) *host {
	s.t.Helper()
	h := &host{t: s.t, s: s, id: id, programs: plain, flags: flags, dev: s.loop()}
	for _, file := range s.more {
		h.more = append(h.more, loopOver(s.t, file, s.sector))
	}
	h.dir = filepath.Join(s.dir, filepath.Base(h.dev))
	must(s.t, "mkdir", h.dir)
	s.t.Cleanup(func() {
		h.all(syscall.SIGKILL)
		eventually(s.t, "nothing runs on host "+id, func() bool { return len(h.processes()) == 0 })
	})
	h.socket = filepath.Join(h.dir, "s")
	return h
}

// host returns a host that is up.
func (s *space) host(id int, flags ...string) *host {
	s.t.Helper()
	h := s.machine(fmt.Sprint(id), flags...)
	h.up()
	return h
}

// hosts returns hosts 1..n, all up.
func (s *space) hosts(n int, flags ...string) (hosts []*host) {
	s.t.Helper()
	for id := 1; id <= n; id++ {
		h := s.machine(fmt.Sprint(id), flags...)
		h.start()
		hosts = append(hosts, h)
	}
	for _, h := range hosts {
		h.ready()
	}
	return hosts
}

// start starts bakeryd and does not wait for the join.
func (h *host) start() {
	h.t.Helper()
	argv := slices.Concat(h.wrap, []string{h.programs.bakeryd, "--device", h.dev, "--host-id", h.id,
		"--name", "host-" + filepath.Base(h.dev), "--socket", h.socket, "--runtime-dir", h.dir, "--state-dir", h.dir,
		"--log-level", "debug"}, h.flags)
	for _, dev := range h.more {
		argv = append(argv, "--device", dev)
	}
	h.process = launch(h.t, h.dir, argv...)
	p := h.process
	h.t.Cleanup(func() {
		if p.running() {
			_ = p.cmd.Process.Signal(syscall.SIGCONT)
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-p.ended:
			case <-time.After(patience):
				h.t.Errorf("bakeryd has not ended by SIGTERM")
			}
		}
		if said := p.said(); strings.Contains(said, "DATA RACE") || strings.Contains(said, "panic:") {
			h.t.Errorf("bakeryd said:\n%s", said)
		}
	})
}

// ready waits until bakeryd serves.
func (h *host) ready() {
	h.t.Helper()
	eventually(h.t, "bakeryd is ready", func() bool {
		require.True(h.t, h.running(), "bakeryd has ended: %s", h.said())
		return h.serving()
	})
}

func (h *host) serving() bool { return strings.Contains(h.said(), "msg=serving") }

func (h *host) up() {
	h.t.Helper()
	h.start()
	h.ready()
}

// leave ends bakeryd with SIGTERM, as systemd does. Without holders and waiters it leaves the
// lockspace; otherwise it keeps them for the next process.
func (h *host) leave() {
	h.t.Helper()
	h.signal(syscall.SIGTERM)
	h.exits(0)
}

// crash kills bakeryd.
func (h *host) crash() {
	h.t.Helper()
	h.signal(syscall.SIGKILL)
	h.exits(-1)
}

func (h *host) client() *client.Client { return client.New(h.socket) }

// ctl runs bakeryctl and waits for its end.
func (h *host) ctl(args ...string) result {
	h.t.Helper()
	return execute(h.t, append([]string{h.programs.bakeryctl, "--socket", h.socket}, args...)...)
}

// lockArgs returns a bakeryctl lock.
func (h *host) lockArgs(args ...string) []string {
	return append([]string{h.programs.bakeryctl, "lock", "--socket", h.socket}, args...)
}

// lock runs a command under a lock and waits for its end.
func (h *host) lock(args ...string) result {
	h.t.Helper()
	return execute(h.t, h.lockArgs(args...)...)
}

// take starts a command under a lock: it prints its token and runs until letGo. The flags are those
// of bakeryctl lock.
func (h *host) take(name string, flags ...string) *process {
	h.t.Helper()
	return h.takeFor(name, `echo $BAKERY_TOKEN; read line`, flags...)
}

// holds is take, and waits until the command runs.
func (h *host) holds(name string, flags ...string) (*process, layout.Ticket) {
	h.t.Helper()
	p := h.take(name, flags...)
	return p, p.entered()
}

// takeFor is take with another script.
func (h *host) takeFor(name, script string, flags ...string) *process {
	h.t.Helper()
	argv := h.lockArgs(flags...)
	return launch(h.t, h.dir, append(argv, name, "--", "sh", "-c", script)...)
}

// entered waits until a command of take runs, and returns its token.
func (p *process) entered() layout.Ticket {
	p.t.Helper()
	var token layout.Ticket
	require.NoError(p.t, token.UnmarshalText([]byte(p.line())))
	return token
}

// letGo ends a command of take, and waits for its end.
func (p *process) letGo() {
	p.t.Helper()
	_, err := p.stdin.WriteString("\n")
	require.NoError(p.t, err)
	p.exits(0)
}

// outside checks that a command of take does not run yet.
func (p *process) outside() {
	p.t.Helper()
	require.True(p.t, p.running(), "it has ended: %s", p.said())
	line, entered := p.next()
	require.False(p.t, entered, "it printed %q", line)
}

func (h *host) status() *report.Report {
	h.t.Helper()
	var report *report.Report
	var err error
	eventually(h.t, "host "+h.id+" shows its status", func() bool {
		report, err = h.view()
		// A paused machine looks like a hanging device.
		return err == nil || !strings.Contains(err.Error(), "takes longer than")
	})
	require.NoError(h.t, err)
	return report
}

// view is status that may fail.
func (h *host) view() (*report.Report, error) {
	h.t.Helper()
	r := h.ctl("status", "--json")
	if r.code != 0 {
		return nil, fmt.Errorf("status: exit code %d: %s", r.code, r.stderr)
	}
	report := new(report.Report)
	return report, json.Unmarshal([]byte(r.stdout), report)
}

// report returns a host's report of a lock.
func (h *host) report(name string) report.Lock {
	h.t.Helper()
	for _, l := range h.status().Locks {
		if l.Name == name {
			return l
		}
	}
	return report.Lock{Name: name}
}

// sees waits until a host's status shows another host waiting for a lock.
func (h *host) sees(waiter *host, name string) {
	h.t.Helper()
	eventually(h.t, "host "+waiter.id+" to be shown as waiting", func() bool {
		return slices.ContainsFunc(h.report(name).Queue, func(q report.Queued) bool {
			return fmt.Sprint(q.Host) == waiter.id && q.Phase == layout.Waiting
		})
	})
}

// queues waits until a number of clients of this host wait in bakeryd.
func (h *host) queues(name string, clients int) {
	h.t.Helper()
	eventually(h.t, fmt.Sprintf("%d clients wait", clients), func() bool { return len(h.report(name).Local) == clients })
}

// settles waits until the disk shows that a host holds a lock.
func (h *host) settles(holder *host, name string) {
	h.t.Helper()
	eventually(h.t, "host "+holder.id+" to be shown as holding", func() bool {
		return slices.ContainsFunc(h.report(name).Holders, func(r report.Holder) bool { return fmt.Sprint(r.Host) == holder.id })
	})
}

// free waits until a lock has no holder and no waiter.
func (h *host) free(name string) {
	h.t.Helper()
	eventually(h.t, name+" is free", func() bool {
		l := h.report(name)
		return len(l.Holders)+len(l.Queue)+len(l.Local) == 0
	})
}

// output runs a program to its end, without a test's context.
func output(argv ...string) (string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = testEnv
	out, err := cmd.Output()
	if exit, ok := err.(*exec.ExitError); ok {
		err = fmt.Errorf("%q: %w: %s", argv, err, exit.Stderr)
	}
	return string(out), err
}

// TestHost_LockThroughBakeryd_RunsInTheSmallProgram: the tests of wrappers are about the program that
// users run, wherever its flags are.
func TestHost_LockThroughBakeryd_RunsInTheSmallProgram(t *testing.T) {
	t.Parallel()
	h := briefSpace(t).host(1)
	small := must(t, "readlink", "-f", h.programs.bakeryctl)
	const show = `readlink /proc/$PPID/exe`
	require.Equal(t, small, must(t, h.lockArgs("x", "--", "sh", "-c", show)...))
	require.Equal(t, small, h.ctl("lock", "x", "--", "sh", "-c", show).stdout, "flags first")
}

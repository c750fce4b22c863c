//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
)

// Faults of a whole machine: of all processes in the host's directory, which are bakeryd, the
// wrappers, their commands and the children of these.

// processes returns the processes of the machine.
func (h *host) processes() (pids []int) {
	h.t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(h.t, err)
	for _, dir := range dirs {
		if cwd, _ := os.Readlink(dir + "/cwd"); cwd == h.dir {
			pid, err := strconv.Atoi(filepath.Base(dir))
			require.NoError(h.t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// all sends a signal to all processes of the machine, and to those that they start meanwhile.
func (h *host) all(signal syscall.Signal) {
	h.t.Helper()
	sent := map[int]bool{}
	for more := true; more; {
		more = false
		for _, pid := range h.processes() {
			if !sent[pid] {
				_ = syscall.Kill(pid, signal)
				sent[pid], more = true, true
			}
		}
	}
}

// freeze stops the machine as a hypervisor does.
func (h *host) freeze() { h.t.Helper(); h.all(syscall.SIGSTOP) }

func (h *host) thaw() { h.t.Helper(); h.all(syscall.SIGCONT) }

// powerOff ends all processes of the machine at one moment, and returns that moment.
func (h *host) powerOff() time.Duration {
	h.t.Helper()
	at := sinceBoot()
	h.freeze()
	h.all(syscall.SIGKILL)
	eventually(h.t, "nothing runs on host "+h.id, func() bool { return len(h.processes()) == 0 })
	<-h.ended
	return at
}

// reboot changes the boot id of a machine that is off.
func (h *host) reboot() {
	h.t.Helper()
	path := filepath.Join(h.dir, "boot_id")
	id := fmt.Sprintf("%08x-0000-4000-8000-%012x\n", time.Now().Unix(), os.Getpid())
	require.NoError(h.t, os.WriteFile(path, []byte(id), 0o444))
	h.wrap = []string{"unshare", "--mount", "--propagation", "private", "sh", "-c",
		`mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`, path}
}

// renewed returns a moment just before a host's record was written: no other host has seen this
// record earlier.
func (s *space) renewed(id int) (before time.Duration) {
	s.t.Helper()
	dev, err := blockdev.Open(s.dev, blockdev.Options{})
	require.NoError(s.t, err)
	defer dev.Close()
	buf := blockdev.Alloc(s.geo.Stride)
	space := layout.Space{UUID: s.uuid, Geometry: s.geo, Several: s.more != nil}
	var last uint64
	eventually(s.t, fmt.Sprintf("host %d renews", id), func() bool {
		now := sinceBoot()
		require.NoError(s.t, dev.Read(buf, s.geo.Host(id)))
		r, err := space.DecodeHost(buf, id)
		renewed := err == nil && last != 0 && r.Sequence != last
		if err == nil {
			last = r.Sequence
		}
		if !renewed {
			before = now
		}
		return renewed
	})
	return before
}

// until sleeps until a moment.
func until(at time.Duration) {
	for now := sinceBoot(); now < at; now = sinceBoot() {
		time.Sleep(at - now)
	}
}

// work starts a busy command under a lock, which writes to the lock's journal. letGo or SIGTERM
// ends it.
func (h *host) work(lock, name string, flags ...string) *process {
	h.t.Helper()
	argv := h.lockArgs(flags...)
	return launch(h.t, h.dir, append(argv, lock, "--", self(), roleWorker, h.s.journal(lock).path, name)...)
}

// asks starts bakeryctl lock, and again if it exits with 69: a machine that is paused for seconds
// loses its lease, and its clients must retry.
func (h *host) asks(args ...string) *process {
	h.t.Helper()
	const script = `until "$@"; do code=$?; [ $code = 69 ] || exit $code; sleep 0.05; done`
	return launch(h.t, h.dir, append([]string{"sh", "-c", script, "sh"}, h.lockArgs(args...)...)...)
}

// waits starts a busy command, and returns when another host sees it wait for the lock.
func (h *host) waits(lock, name string, seenBy *host) *process {
	h.t.Helper()
	p := h.work(lock, name)
	seenBy.sees(h, lock)
	return p
}

// firstAndNext makes a command of one host hold lock x, and a command of the other host wait for
// it.
func (s *space) firstAndNext(holder, waiter *host) journal {
	s.t.Helper()
	j := s.journal("x")
	holder.work("x", "first")
	j.entered("first")
	waiter.settles(holder, "x")
	waiter.waits("x", "next", holder)
	return j
}

// insist starts two commands, parent and child, that ignore SIGTERM, and returns when both run.
func (h *host) insist(lock, name string) *process {
	h.t.Helper()
	worker := strings.Join([]string{self(), roleWorker, h.s.journal(lock).path}, " ")
	script := fmt.Sprintf(`trap '' TERM; exec 3<&0; %s %s-child stubborn <&3 & %s %s stubborn; wait`, worker, name, worker, name)
	p := launch(h.t, h.dir, h.lockArgs(lock, "--", "sh", "-c", script)...)
	j := h.s.journal(lock)
	j.entered(name)
	j.entered(name + "-child")
	return p
}

// incarnation returns that of the host's bakeryd, empty if it has none.
func (h *host) incarnation() string {
	h.t.Helper()
	r, err := h.view()
	if err != nil || r.ThisHost == nil || r.ThisHost.State != "live" {
		return ""
	}
	return fmt.Sprint(r.ThisHost.Incarnation)
}

// rejoins waits until the host is a new incarnation.
func (h *host) rejoins(old string) {
	h.t.Helper()
	eventually(h.t, "host "+h.id+" joins again", func() bool {
		now := h.incarnation()
		return now != "" && now != old
	})
}

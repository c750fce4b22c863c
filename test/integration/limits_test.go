//go:build integration

package integration

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// limited makes bakeryd run with a limit of open files.
func (h *host) limited(files int) {
	h.wrap = []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$@"`, files), "limited"}
}

// descriptors returns how many files a process has open.
func (p *process) descriptors() int {
	p.t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	require.NoError(p.t, err)
	return len(open)
}

// knock connects, sends something, and keeps the connection.
func (h *host) knock(what string) net.Conn {
	h.t.Helper()
	c, err := net.Dial("unix", h.socket)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { c.Close() })
	_, _ = c.Write([]byte(what)) // bakeryd may have refused and closed it
	return c
}

const openingLink = "GET /v1/link HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: bakery-link/1\r\n\r\n"

// TestFewDescriptors: bakeryd reports how many it needs, or starts. With few of them it serves a
// few clients, refuses the others with the reason, and keeps its lease.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	for _, files := range []int{16, 24, 32, 63} {
		h := s.machine("1")
		h.limited(files)
		h.start()
		h.exits(69)
		require.Contains(t, h.said(), fmt.Sprintf("the limit of open files is too low: %d, want at least 64", files))
	}
	b := s.host(2)
	a := s.machine("1")
	a.limited(64)
	a.up()
	incarnation, before := a.incarnation(), a.descriptors()
	require.Zero(t, a.lock("x", "--", "true").code)
	holder, first := a.holds("x")
	var crowd []net.Conn
	for range 100 {
		crowd = append(crowd, a.knock(openingLink))
	}
	eventually(t, "bakeryd complains", func() bool { return strings.Contains(a.said(), "too many clients, refusing one") })
	r := a.lock("-n", "y", "--", "true")
	require.Equal(t, 69, r.code)
	require.Contains(t, r.stderr, "file descriptors")
	require.Contains(t, r.stderr, "LimitNOFILE")
	// bakeryd does not wait for all of them to read the refusal.
	eventually(t, "others are refused with a reason", func() bool { return strings.Contains(a.curl("http://bakery/v1/status").stdout, `"code":"unavailable"`) })
	time.Sleep(2 * lease) // longer than a lease without a renewal
	require.LessOrEqual(t, a.descriptors(), 64)
	require.Equal(t, 1, b.lock("-n", "x", "--", "true").code, "the lock is still held")
	require.True(t, holder.running(), holder.said())
	for _, c := range crowd {
		c.Close()
	}
	eventually(t, "there is room again", func() bool { return a.lock("-n", "y", "--", "true").code == 0 })
	holder.letGo()
	require.Equal(t, incarnation, a.incarnation())
	next := b.take("x")
	require.Greater(t, next.entered(), first)
	next.letGo()
	eventually(t, "all are given back", func() bool { return a.descriptors() <= before+2 })
	require.NotContains(t, a.said(), "lease lost")
}

// knockAll is a role: SOCKET COUNT. It opens links without a lock, and keeps them until it reads a
// line.
func knockAll(args []string) error {
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	for range count {
		c, err := net.Dial("unix", args[0])
		if err != nil {
			return err
		}
		defer c.Close()
		_, _ = c.Write([]byte(openingLink)) // bakeryd may have refused it
	}
	fmt.Println(count)
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	return err
}

// TestFairLimits_LinksOfOneUser_LeaveTheRest: the user has no other rights.
func TestFairLimits_LinksOfOneUser_LeaveTheRest(t *testing.T) {
	t.Parallel()
	s := briefSpace(t)
	h := s.machine("1", "--policy-file", s.policy(t, "allow user daemon *\n"))
	h.limited(400)
	h.up()
	h.open()
	before := h.descriptors()
	argv := append(asUser("games"), s.copyOfSelf(0), roleKnock, h.socket, "400")
	crowd := launch(t, h.dir, argv...)
	crowd.line()
	eventually(t, "links are refused", func() bool { return strings.Contains(h.said(), "too many clients, refusing one") })
	eventually(t, "a quarter of them is taken", func() bool { return h.descriptors()-before <= 100 })
	require.Zero(t, h.lock("x", "--", "true").code)
	r, _ := named(t, "daemon", admitted).ctl(h, "lock", "x", "--", "true")
	require.Zero(t, r.code, r.stderr)
	crowd.letGo()
}

// tiny mounts a disk of a few pages for the machine.
func (h *host) tiny(name string, flags uintptr, size string) string {
	h.t.Helper()
	dir := filepath.Join(h.dir, name)
	must(h.t, "mkdir", dir)
	require.NoError(h.t, unix.Mount("tmpfs", dir, "tmpfs", flags, "mode=0700,size="+size))
	h.t.Cleanup(func() { require.NoError(h.t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// fill fills a disk.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	require.NoError(t, err)
	defer f.Close()
	for page := make([]byte, 512); err == nil; {
		_, err = f.Write(page)
	}
	require.ErrorIs(t, err, unix.ENOSPC)
}

// TestFullRuntimeDir: holds stay when the state cannot be written. A restart then loses them, and
// stops the command before another host gets the lock.
func TestFullRuntimeDir(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	b := s.host(2)
	a := s.machine("1")
	run := a.tiny("run", 0, "64k")
	a.flags = []string{"--runtime-dir", run}
	a.up()
	var held []*process
	held = append(held, a.take("x"))
	first := held[0].entered()
	fill(t, run)
	for i := range 8 { // the file has room for seven sessions, until it grows
		held = append(held, a.take(fmt.Sprint("y", i)))
	}
	eventually(t, "bakeryd logs the failure", func() bool { return strings.Contains(a.said(), "writing the handover file failed") })
	require.Contains(t, a.said(), "no space left on device")
	for _, p := range held[1:] {
		p.entered()
	}
	require.Equal(t, 1, strings.Count(a.said(), "writing the handover file failed"), "once")
	require.Equal(t, 1, b.lock("-n", "x", "--", "true").code, "the lock is still held")
	require.Equal(t, 1, b.lock("-n", "y3", "--", "true").code, "the lock is still held")
	eventually(t, "an incomplete state file is removed", func() bool {
		files, err := filepath.Glob(filepath.Join(run, "*.state"))
		return err == nil && len(files) == 0
	})
	next := b.take("x")
	b.sees(b, "x")
	a.crash()
	a.start()
	require.Greater(t, next.entered(), first)
	for _, p := range held {
		require.False(t, p.running() && !p.silent(), "the command runs while another host holds the lock")
	}
	next.letGo()
}

// TestFullStateDir: the event journal logs the failure at a limited rate, and continues in memory.
func TestFullStateDir(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	a := s.machine("1")
	state := a.tiny("state", 0, "512k")
	a.flags = []string{"--state-dir", state}
	a.up()
	fill(t, state)
	for i := range 30 {
		require.Zero(t, a.lock(fmt.Sprint("l", i%8), "--", "true").code)
	}
	eventually(t, "bakeryd logs the failure", func() bool { return strings.Contains(a.said(), "keeping the events failed, retrying") })
	require.Contains(t, a.said(), "no space left on device")
	require.GreaterOrEqual(t, strings.Count(a.ctl("events", "--json").stdout, `"kind":"enter"`), 30, "the events are in memory")
	require.NoError(t, os.Remove(filepath.Join(state, "filler")))
	eventually(t, "they are kept again", func() bool { return strings.Contains(a.said(), "events are kept again") })
	a.leave()
	left, err := filepath.Glob(filepath.Join(state, "*.left.*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestReadOnlyDirs: the error names the directory.
func TestReadOnlyDirs(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	a := s.machine("1")
	run := a.tiny("run", unix.MS_RDONLY, "64k")
	a.flags = []string{"--runtime-dir", run}
	a.start()
	a.exits(66)
	require.Contains(t, a.said(), "lock file of host id 1")
	require.Contains(t, a.said(), "read-only file system")
	b := s.machine("2")
	state := b.tiny("state", unix.MS_RDONLY, "64k")
	b.flags = []string{"--state-dir", state}
	b.up()
	require.Zero(t, b.lock("x", "--", "true").code)
	eventually(t, "bakeryd logs that no events are kept", func() bool { return strings.Contains(b.said(), "keeping the events failed") })
	require.Contains(t, b.said(), "read-only file system")
}

// TestWrongState: whatever the state file contains, bakeryd resumes only holds in it, and other
// hosts enter only when the commands of the other holds have ended.
func TestWrongState(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, path string, before, now []byte) []byte{
		"absent":       func(*testing.T, string, []byte, []byte) []byte { return nil },
		"empty":        func(*testing.T, string, []byte, []byte) []byte { return []byte{} },
		"half a cell":  func(_ *testing.T, _ string, _, now []byte) []byte { return now[:len(now)-1000] },
		"a cell torn":  func(_ *testing.T, _ string, _, now []byte) []byte { clear(now[2048+300:]); return now },
		"a bit":        func(_ *testing.T, _ string, _, now []byte) []byte { now[2048+100] ^= 4; return now },
		"garbage":      func(_ *testing.T, _ string, _, now []byte) []byte { return []byte(strings.Repeat("garbage!", 512)) },
		"zeroes":       func(_ *testing.T, _ string, _, now []byte) []byte { return make([]byte, 4096) },
		"of before":    func(_ *testing.T, _ string, before, _ []byte) []byte { return before },
		"of no holder": func(_ *testing.T, _ string, _, now []byte) []byte { return now[:2048] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t, 512)
			a, b := s.host(1), s.host(2)
			files, err := filepath.Glob(filepath.Join(a.dir, "*.state"))
			require.NoError(t, err)
			require.Len(t, files, 1)
			before, err := os.ReadFile(files[0])
			require.NoError(t, err)
			// The command outlives SIGTERM and its wrapper.
			mark := filepath.Join(a.dir, "runs")
			holder := a.takeFor("x", "trap '' TERM; echo $BAKERY_TOKEN; while :; do echo >> "+mark+"; sleep 0.01; done")
			first := holder.entered()
			b.settles(a, "x")
			next := b.takeFor("x", "wc -c < "+mark+"; sleep 0.2; wc -c < "+mark+"; echo $BAKERY_TOKEN")
			b.sees(b, "x")
			now, err := os.ReadFile(files[0])
			require.NoError(t, err)
			a.crash()
			holder.signal(syscall.SIGKILL) // only bakeryd can stop the command now
			if content := spoil(t, files[0], before, now); content == nil {
				require.NoError(t, os.Remove(files[0]))
			} else {
				require.NoError(t, os.WriteFile(files[0], content, 0o600))
			}
			a.start()
			was := next.line()
			require.Equal(t, was, next.line(), "the previous command runs during the next one")
			require.Greater(t, next.entered(), first)
			next.exits(0)
			a.ready()
		})
	}
}

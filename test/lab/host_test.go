//go:build lab

package lab

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lease is that of the lockspaces of the lab: its machines are slow.
const lease = 6 * time.Second

// format makes a lockspace on an image.
func format(t *testing.T, image string, flags ...string) {
	t.Helper()
	require.NoError(t, execute(base, append([]string{filepath.Join(base, "root/bin/bakeryctl"), "format", image, "--force",
		"--hosts", "4", "--locks", "16", "--lease", lease.String()}, flags...)...))
}

// host is a machine with a bakeryd.
type host struct {
	*machine
	bakeryd *command
}

// join starts bakeryd in a machine and waits until it serves.
func (m *machine) join(id int, dev string, flags ...string) *host {
	m.t.Helper()
	h := &host{m, m.start(append([]string{"bakeryd", "--device", dev, "--host-id", fmt.Sprint(id), "--name", m.name, "--log-level", "debug"}, flags...)...)}
	m.t.Cleanup(func() {
		if m.t.Failed() {
			m.t.Logf("bakeryd of %s said:\n%s", m.name, h.bakeryd.said())
		}
	})
	h.bakeryd.says("msg=serving")
	return h
}

// joined is how often bakeryd has joined.
func (h *host) joined() int {
	h.t.Helper()
	require.True(h.t, h.bakeryd.runs())
	return strings.Count(h.bakeryd.said(), "msg=serving")
}

// take starts a script under the lock "job".
func (h *host) take(script string) *command {
	h.t.Helper()
	return h.start("bakeryctl", "lock", "job", "--", "sh", "-c", `echo "token $BAKERY_TOKEN."; `+script)
}

var tokenLine = regexp.MustCompile(`token (\d+)\.`)

// token waits until a command of take runs, and returns its token, as long as any other.
func (c *command) token() string {
	c.m.t.Helper()
	c.says("token ")
	found := tokenLine.FindStringSubmatch(c.said())
	require.NotNil(c.m.t, found, c.said())
	return fmt.Sprintf("%020s", found[1])
}

// outside tells that a command of take does not run.
func (c *command) outside() {
	c.m.t.Helper()
	require.NotContains(c.m.t, c.said(), "token ")
}

// letGo has a command end that reads a line, and waits for that.
func (c *command) letGo() {
	c.m.t.Helper()
	c.input("\n")
	c.exits(0)
}

// couple boots two machines with the same disks and a driver for each.
func couple(t *testing.T, a, b []string, ready func(m *machine)) (*machine, *machine) {
	t.Helper()
	ma, mb := start(t, "a", a...), start(t, "b", b...)
	for _, m := range []*machine{ma, mb} {
		m.booted(1)
		ready(m)
	}
	return ma, mb
}

// A machine that stood still for longer than its lease lets others enter, grants nothing when it goes on, stops its
// holder, and joins anew. It does so as well if its clocks stood still with it: then it learns it from the disk.
// If it does not go on, because its power is gone, others enter all the same.
func TestPausedHost(t *testing.T) {
	disk := image(t)
	format(t, disk)
	ma, mb := couple(t, plain(disk), plain(disk), func(m *machine) { m.disk("virtio_blk", "/dev/vda") })
	a, b := ma.join(1, "/dev/vda"), mb.join(2, "/dev/vda")
	for name, way := range map[string]struct{ halt, resume func() }{
		"seen":   {a.freeze, a.thaw},
		"unseen": {a.pause, a.resume},
	} {
		t.Run(name, func(t *testing.T) {
			a.during(t)
			b.during(t)
			terms := a.joined()
			held := a.take("read line")
			first := held.token()
			behind := a.take("read line")
			way.halt()
			began := time.Now()
			next := b.take("read line")
			second := next.token()
			t.Logf("the next entered %v after the pause began", time.Since(began).Round(10*time.Millisecond))
			require.Greater(t, second, first)
			way.resume()
			began = time.Now()
			eventually(t, "the holder has ended", func() bool { return !held.runs() })
			t.Logf("the holder was stopped within %v of its going on", time.Since(began).Round(10*time.Millisecond))
			eventually(t, "it has joined anew", func() bool { return a.joined() > terms })
			behind.outside()
			next.letGo()
			last := a.take("true")
			require.Greater(t, last.token(), second)
			last.exits(0)
			require.False(t, behind.runs())
			held.exits(75)
		})
	}
	t.Run("for good", func(t *testing.T) {
		a.during(t)
		b.during(t)
		first := a.take("read line").token()
		a.kill()
		next := b.take("true")
		require.Greater(t, next.token(), first)
		next.exits(0)
	})
}

// A dead host is cut off from the disk before anybody enters. One that only stood still, and does not even know,
// writes no more when it goes on: not a sector by the command that it still runs.
func TestFencedHost(t *testing.T) {
	disk := image(t)
	format(t, disk, "--policy", "fence")
	s := serve(t, disk)
	ma, mb := couple(t, s.scsi("a"), s.scsi("b"), func(m *machine) {
		m.run("modprobe", "sd_mod")
		m.disk("virtio_scsi", "/dev/sda")
	})
	a, b := ma.join(1, "/dev/sda", "--fence", "pr"), mb.join(2, "/dev/sda", "--fence", "pr")
	held := a.take("pr /dev/sda 0 count; echo stopped; read line")
	held.says("counting")
	a.pause()
	began := time.Now()
	next := b.take("read line")
	next.token()
	t.Logf("the next entered %v after the pause began", time.Since(began).Round(10*time.Millisecond))
	last := counted(t, disk)
	a.resume()
	held.exits(75)
	require.Equal(t, last, counted(t, disk), "it wrote after it was fenced")
	next.letGo()
	eventually(t, "it has joined anew, with another key", func() bool { return a.joined() == 2 })
	a.take("pr /dev/sda 0 write").exits(0)
}

// A host whose bakeryd is killed and not started again is reset by its watchdog, and nobody enters before that.
func TestWatchdogOfAHost(t *testing.T) {
	c := cards["pci"]
	disk := image(t)
	format(t, disk)
	ma, mb := couple(t, append(plain(disk), c.device...), plain(disk), func(m *machine) {
		m.disk("virtio_blk", "/dev/vda")
		m.run("modprobe", c.module)
	})
	b := mb.join(2, "/dev/vda")

	a := ma.join(1, "/dev/vda", "--watchdog", "/dev/watchdog")
	state := func() string { return strings.TrimSpace(a.sh("cat /sys/class/watchdog/watchdog0/state")) }
	require.Equal(t, "active", state())
	a.bakeryd.signal(syscall.SIGTERM)
	a.bakeryd.exits(0)
	require.Equal(t, "inactive", state(), "a clean leave disarms it")

	a = ma.join(1, "/dev/vda", "--watchdog", "/dev/watchdog")
	// Nobody but the watchdog stops this one.
	held := a.take("trap '' TERM; while :; do sleep 1; done")
	held.token()
	a.bakeryd.signal(syscall.SIGKILL)
	began := time.Now()
	next := b.take("read line")
	next.token()
	t.Logf("the next entered %v after bakeryd was killed", time.Since(began).Round(10*time.Millisecond))
	require.Contains(t, a.monitor.seen(), c.event, "the machine was not reset")
	require.Equal(t, 1, b.up())
	next.letGo()
	a.struck(c)
}

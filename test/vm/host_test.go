//go:build vm

package vm

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// usual is the default lease of a cluster: its machines are slow.
const usual = 6 * time.Second

// format creates a lockspace on an image.
func format(t *testing.T, image string, flags ...string) {
	t.Helper()
	require.NoError(t, execute(base, append([]string{bakeryctl(), "format", image, "--force",
		"--hosts", "8", "--locks", "16", "--lease", usual.String()}, flags...)...))
}

// bakeryctl returns the path of the machines' bakeryctl, which runs here as well.
func bakeryctl() string { return filepath.Join(base, "root/bin/bakeryctl") }

// host is a machine with a bakeryd.
type host struct {
	*machine
	id      int
	card    card     // its watchdog, if any
	flags   []string // of bakeryd
	bakeryd *command
	locks   []*cable // paths to the disks of the lockspace, in a cluster
	data    *cable   // path to the disk with the counter
}

// join starts bakeryd in a machine and waits until it serves.
func (m *machine) join(id int, dev string, flags ...string) *host {
	m.t.Helper()
	h := &host{machine: m, id: id, flags: append([]string{"--device", dev, "--host-id", fmt.Sprint(id), "--log-level", "debug"}, flags...)}
	h.begin()
	return h
}

// begin starts bakeryd and waits until it serves.
func (h *host) begin() {
	h.t.Helper()
	h.launch()
	h.bakeryd.says("msg=serving")
}

func (h *host) launch() {
	h.t.Helper()
	h.bakeryd = h.start(append([]string{"bakeryd"}, h.flags...)...)
}

// joined returns how often bakeryd has joined.
func (h *host) joined() int {
	h.t.Helper()
	require.True(h.t, h.bakeryd.runs())
	return strings.Count(h.bakeryd.said(), "msg=serving")
}

// take starts a script under the lock "job".
func (h *host) take(script string) *command { h.t.Helper(); return h.under("job", script) }

// under starts a script under a lock.
func (h *host) under(lock, script string) *command {
	h.t.Helper()
	return h.start("bakeryctl", "lock", lock, "--", "sh", "-c", `echo "token $BAKERY_TOKEN."; `+script)
}

var tokenLine = regexp.MustCompile(`token (\d+)\.`)

// token waits until a command of take runs, and returns its token with leading zeros.
func (c *command) token() string {
	c.m.t.Helper()
	c.says("token ")
	found := tokenLine.FindStringSubmatch(c.said())
	require.NotNil(c.m.t, found, c.said())
	return fmt.Sprintf("%020s", found[1])
}

// number returns the token of a command that prints it.
func (c *command) number() uint64 {
	c.m.t.Helper()
	n, err := strconv.ParseUint(c.token(), 10, 64)
	require.NoError(c.m.t, err)
	return n
}

// outside checks that a command of take does not run.
func (c *command) outside() {
	c.m.t.Helper()
	require.NotContains(c.m.t, c.said(), "token ")
}

// letGo ends a command that reads a line, and waits for its end.
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

// A machine that is paused beyond its lease lets others enter, grants nothing when it continues,
// stops its holder, and joins again. This is also so if its clocks stopped: then it learns of the
// loss from the disk. If it loses its power instead, others enter as well.
func TestPausedHost(t *testing.T) {
	t.Parallel()
	disk := image(t, "disk", 16)
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
			t.Logf("the next host entered %v after the start of the pause", time.Since(began).Round(10*time.Millisecond))
			require.Greater(t, second, first)
			way.resume()
			began = time.Now()
			eventually(t, "the holder has ended", func() bool { return !held.runs() })
			t.Logf("the holder was stopped within %v after the pause", time.Since(began).Round(10*time.Millisecond))
			eventually(t, "it has joined again", func() bool { return a.joined() > terms })
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

// A dead host is cut off from the disk before another enters. A host that was only paused, and does
// not know it, writes no more sector when it continues, not even by the command that it still runs.
func TestFencedHost(t *testing.T) {
	t.Parallel()
	disk := image(t, "disk", 16)
	format(t, disk, "--policy", "fence")
	s := serve(t, disk)
	ma, mb := couple(t, scsi("a", s.unit(1)), scsi("b", s.unit(1)), func(m *machine) {
		m.run("modprobe", "sd_mod")
		m.disk("virtio_scsi", "/dev/sda")
	})
	b := mb.join(2, "/dev/sda", "--fence", "pr") // first: see gather
	a := ma.join(1, "/dev/sda", "--fence", "pr")
	held := a.take("pr /dev/sda 0 count; echo stopped; read line")
	held.says("counting")
	a.pause()
	began := time.Now()
	next := b.take("read line")
	next.token()
	t.Logf("the next host entered %v after the start of the pause", time.Since(began).Round(10*time.Millisecond))
	last := counted(t, disk)
	a.resume()
	held.exits(75)
	require.Equal(t, last, counted(t, disk), "it wrote after it was fenced")
	next.letGo()
	eventually(t, "it has joined again, with another key", func() bool { return a.joined() == 2 })
	a.take("pr /dev/sda 0 write").exits(0)
}

//go:build vm

package vm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/report"
)

// outage is a loss of disks of the lockspace.
type outage struct {
	// silent: the cable is held; closed: it is cut; fails: the machine's kernel fails all requests as
	// well, as with open-iscsi after replacement_timeout.
	how   string
	disks map[*host][]int
}

// outage makes some hosts lose the disks that which returns.
func (c *cluster) outage(how string, hosts []*host, which func(h *host) []int) outage {
	c.t.Helper()
	o := outage{how, map[*host][]int{}}
	for _, h := range hosts {
		o.disks[h] = which(h)
	}
	if how == "fails" {
		o.turn("offline")
	}
	o.each(func(h *host, disk int) {
		if how == "silent" {
			h.locks[disk].hold()
		} else {
			h.locks[disk].cut()
		}
	})
	return o
}

// repair gives the disks back.
func (o outage) repair() {
	o.each(func(h *host, disk int) { h.locks[disk].restore() })
	if o.how == "fails" {
		o.turn("running")
	}
}

// written returns the number of writes to the disks that have ended.
func (o outage) written() map[*cable]uint64 {
	n := map[*cable]uint64{}
	o.each(func(h *host, disk int) { n[h.locks[disk]] = h.memberDisk(disk).IO.Write.Count })
	return n
}

// isOver waits until the disks are up, have all records of their hosts, and are written again.
func (o outage) isOver(written map[*cable]uint64) {
	o.each(func(h *host, disk int) {
		eventually(h.t, fmt.Sprintf("%s uses /dev/%s", h.name, locksName(disk)), func() bool {
			d := h.memberDisk(disk)
			return d.Up() && d.Behind == 0 && d.IO.Write.Count > written[h.locks[disk]]
		})
	})
}

func (o outage) each(f func(h *host, disk int)) {
	for h, disks := range o.disks {
		h.t.Helper()
		for _, disk := range disks {
			f(h, disk)
		}
	}
}

// turn sets the state that the machines' kernels have for the disks. A kernel then sends requests to
// a disk that runs again, and waits for the answers.
func (o outage) turn(state string) {
	var all []*command
	o.each(func(h *host, disk int) {
		all = append(all, h.start("sh", "-ec", fmt.Sprintf("echo %s >/sys/block/$(readlink /dev/%s)/device/state", state, locksName(disk))))
	})
	for _, c := range all {
		c.exits(0)
	}
}

// shows waits until bakeryctl disks shows and names the lost disks.
func (o outage) shows() {
	state, text := "hangs", "hangs"
	if o.how == "fails" {
		state, text = "down", "is down"
	}
	o.each(func(h *host, disk int) {
		eventually(h.t, fmt.Sprintf("for %s /dev/%s %s", h.name, locksName(disk), text), func() bool { return h.memberDisk(disk).State == state })
		require.Contains(h.t, h.run("bakeryctl", "disks"), fmt.Sprintf("member disk %d (/dev/%s) %s", h.memberDisk(disk).Position, locksName(disk), text))
	})
}

// memberDisk returns a disk of the lockspace as bakeryctl disks shows it.
func (h *host) memberDisk(disk int) report.Disk {
	h.t.Helper()
	var all struct{ Disks []report.Disk }
	out := h.run("bakeryctl", "disks", "--json")
	require.NoError(h.t, json.Unmarshal([]byte(out), &all), out)
	i := slices.IndexFunc(all.Disks, func(d report.Disk) bool { return d.Device == "/dev/"+locksName(disk) })
	require.GreaterOrEqual(h.t, i, 0, "%s has no member /dev/%s: %s", h.name, locksName(disk), out)
	return all.Disks[i]
}

// losses returns how often bakeryd has lost its lease.
func (h *host) losses() int { return strings.Count(h.bakeryd.said(), "lease lost") }

// during attributes failures to a subtest, until that ends.
func (c *cluster) during(t *testing.T) {
	whole := c.t
	c.t = t
	t.Cleanup(func() { c.t = whole })
	for _, h := range c.hosts {
		h.during(t)
	}
	for _, m := range c.members {
		whole := m.t
		m.t = t
		t.Cleanup(func() { m.t = whole })
	}
}

// pauses watches the counter. The returned function ends that, and logs the longest time in which the
// counter stood still.
func (c *cluster) pauses(what string) (stop func()) {
	over, result := make(chan struct{}), make(chan string, 1)
	go func() {
		var longest time.Duration
		var from time.Time
		last, since := c.counter().Count, time.Now()
		for ended := false; c.t.Context().Err() == nil; time.Sleep(5 * time.Millisecond) {
			select {
			case <-over:
				ended = true
			default:
			}
			count, now := c.counter().Count, time.Now()
			if count > last || ended {
				if now.Sub(since) > longest {
					longest, from = now.Sub(since), since
				}
				last, since = count, now
			}
			if ended {
				result <- fmt.Sprintf("%v at most, from %s", longest.Round(10*time.Millisecond), from.UTC().Format("15:04:05.000"))
				return
			}
		}
	}()
	return func() {
		c.t.Helper()
		close(over)
		c.measured("%s: the counter stood still for %s", what, <-result)
	}
}

// survives checks that work goes on during an event and after it, that no host loses its lease, and
// that no command is stopped.
func (c *cluster) survives(what string, held []*command, event func()) {
	c.t.Helper()
	stop := c.pauses(what)
	event()
	c.progress(2, c.live()...)
	stop()
	for _, h := range c.live() {
		require.Zero(c.t, h.losses(), "%s has lost its lease", h.name)
	}
	for _, command := range held {
		require.True(c.t, command.runs(), "the command of %s was stopped: %s", command.m.name, command.said())
	}
}

// outlast waits until each host has renewed its lease as often as it does within a lease.
func (c *cluster) outlast() {
	c.t.Helper()
	times := uint64(c.times.Lease/c.times.Renew()) + 1
	before := map[int]uint64{}
	for _, h := range c.live() {
		before[h.id] = c.sequence(h)
	}
	for _, h := range c.live() {
		eventually(c.t, fmt.Sprintf("%s renews its lease %d times", h.name, times), func() bool {
			require.Zero(c.t, h.losses(), "%s has lost its lease", h.name)
			return c.sequence(h) >= before[h.id]+times
		})
	}
}

// lose makes each host lose a disk for longer than a lease, during which work goes on, and gives it
// back.
func (c *cluster) lose(what string, held []*command, how string, which func(h *host) []int) {
	c.t.Helper()
	var o outage
	c.survives(what, held, func() {
		o = c.outage(how, c.live(), which)
		c.outlast()
		o.shows()
	})
	c.survives(what+", and back", held, func() {
		began, before := time.Now(), o.written()
		o.repair()
		o.isOver(before)
		c.measured("all hosts use it again after %v", time.Since(began).Round(10*time.Millisecond))
	})
}

// busy makes all hosts work, each with a command under a lock that no other host wants. step runs a part of
// the test.
func (c *cluster) busy() (held []*command, step func(what string, f func())) {
	c.t.Helper()
	for _, h := range c.hosts {
		h.work()
		held = append(held, h.under("own-"+h.name, "read line"))
		held[len(held)-1].token()
	}
	c.survives("before", held, func() { c.progress(5, c.hosts...) })
	t := c.t
	return held, func(what string, f func()) {
		if !t.Run(what, func(t *testing.T) { c.during(t); f() }) {
			t.FailNow()
		}
	}
}

// A lockspace on three iSCSI targets works while one of them is cut off or restarts, also if that is
// another one for each host. While two are cut off, commands are stopped in time, and no host enters
// without a majority. Hosts and disks are back by themselves.
func TestThreeTargets(t *testing.T) {
	t.Parallel()
	c := gather(t, setup{hosts: 3, disks: 3, lease: 2 * usual})
	a, b, d := c.hosts[0], c.hosts[1], c.hosts[2]
	held, step := c.busy()
	for disk, how := range []string{"silent", "closed", "fails"} {
		what := "one is cut, " + how
		step(what, func() { c.lose(what, held, how, func(*host) []int { return []int{disk} }) })
	}
	for _, how := range []string{"closed", "fails"} {
		what := "another for each host, " + how
		step(what, func() { c.lose(what, held, how, func(h *host) []int { return []int{h.id - 1} }) })
	}
	for disk, m := range c.members {
		what := fmt.Sprintf("target %d restarts", disk+1)
		step(what, func() {
			c.survives(what, held, func() {
				m.stop()
				o := outage{disks: map[*host][]int{a: {disk}, b: {disk}, d: {disk}}}
				before := o.written()
				c.progress(2, c.hosts...)
				m.start()
				o.isOver(before)
			})
		})
	}
	rest(c.hosts...)
	require.Empty(t, c.judge().Interrupted, "sections that were stopped")

	var first, second uint64
	step("two are cut for one host", func() { first = c.oneLosesTwo("closed", held[0]) })
	step("two are cut for all", func() { second = c.allLoseTwo("fails", held[1:]) })
	rest(c.hosts...)
	c.whole(first, second)
}

// oneLosesTwo cuts host a off from two targets during a section, whose token it returns, while
// others work.
func (c *cluster) oneLosesTwo(how string, held *command) (token uint64) {
	c.t.Helper()
	a, others := c.hosts[0], c.hosts[1:]
	terms := a.joined()
	// It checks continuously that no other section runs.
	section, token := a.enter("--stubborn", "--watch")
	for _, h := range others {
		h.work()
	}
	stop, next := c.pauses("two are cut for one host"), c.entered(token)
	began := time.Now()
	o := c.outage(how, []*host{a}, func(*host) []int { return []int{0, 1} })
	section.exits(75)
	held.exits(75)
	c.measured("two are cut for one host: its section was stopped within %v, the next entered after %v, with a lease of %v",
		section.end().Sub(began).Round(10*time.Millisecond), next().Sub(began).Round(10*time.Millisecond), c.times.Lease)
	require.NotContains(c.t, section.said(), "refused", "another section ran at the same time")
	c.progress(2, others...)
	stop()
	c.rejoin(o, map[*host]int{a: terms})
	rest(others...)
	return token
}

// allLoseTwo cuts all hosts off from two targets, during a section of b, whose token it returns.
func (c *cluster) allLoseTwo(how string, held []*command) (token uint64) {
	c.t.Helper()
	section, token := c.hosts[1].enter("--stubborn", "--watch")
	terms := map[*host]int{}
	for _, h := range c.hosts {
		h.work()
		terms[h] = h.joined()
	}
	stop := c.pauses("two are cut for all")
	o := c.outage(how, c.hosts, func(*host) []int { return []int{1, 2} })
	section.exits(75)
	for _, command := range held {
		command.exits(75)
	}
	for _, h := range c.hosts { // by then the next would enter if one disk were enough
		eventually(c.t, h.name+" cannot join", func() bool { return strings.Count(h.bakeryd.said(), "joining again failed") >= 2 })
	}
	require.NotContains(c.t, section.said(), "refused", "another section ran at the same time")
	require.Equal(c.t, token, c.counter().Token, "a section entered without a majority")
	c.rejoin(o, terms)
	c.progress(2, c.hosts...)
	stop()
	return token
}

// rejoin ends an outage, and waits until the hosts have joined again.
func (c *cluster) rejoin(o outage, terms map[*host]int) {
	c.t.Helper()
	began := time.Now()
	o.repair()
	for h, n := range terms {
		eventually(c.t, h.name+" has joined again", func() bool { return h.joined() > n })
	}
	o.isOver(nil)
	c.measured("hosts and disks are back after %v", time.Since(began).Round(10*time.Millisecond))
}

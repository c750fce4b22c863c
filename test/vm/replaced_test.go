//go:build vm

package vm

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Targets are replaced by others while hosts work: one that works, one that fails and one that hangs for all
// hosts, and one after the host of the first attempt lost power. Afterwards another target is cut off each
// time: the new one is needed.
func TestReplacedTarget(t *testing.T) {
	t.Parallel()
	c := gather(t, setup{hosts: 3, disks: 3, spares: 4, lease: 2 * usual})
	members := []int{0, 1, 2} // disks, by position
	held, step := c.busy()
	replace := func(what string, by *host, position, disk int, lost outage) {
		what = "replaced, " + what
		c.survives(what, held, func() {
			began, command := time.Now(), by.replaceDisk(position, disk)
			command.exits(0)
			c.measured("%s: the command took %v", what, time.Since(began).Round(10*time.Millisecond))
			require.Contains(c.t, command.said(), "copying the lockspace to")
			members[position] = disk
			used := outage{disks: map[*host][]int{}}
			for _, h := range c.live() {
				used.disks[h] = []int{disk}
			}
			used.isOver(nil)
		})
		lost.repair()
		c.lose(what+", another one is cut", held, "closed", func(*host) []int { return []int{members[(position+1)%3]} })
	}
	for position, how := range []string{"works", "fails", "silent"} {
		step(how, func() {
			var lost outage
			if how != "works" {
				lost = c.outage(how, c.hosts, func(*host) []int { return []int{members[position]} })
				lost.shows()
			}
			replace(how, c.hosts[position], position, 3+position, lost)
		})
	}
	step("killed", func() {
		a, d := c.hosts[0], c.hosts[2]
		d.rest()
		d.replaceDisk(0, 6).says("position 1 is vacant until this is done")
		d.kill()
		held = held[:2]
		replace("killed", a, 0, 6, outage{})
	})
	rest(c.live()...)
	c.locks = []string{c.locks[members[0]], c.locks[members[1]], c.locks[members[2]]}
	c.whole()
}

// replaceDisk begins to replace the disk at a position, from 0, by a spare one. The command is run again if it
// fails: the disks of a busy lab may not answer in time.
func (h *host) replaceDisk(position, disk int) *command {
	h.t.Helper()
	return h.start("sh", "-c", fmt.Sprintf("until bakeryctl disk replace %d /dev/%s; do sleep 1; done", position+1, locksName(disk)))
}

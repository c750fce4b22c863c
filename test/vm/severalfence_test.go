//go:build vm

package vm

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A lockspace on three disks, fenced by reservations. A disk that a host does not reach when it joins
// gets its key later. A host that is paused is cut off from two of the disks, while the host that fences
// it does not reach the third. When it continues it writes nothing there, and joins again with another
// key.
func TestFencedOnSeveralDisks(t *testing.T) {
	t.Parallel()
	sizes := map[string]int64{"one": 16, "two": 17, "three": 18} // the lockspace has less
	var images, flags []string
	var direct, cabled []unit
	var third *cable // of b
	disks := []string{"one", "two", "three"}
	for _, name := range disks {
		images = append(images, image(t, name, sizes[name]))
		// tgt names a disk by its number, so each target has the earlier ones as well
		s, lun := serve(t, images...), len(images)
		third = lay(t, s.portal)
		direct, cabled = append(direct, s.unit(lun)), append(cabled, unit{third.address(), lun})
		flags = append(flags, "--device", "/dev/"+name)
	}
	format(t, images[0], append(slices.Clone(images[1:]), "--policy", "fence")...)
	ma, mb := couple(t, scsi("a", direct...), scsi("b", cabled...), func(m *machine) { m.disks(sizes) })
	third.hold()
	b := mb.join(2, "/dev/one", append(flags[2:], "--fence", "pr")...) // first: see gather
	a := ma.join(1, "/dev/one", append(flags[2:], "--fence", "pr")...)
	keys := func(disk string) int {
		return len(strings.Fields(strings.Split(a.run("pr", "/dev/"+disk, "0", "keys"), "]")[0]))
	}
	require.Equal(t, 2, keys("one"))
	require.Equal(t, 1, keys("three"))
	third.restore()
	eventually(t, "b has its key on the third disk", func() bool { return keys("three") == 2 })
	eventually(t, "b uses the third disk", func() bool { return !strings.Contains(b.run("bakeryctl", "disks"), "down") })

	held := a.take("pr /dev/one 0 count; echo stopped; read line")
	held.says("counting")
	a.pause()
	third.hold()
	next := b.take("read line")
	next.token()
	last := counted(t, images[0])
	a.resume()
	held.exits(75)
	require.Equal(t, last, counted(t, images[0]), "it wrote after it was fenced")
	next.letGo()
	third.restore()
	eventually(t, "it has joined again, with another key", func() bool { return a.joined() == 2 })
	for _, disk := range disks {
		a.run("pr", "/dev/"+disk, "0", "write")
	}
	a.take("true").exits(0)
}

// A lockspace on three disks with fence-after, on a target that aborts writes: a paused host is fenced on all
// of them within seconds, and its late write is refused. A host that does not reach one of the disks cannot
// do that before the lease of a dead host is over: then a majority suffices.
func TestFencedEarlyOnSeveralDisks(t *testing.T) {
	t.Parallel()
	several := early
	several.disks = 3
	c := gather(t, several)
	a, b := c.hosts[0], c.hosts[1]
	late, first := c.haltUntilFenced(a.pause, a.resume)
	c.refused(late)
	c.afterwards()

	b.locks[2].hold()
	eventually(t, "the third disk hangs for b", func() bool { return b.memberDisk(2).State == "hangs" })
	_, second := a.enter()
	b.work()
	began, next := time.Now(), c.entered(second)
	a.kill()
	c.times.FenceAfter = 0
	c.othersWaited(next(), began, 0)
	require.Contains(t, b.bakeryd.said(), "done on 2 member disks, want 3")
	b.locks[2].restore()
	c.progress(2, b)
	rest(b)
	c.whole(first, second)
}

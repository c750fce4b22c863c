package locks

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// membersCluster is a cluster with its directory and slots on three disks. The host table is on a
// disk of its own: these tests are about the directory alone.
type membersCluster struct {
	*cluster
	disks [3]*disktest.Memory
	sb    layout.Superblock
	space layout.Space
}

// onMembers runs a test in virtual time with a cluster on three disks.
func onMembers(t *testing.T, f func(t *testing.T, c *membersCluster)) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		// in the future: creation ids and tickets are small numbers, as in these tests
		c := &membersCluster{cluster: clusterOf(t, 4, 4, time.Now().Add(time.Hour))}
		c.sb = c.SB
		c.sb.Members = layout.Members{Epoch: 1, Positions: 3, Disks: [layout.MaxPositions]layout.UUID{{1}, {2}, {3}}}
		c.space = c.sb.Space()
		for i := range c.disks {
			c.disks[i] = disktest.NewMemory(max(c.Geo.Size(), layout.HeadSize), 512, 512)
		}
		f(t, c)
	})
}

// runOnMembers runs a subtest of onMembers.
func runOnMembers(t *testing.T, name string, f func(t *testing.T, c *membersCluster)) {
	t.Run(name, func(t *testing.T) { onMembers(t, f) })
}

// memberHost is a host and its disks, which can be made to fail for it alone.
type memberHost struct {
	*testHost
	members [3]*disktest.Faulty
	earlier atomic.Uint32 // mirror.Positions to which an earlier process of the host has a request in flight
}

// memberSet is the device of a host, as lockspace.Disks is.
type memberSet struct {
	*mirror.Set
	h *memberHost
}

func (s memberSet) Finish(off, n int64, most time.Duration) mirror.Positions {
	return s.Set.Finish(off, n, most) | mirror.Positions(s.h.earlier.Load())
}

// join joins a host. before is called before it joins.
func (c *membersCluster) join(id int, before func(h *memberHost), change ...func(*hostConfig)) *memberHost {
	c.t.Helper()
	h := &memberHost{}
	h.testHost = c.host(id, append(change, func(cfg *hostConfig) {
		cfg.members = func() (blockdev.Device, layout.Superblock, error) {
			var list []mirror.Member
			for i := range c.disks {
				list = append(list, mirror.Member{Name: fmt.Sprint("disk", i), Open: func() (blockdev.Device, error) {
					h.members[i] = disktest.NewFaulty(c.disks[i].Open(), disktest.FaultyOptions{})
					return h.members[i], nil
				}})
			}
			set, err := mirror.Open(list, mirror.Options{
				Stride: c.Geo.Stride, Size: c.Geo.Size(), Codec: lockspacetest.Codec{Space: c.space}, Timeout: 100 * time.Millisecond, Patience: 100 * time.Millisecond, Retry: 50 * time.Millisecond,
				Check: func(int, blockdev.Device) error { return nil },
			})
			before(h)
			return memberSet{set, h}, c.sb, err
		}
	})...)
	c.t.Cleanup(func() {
		for _, m := range h.members {
			m.RemoveFaults()
		}
	})
	return h
}

func (c *membersCluster) member(id int, change ...func(*hostConfig)) *memberHost {
	return c.join(id, func(*memberHost) {}, change...)
}

// blind makes a host read no valid copy of a record on one member.
func (h *memberHost) blind(member int, at int64) *disktest.Injection {
	return h.members[member].Inject(disktest.Fault{Op: blockdev.OpRead, From: at, To: at + 512, Returns: disktest.Garbage})
}

// hang makes the host's writes of a record hang on one member.
func (h *memberHost) hang(member int, at int64) *disktest.Injection {
	return h.members[member].Inject(disktest.Fault{Op: blockdev.OpWrite, From: at, To: at + 512, Hang: true})
}

// put writes a record on some members.
func (c *membersCluster) put(at int64, encode func(buf []byte) error, members ...int) {
	c.t.Helper()
	for _, m := range members {
		buf := blockdev.Alloc(c.Geo.Stride)
		require.NoError(c.t, encode(buf))
		layout.PlaceCopy(buf, m+1)
		require.NoError(c.t, c.disks[m].Open().Write(buf, at))
	}
}

// entry writes an entry of a version on some members.
func (c *membersCluster) entry(e layout.Entry, version uint64, members ...int) {
	e.Token, e.Sequence = layout.MakeTicket(version, 1), 1
	c.put(c.Geo.Entry(e.Lock), func(buf []byte) error { return c.space.EncodeEntry(buf, e) }, members...)
}

// damage makes copies of an entry unreadable.
func (c *membersCluster) damage(lock int, members ...int) {
	for _, m := range members {
		require.NoError(c.t, c.disks[m].Open().Write(disktest.Random(1, c.Geo.Stride), c.Geo.Entry(lock)))
	}
}

// slot writes the slot of host 1 in a lock, as the host left it, on some members.
func (c *membersCluster) slot(s layout.Slot, members ...int) {
	s.Host = 1
	if s.Incarnation == 0 {
		s.Incarnation = 101
	}
	s.Ticket = layout.MakeTicket(10, 1)
	c.put(c.Geo.Slot(s.Lock, 1), func(buf []byte) error { return c.space.EncodeSlot(buf, s) }, members...)
}

// intend writes the slot of host 1 in the directory's lock, with an intent, on some members.
func (c *membersCluster) intend(e layout.Entry, version uint64, members ...int) {
	c.slot(layout.Slot{Creation: 1, Sequence: version, Value: layout.Intent(e).Value()}, members...)
}

// copies returns the copies of an entry.
func (c *membersCluster) copies(lock int) (all [3]layout.Entry) {
	c.t.Helper()
	for i := range c.disks {
		var err error
		all[i], err = c.space.DecodeEntry(c.record(i, c.Geo.Entry(lock)), lock)
		require.NoError(c.t, err)
	}
	return all
}

// record returns the copy of a record on a member, once all copies are written that can be.
func (c *membersCluster) record(member int, at int64) []byte {
	c.t.Helper()
	synctest.Wait()
	buf := blockdev.Alloc(c.Geo.Stride)
	require.NoError(c.t, c.disks[member].Open().Read(buf, at))
	return buf
}

// slotOf returns the slot of a host in the directory's lock, on one member.
func (c *membersCluster) slotOf(member, host int) layout.Slot {
	c.t.Helper()
	s, err := c.space.DecodeSlot(c.record(member, c.Geo.Slot(lockspace.DirectoryLock, host)), lockspace.DirectoryLock, host)
	require.NoError(c.t, err)
	return s
}

// value returns what the slot of a host in the directory's lock intends, on one member.
func (c *membersCluster) value(member, host int) []byte { return c.slotOf(member, host).Value }

// resolved waits until host 1 intends nothing.
func (c *membersCluster) resolved() {
	c.t.Helper()
	eventually(c.t, "host 1 intends nothing", func() bool { return len(c.value(0, 1))+len(c.value(1, 1))+len(c.value(2, 1)) == 0 })
}

// same requires that all copies of an entry are one lock's, and returns it.
func (c *membersCluster) same(lock int) layout.Entry {
	c.t.Helper()
	all := c.copies(lock)
	require.Equal(c.t, [3]layout.Entry{all[0], all[0], all[0]}, all)
	all[0].Token, all[0].Sequence = 0, 0
	return all[0]
}

// The locks of PROTOCOL.md: x.1 and y, and x cleared.
func x1(place int) layout.Entry    { return layout.Entry{Lock: place, Name: "x", Permits: 1, Creation: 1} }
func y1(place int) layout.Entry    { return layout.Entry{Lock: place, Name: "y", Permits: 1, Creation: 1} }
func free2(place int) layout.Entry { return layout.Entry{Lock: place, Creation: 2} }

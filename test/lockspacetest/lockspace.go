package lockspacetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// Lockspace is a lockspace in memory, without hosts.
type Lockspace struct {
	T    testing.TB
	Disk *disktest.Memory
	SB   layout.Superblock
	Geo  layout.Geometry // geometry of SB as formatted
	Now  uint64          // ticket number that Intend uses
}

// New returns a lockspace with the given time of formatting.
func New(t testing.TB, hosts, locks int, formatted time.Time) *Lockspace {
	g := layout.Geometry{Stride: 512, Hosts: hosts, Locks: locks}
	c := &Lockspace{T: t, Geo: g, Disk: disktest.NewMemory(max(g.Size(), layout.HeadSize), 512, 512), SB: layout.Superblock{
		UUID: layout.UUID{1, 2, 3}, Name: "test", Geometry: g, Lease: 2 * time.Second,
		Formatted: formatted.UTC().Truncate(time.Microsecond),
	}}
	PutSuperblocks(t, c.Disk.Open(), c.SB)
	return c
}

// Format writes SB as the superblock and its copy.
func (c *Lockspace) Format() {
	c.T.Helper()
	PutSuperblocks(c.T, c.Disk.Open(), c.SB)
}

// SetPolicy formats the lockspace for another policy.
func (c *Lockspace) SetPolicy(policy layout.Policy) {
	c.T.Helper()
	c.SB.Policy = policy
	c.Format()
}

// Write writes a record, as a host does.
func (c *Lockspace) Write(off int64, encode func(buf []byte) error) {
	c.T.Helper()
	buf := blockdev.Alloc(c.Geo.Stride)
	require.NoError(c.T, encode(buf))
	require.NoError(c.T, c.Disk.Open().Write(buf, off))
}

// WriteEntry writes a directory entry.
func (c *Lockspace) WriteEntry(e layout.Entry) {
	c.T.Helper()
	c.Write(c.Geo.Entry(e.Lock), func(buf []byte) error { return c.SB.Space().EncodeEntry(buf, e) })
}

// Entry returns the directory entry of a lock.
func (c *Lockspace) Entry(lock int) layout.Entry {
	c.T.Helper()
	buf := blockdev.Alloc(c.Geo.Stride)
	require.NoError(c.T, c.Disk.Open().Read(buf, c.Geo.Entry(lock)))
	e, err := c.SB.Space().DecodeEntry(buf, lock)
	require.NoError(c.T, err)
	return e
}

// Slot returns a slot.
func (c *Lockspace) Slot(lock, host int) layout.Slot {
	c.T.Helper()
	buf := blockdev.Alloc(c.Geo.Stride)
	require.NoError(c.T, c.Disk.Open().Read(buf, c.Geo.Slot(lock, host)))
	s, err := c.SB.Space().DecodeSlot(buf, lock, host)
	require.NoError(c.T, err)
	return s
}

// HostRecord returns a host record.
func (c *Lockspace) HostRecord(id int) layout.HostRecord {
	c.T.Helper()
	buf := blockdev.Alloc(c.Geo.Stride)
	require.NoError(c.T, c.Disk.Open().Read(buf, c.Geo.Host(id)))
	r, err := c.SB.Space().DecodeHost(buf, id)
	require.NoError(c.T, err)
	return r
}

// Spoil overwrites a record with bytes that do not decode.
func (c *Lockspace) Spoil(off int64) {
	c.T.Helper()
	c.Write(off, func(buf []byte) error { clear(buf); buf[7] = 7; return nil })
}

// NewFilled returns a valid lockspace with records of every kind and state.
func NewFilled(t testing.TB) *Lockspace {
	t.Helper()
	c := New(t, 5, 6, time.Now())
	c.Now = bakery.ClockNumber(time.Now(), time.Now())
	c.PutHost(layout.HostRecord{ID: 1, State: layout.StateLive, ReadHorizon: 4})
	c.PutHost(layout.HostRecord{ID: 2, State: layout.StateLive, ReadHorizon: 4, Verdicts: []layout.Verdict{{Host: 4, Incarnation: 104}}})
	c.PutHost(layout.HostRecord{ID: 3, State: layout.StateLeft, ReadHorizon: 3})
	c.PutHost(layout.HostRecord{ID: 4, State: layout.StateLive, ReadHorizon: 1}) // dead
	c.WriteEntry(layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: c.Now})
	c.WriteEntry(layout.Entry{Lock: 2, Creation: c.Now + 50}) // removed
	c.WriteEntry(layout.Entry{Lock: 3, Name: "y", Permits: 2, Creation: c.Now + 60})
	c.WriteEntry(layout.Entry{Lock: 5, Name: "being removed", Permits: 1, Creation: c.Now})
	c.PutSlot(layout.Slot{Lock: 0, Host: 1, Creation: 1, Ticket: layout.MakeTicket(c.Now, 1)})
	c.PutSlot(layout.Slot{Lock: 0, Host: 2, Phase: layout.Held, Creation: 1, Ticket: layout.MakeTicket(c.Now, 2)})
	c.PutSlot(layout.Slot{Lock: 1, Host: 1, Phase: layout.Held, Creation: c.Now, Ticket: layout.MakeTicket(c.Now+1, 1),
		Value: []byte("v"), ValueToken: layout.MakeTicket(c.Now+1, 1).Grant(3)})
	c.PutSlot(layout.Slot{Lock: 1, Host: 2, Phase: layout.Waiting, Creation: c.Now, Ticket: layout.MakeTicket(c.Now+2, 2)})
	c.PutSlot(layout.Slot{Lock: 1, Host: 4, Phase: layout.Held, Creation: c.Now, Ticket: layout.MakeTicket(c.Now+3, 4)})
	c.PutSlot(layout.Slot{Lock: 2, Host: 1, Creation: c.Now + 50, Ticket: layout.MakeTicket(c.Now+9, 1)})
	c.PutSlot(layout.Slot{Lock: 2, Host: 4, Phase: layout.Waiting, Creation: c.Now, Ticket: layout.MakeTicket(c.Now+8, 4)})
	for host := 1; host <= 2; host++ {
		c.PutSlot(layout.Slot{Lock: 3, Host: host, Phase: layout.Held, Creation: c.Now + 60, Ticket: layout.MakeTicket(c.Now+70, host)})
	}
	c.PutSlot(layout.Slot{Lock: 3, Host: 3, Creation: c.Now + 1, Ticket: layout.MakeTicket(c.Now+70, 3)})
	c.PutSlot(layout.Slot{Lock: 5, Host: 1, Phase: layout.Held, Creation: c.Now + 20, Ticket: layout.MakeTicket(c.Now+9, 1)}) // the mark
	c.PutSlot(layout.Slot{Lock: 5, Host: 2, Phase: layout.Choosing, Creation: c.Now - 5, Ticket: layout.MakeTicket(c.Now+9, 2)})
	return c
}

// PutHost writes a host record, with the incarnation 100 + id if it has none.
func (c *Lockspace) PutHost(r layout.HostRecord) {
	if r.Incarnation == 0 {
		r.Incarnation = 100 + uint64(r.ID)
	}
	r.Name = fmt.Sprintf("db%d", r.ID)
	c.Write(c.Geo.Host(r.ID), func(buf []byte) error { return c.SB.Space().EncodeHost(buf, r) })
}

// PutSlot writes a slot, with the incarnation of PutHost if it has none.
func (c *Lockspace) PutSlot(s layout.Slot) {
	if s.Incarnation == 0 {
		s.Incarnation = 100 + uint64(s.Host)
	}
	c.Write(c.Geo.Slot(s.Lock, s.Host), func(buf []byte) error { return c.SB.Space().EncodeSlot(buf, s) })
}

// Intend writes the slot of the internal lock by which a host announces a directory write.
func (c *Lockspace) Intend(host int, e layout.Entry) {
	c.PutSlot(layout.Slot{Lock: 0, Host: host, Creation: 1, Ticket: layout.MakeTicket(c.Now, host), Value: layout.Intent(e).Value()})
}

package store

import (
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/stall"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/clocktest"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// process is a driver of one host in lock 1, on three disks. It can be killed between two actions, and
// in the middle of a write.
type process struct {
	t       *testing.T
	c       *lockspacetest.Several
	host    int
	set     lockspacetest.Fixed
	members []*disktest.Faulty
	file    *handover.File
	dir     string

	m     *bakery.Machine
	slots *Slots
	next  bakery.Action
}

const testCreation = 5

func entryOfX() layout.Entry {
	return layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: testCreation}
}

// newProcess starts the first process of a host.
func newProcess(t *testing.T, c *lockspacetest.Several, host int) *process {
	p := &process{t: t, c: c, host: host, dir: t.TempDir()}
	var err error
	p.file, err = handover.Create(p.dir, c.SB.UUID, host)
	require.NoError(t, err)
	require.NoError(t, p.file.CreateNotes(c.SB.Geometry.Locks))
	p.file.PutTerm(handover.Term{UUID: c.SB.UUID, Boot: hostid.BootID(), HostID: host, Incarnation: uint64(100 + host), Ready: true})
	p.begin(false)
	return p
}

func (p *process) begin(resumed bool) {
	p.t.Cleanup(p.file.Close)
	p.set, p.members = p.c.Open()
	disk := &Disk{Dev: p.set, SB: p.c.SB, Clock: clocktest.Clock{}, Stalls: new(stall.Watch)}
	p.slots = disk.Slots(entryOfX(), p.host, uint64(100+p.host), resumed)
	p.slots.Generation, p.slots.Notes = 1, p.file.SlotNotes()
	p.m = bakery.New(bakery.Config{Host: p.host, Incarnation: uint64(100 + p.host), Creation: testCreation, Permits: 1})
}

// close ends a process whose faults are gone.
func (p *process) close() {
	for _, m := range p.members {
		m.RemoveFaults()
	}
	_ = p.set.Close() // what a kill has cut off is never written
}

// restart kills the process and starts the next one, which sees two disks. entered says whether its
// ticket was granted.
func (p *process) restart(entered func(bakery.Slot) bool, sees ...int) {
	p.t.Helper()
	for _, m := range p.members {
		m.Crash()
	}
	p.close()
	p.file.Close()
	var err error
	p.file, _, _, err = handover.Resume(p.dir, p.c.SB.UUID, p.host, time.Hour)
	require.NoError(p.t, err)
	require.NoError(p.t, p.file.ResumeNotes(p.c.SB.Space()))
	p.begin(true)
	p.sees(sees...)
	for _, note := range p.file.SlotNotes().Left() { // as package locks does
		require.NoError(p.t, p.slots.Complete(note))
	}
	v, err := p.slots.ReadOne(p.host)
	require.NoError(p.t, err)
	require.True(p.t, v.Readable)
	p.next = p.m.Resume(v.Slot, entered(v.Slot))
}

func (p *process) slot() (from, to int64) {
	at := p.c.SB.Geometry.Slot(1, p.host)
	return at, at + int64(p.c.SB.Geometry.Stride)
}

// sees makes the process read these disks only.
func (p *process) sees(disks ...int) {
	for i, m := range p.members {
		m.RemoveFaults()
		if !slices.Contains(disks, i) {
			m.Inject(disktest.Fault{Op: blockdev.OpRead, From: p.c.SB.Geometry.Slot(1, 1), Err: unix.EIO})
		}
	}
}

// act executes the next action, which is of a kind.
func (p *process) act(kind bakery.Kind) {
	p.t.Helper()
	require.Equal(p.t, kind, p.next.Kind, "%+v", p.next)
	switch kind {
	case bakery.Write:
		require.NoError(p.t, p.slots.Write(p.next.Slot, layout.Holder{}))
		synctest.Wait() // for the third disk
		p.next = p.m.Written()
	case bakery.Read:
		views, err := p.slots.ReadAll(2)
		require.NoError(p.t, err)
		p.next = p.m.SlotsRead(views)
	}
}

// step executes the next action, unless the process has entered or is done.
func (p *process) step() {
	p.t.Helper()
	switch p.next.Kind {
	case bakery.Granted, bakery.Done:
	case bakery.Poll:
		p.next = p.m.Recheck()
	case bakery.ReadHosts:
		p.next = p.m.HostsRead([]bakery.Host{{Readable: true, Incarnation: 101}, {Readable: true, Incarnation: 102}})
	default:
		p.act(p.next.Kind)
	}
}

// run executes actions until the process has entered, is done, or has waited for the other one.
func (p *process) run() {
	p.t.Helper()
	for range 20 {
		p.step()
	}
}

// halfWrite executes a write that reaches one disk.
func (p *process) halfWrite(disk int) {
	p.t.Helper()
	require.Equal(p.t, bakery.Write, p.next.Kind, "%+v", p.next)
	from, to := p.slot()
	for i, m := range p.members {
		if i != disk {
			m.Inject(disktest.Fault{Op: blockdev.OpWrite, From: from, To: to, Err: unix.EIO})
		}
	}
	require.ErrorIs(p.t, p.slots.Write(p.next.Slot, layout.Holder{}), mirror.ErrNoMajority)
	synctest.Wait()
	for i, s := range p.c.Slots(1, p.host) {
		require.Equal(p.t, i == disk, protocolSlot(s) == p.next.Slot, "disk %d", i)
	}
}

// twoProcesses runs a test of hosts 1 and 2. Host b has begun a claim, which is on disk 0.
func twoProcesses(t *testing.T, a, b int, test func(t *testing.T, a, b *process, claimed func())) {
	synctest.Test(t, func(t *testing.T) {
		c := lockspacetest.NewSeveral(t, 3, 2, 1, time.Now())
		a, b := newProcess(t, c, a), newProcess(t, c, b)
		defer func() { a.close(); b.close() }()
		b.next = b.m.Acquire(bakery.Request{})
		b.run()
		b.next = b.m.Release() // its slot is not blank any more
		b.run()
		b.next = b.m.Acquire(bakery.Request{})
		from, to := b.slot()
		var hung []*disktest.Injection
		for _, m := range b.members[1:] {
			hung = append(hung, m.Inject(disktest.Fault{Op: blockdev.OpWrite, From: from, To: to, Hang: true}))
		}
		written := make(chan struct{})
		go func() {
			defer close(written)
			b.act(bakery.Write)
		}()
		synctest.Wait()
		test(t, a, b, func() {
			for _, h := range hung {
				h.Release()
			}
			<-written
			require.Equal(t, layout.Choosing, protocolSlot(c.Slots(1, b.host)[2]).Phase)
		})
		require.False(t, a.m.Holding() && b.m.Holding(), "both are inside")
	})
}

// look takes a process from its look to the end of its doorway.
func (p *process) look() {
	p.t.Helper()
	p.act(bakery.Read)
	for p.m.OwnSlot().Phase == layout.Choosing && p.next.Kind != bakery.Granted || p.next.Kind == bakery.Write {
		p.step()
	}
}

// drawNumber takes a process to the write of its number, because it sees the claim of the other one.
func (p *process) drawNumber() {
	p.sees(0, 1)
	p.next = p.m.Acquire(bakery.Request{})
	for p.next.Slot.Phase != layout.Waiting {
		p.step()
	}
}

func never(bakery.Slot) bool { return false }

// TestNoteFirst_HalfWrittenNumber_IsSeenByAll: bakery/PROTOCOL.md, "Several disks", the first
// interleaving without NOTE-FIRST.
func TestNoteFirst_HalfWrittenNumber_IsSeenByAll(t *testing.T) {
	twoProcesses(t, 2, 1, func(t *testing.T, a, b *process, claimed func()) {
		a.drawNumber()
		a.halfWrite(2)
		a.restart(never, 1, 2)
		a.run() // b's claim is on disk 0
		require.True(t, a.m.Holding())
		claimed()
		b.sees(0, 1)
		b.look()
		b.sees(1, 2)
		b.run()
	})
}

// TestNoteFirst_HalfWrittenWithdrawal_IsNotContinued: the second interleaving.
func TestNoteFirst_HalfWrittenWithdrawal_IsNotContinued(t *testing.T) {
	twoProcesses(t, 1, 2, func(t *testing.T, a, b *process, claimed func()) {
		a.drawNumber()
		a.act(bakery.Write)
		a.m.Cancel()
		a.next = a.m.Recheck()
		a.halfWrite(0)
		a.restart(never, 1, 2)
		a.run()
		claimed()
		b.sees(1, 2)
		b.look()
		b.sees(0, 1)
		b.run()
		require.True(t, b.m.Holding())
	})
}

// TestNoteFirst_HalfWrittenRelease_StaysReleased: the third interleaving.
func TestNoteFirst_HalfWrittenRelease_StaysReleased(t *testing.T) {
	twoProcesses(t, 1, 2, func(t *testing.T, a, b *process, claimed func()) {
		a.drawNumber()
		a.act(bakery.Write)
		a.sees(1, 2)
		a.run()
		require.True(t, a.m.Holding())
		grant := a.m.Token()
		a.next = a.m.Release()
		a.halfWrite(0)
		entered := func(s bakery.Slot) bool {
			if s.Phase == layout.Idle {
				grant = 0 // the note of the grant is removed
			}
			return s.Ticket == grant
		}
		a.restart(entered, 0, 1)
		a.restart(entered, 1, 2)
		a.run()
		claimed()
		b.sees(1, 2)
		b.look()
		b.sees(0, 1)
		b.run()
		require.True(t, b.m.Holding())
	})
}

// onThreeDisks runs a test of one process.
func onThreeDisks(t *testing.T, test func(t *testing.T, p *process)) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, lockspacetest.NewSeveral(t, 3, 2, 1, time.Now()), 1)
		defer func() { p.close() }()
		test(t, p)
	})
}

// TestSlots_WriteFails_RetryHasAGreaterVersion: the write that failed may be on a minority, and the
// retry has other contents.
func TestSlots_WriteFails_RetryHasAGreaterVersion(t *testing.T) {
	onThreeDisks(t, func(t *testing.T, p *process) {
		p.next = p.m.Acquire(bakery.Request{})
		p.act(bakery.Read)
		p.halfWrite(1)
		failed := p.c.Slots(1, 1)[1]
		require.Equal(t, uint32(1), failed.Generation)
		p.sees(0, 1, 2)
		other := p.next.Slot
		other.Mode = layout.Shared
		require.NoError(t, p.slots.Write(other, layout.Holder{PID: 9}))
		synctest.Wait()
		for _, s := range p.c.Slots(1, 1) {
			require.Equal(t, other, protocolSlot(s))
			require.Equal(t, uint32(1), s.Generation)
			require.Greater(t, s.Sequence, failed.Sequence)
		}
		before := p.c.Slots(1, 1)[0]
		_, err := p.slots.Rewrite()
		require.NoError(t, err)
		synctest.Wait()
		after := p.c.Slots(1, 1)[0]
		require.Greater(t, after.Sequence, before.Sequence)
		after.Sequence = before.Sequence
		require.Equal(t, before, after)
	})
}

// TestSlots_ResumedAndUnreadable_VersionIsGreater: the own slot cannot be read, and its next version
// exceeds all that earlier processes of the incarnation wrote.
func TestSlots_ResumedAndUnreadable_VersionIsGreater(t *testing.T) {
	onThreeDisks(t, func(t *testing.T, p *process) {
		p.next = p.m.Acquire(bakery.Request{})
		p.act(bakery.Read)
		for range 100 {
			time.Sleep(time.Microsecond)
			require.NoError(t, p.slots.Write(p.next.Slot, layout.Holder{}))
		}
		synctest.Wait()
		before := p.c.Slots(1, 1)[0].Sequence
		p.file.Close()
		p.close()
		time.Sleep(time.Millisecond) // no process ends and begins in less
		p.begin(true)
		p.slots.Notes = nil
		require.NoError(t, p.slots.Write(p.next.Slot, layout.Holder{}))
		synctest.Wait()
		require.Greater(t, p.c.Slots(1, 1)[0].Sequence, before)
	})
}

// TestSlots_SequenceFound_CountsInItsIncarnation: another generation outranks it.
func TestSlots_SequenceFound_CountsInItsIncarnation(t *testing.T) {
	const far = 1 << 62
	for incarnation, exceeds := range map[uint64]bool{101: true, 77: false} {
		onThreeDisks(t, func(t *testing.T, p *process) {
			p.c.Put(p.c.SB.Geometry.Slot(1, 1), func(buf []byte) error {
				return p.c.SB.Space().EncodeSlot(buf, layout.Slot{Lock: 1, Host: 1, Incarnation: incarnation, Creation: testCreation, Generation: 1, Sequence: far,
					Ticket: layout.MakeTicket(9, 1)})
			})
			_, err := p.slots.ReadOne(1)
			require.NoError(t, err)
			p.slots.Generation = 2
			_, err = p.slots.Rewrite()
			require.NoError(t, err)
			require.Equal(t, exceeds, p.slots.Own.Sequence > far)
		})
	}
}

// TestSlots_Write_IsNotedUntilItReturned: with the contents that are on the disks.
func TestSlots_Write_IsNotedUntilItReturned(t *testing.T) {
	onThreeDisks(t, func(t *testing.T, p *process) {
		noted := func() map[int][]byte {
			file, _, _, err := handover.Resume(p.dir, p.c.SB.UUID, 1, time.Hour)
			require.NoError(t, err)
			defer file.Close()
			require.NoError(t, file.ResumeNotes(p.c.SB.Space()))
			return file.SlotNotes().Left()
		}
		p.next = p.m.Acquire(bakery.Request{})
		p.act(bakery.Read)
		from, to := p.slot()
		var hung []*disktest.Injection
		for _, m := range p.members {
			hung = append(hung, m.Inject(disktest.Fault{Op: blockdev.OpWrite, From: from, To: to, Hang: true}))
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.act(bakery.Write)
		}()
		synctest.Wait()
		during := noted()
		require.Len(t, during, 1)
		for _, h := range hung {
			h.Release()
		}
		<-done
		require.Empty(t, noted())
		s, err := p.c.SB.Space().DecodeSlot(during[1], 1, 1)
		require.NoError(t, err)
		require.Equal(t, p.c.Slots(1, 1)[0], s)
		require.FileExists(t, filepath.Join(p.dir, p.c.SB.UUID.String()+"-1.slots"))

		p.file.Close() // as a process that is about to end
		require.Error(t, p.slots.Write(p.m.OwnSlot(), layout.Holder{}), "without a note no write begins")
		synctest.Wait()
		require.Equal(t, s, p.c.Slots(1, 1)[0])
	})
}

package locks

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/clocktest"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// severalCluster is a number of hosts in one process, on three disks in memory.
type severalCluster struct {
	*lockspacetest.Several
	hosts *cluster
}

// onThreeDisks runs a test in virtual time with a cluster on three disks, which has lock x.
func onThreeDisks(t *testing.T, f func(t *testing.T, c *severalCluster)) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		c := lockspacetest.NewSeveral(t, 3, 8, 4, time.Now())
		c.Put(c.SB.Geometry.Entry(1), func(buf []byte) error {
			return c.SB.Space().EncodeEntry(buf, layout.Entry{Lock: 1, Name: "x", Permits: 1, Token: layout.MakeTicket(1, 1), Sequence: 1,
				Creation: bakery.ClockNumber(c.SB.Formatted, c.SB.Formatted)})
		})
		f(t, &severalCluster{c, &cluster{Lockspace: &lockspacetest.Lockspace{T: t, SB: c.SB, Geo: c.SB.Geometry}, t: t, clock: clocktest.Clock{}}})
	})
}

// process is a host that can be killed and continued.
type process struct {
	*testHost
	c    *severalCluster
	id   int
	dir  string
	file *handover.File
	lifetime
}

// lifetime is what the processes of a host do not share.
type lifetime struct {
	set   lockspacetest.Fixed
	disks []*disktest.Faulty
	io    *ownSlots
}

// ownSlots records the requests that concern a host's own slots.
type ownSlots struct {
	lockspacetest.Fixed
	host  int
	mu    sync.Mutex // guards the fields below
	calls map[int][]layout.Slot
	wrote time.Duration // when the last write began
}

// note records a request; a blank slot for a read.
func (d *ownSlots) note(p []byte, off int64, write bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for lock := range d.SB.Geometry.Locks + 1 {
		at := d.SB.Geometry.Slot(lock, d.host)
		if off == 0 || at < off || at >= off+int64(len(p)) { // 0: the search for a superblock
			continue
		}
		var s layout.Slot
		if write {
			s, _ = d.SB.Space().DecodeSlot(p[at-off:], lock, d.host)
			d.wrote = clocktest.Clock{}.Now()
		}
		d.calls[lock] = append(d.calls[lock], s)
	}
}

// of returns the requests that concern the slot of a lock.
func (d *ownSlots) of(lock int) []layout.Slot {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[lock]
}

func (d *ownSlots) Read(p []byte, off int64) error {
	d.note(p, off, false)
	return d.Set.Read(p, off)
}

func (d *ownSlots) Write(p []byte, off int64) error {
	d.note(p, off, true)
	return d.Set.Write(p, off)
}

// begin opens the disks for a process.
func (c *severalCluster) begin(id int) (l lifetime) {
	l.set, l.disks = c.Open()
	l.io = &ownSlots{Fixed: l.set, host: id, calls: map[int][]layout.Slot{}}
	return l
}

// start starts the first process of a host.
func (c *severalCluster) start(id int) *process {
	c.T.Helper()
	p := &process{c: c, id: id, dir: c.T.TempDir(), lifetime: c.begin(id)}
	var err error
	p.file, err = handover.Create(p.dir, c.SB.UUID, id)
	require.NoError(c.T, err)
	require.NoError(c.T, p.file.CreateNotes(c.SB.Geometry.Locks))
	p.join(nil)
	return p
}

func (p *process) join(resume *lease.Term) {
	p.c.T.Helper()
	file, life := p.file, p.lifetime
	h, err := join(p.c.T.Context(), p.c.hosts.config(p.id, through(life.io), func(cfg *hostConfig) { cfg.handover, cfg.resume = file, resume }))
	require.NoError(p.c.T, err)
	p.testHost = h
	p.c.T.Cleanup(func() {
		defer file.Close()
		for _, d := range life.disks {
			d.RemoveFaults()
		}
		ctx, cancel := context.WithTimeout(context.Background(), generous)
		defer cancel()
		if err := h.Close(ctx); h.mem.Err() == nil { // else it was killed, or lost its lease
			require.NoError(p.c.T, err)
		}
		_ = life.set.Close() // what a kill has cut off is never written
	})
}

// kill ends the process as SIGKILL does, as far as its disks and its files are concerned. It returns the
// notes that it leaves. The rest of it runs until its lease is over.
func (p *process) kill() (notes map[int]layout.Slot) {
	p.c.T.Helper()
	p.file.Close()
	for _, d := range p.disks {
		d.Crash()
	}
	p.Halt()
	file := p.reopen()
	defer file.Close()
	notes = map[int]layout.Slot{}
	for lock, sector := range file.SlotNotes().Left() {
		var err error
		notes[lock], err = p.c.SB.Space().DecodeSlot(sector, lock, p.id)
		require.NoError(p.c.T, err)
	}
	return notes
}

// reopen opens the files of the previous process.
func (p *process) reopen() *handover.File {
	p.c.T.Helper()
	file, _, _, err := handover.Resume(p.dir, p.c.SB.UUID, p.id, p.c.hosts.clock.Now())
	require.NoError(p.c.T, err)
	require.NoError(p.c.T, file.ResumeNotes(p.c.SB.Space()))
	return file
}

// resume starts the next process on disks with faults.
func (p *process) resume(faults ...func(disks []*disktest.Faulty)) {
	p.c.T.Helper()
	var term handover.Term
	var err error
	p.file, term, _, err = handover.Resume(p.dir, p.c.SB.UUID, p.id, p.c.hosts.clock.Now())
	require.NoError(p.c.T, err)
	require.NoError(p.c.T, p.file.ResumeNotes(p.c.SB.Space()))
	p.lifetime = p.c.begin(p.id)
	for _, f := range faults {
		f(p.disks)
	}
	p.join(&lease.Term{ID: term.HostID, Incarnation: term.Incarnation, T0: term.T0, Ready: term.Ready, Clean: term.Clean})
	require.True(p.c.T, p.mem.Resumed())
}

// reachOne makes writes of the own slot in lock 1 reach the first disk only, by a fault of the others.
func (p *process) reachOne(f disktest.Fault) {
	f.Op, f.From = blockdev.OpWrite, p.c.SB.Geometry.Slot(1, p.id)
	f.To = f.From + int64(p.c.SB.Geometry.Stride)
	synctest.Wait() // an earlier write returns when two disks have it: the third has it, too
	for _, d := range p.disks[1:] {
		d.Inject(f)
	}
}

// onAll requires every copy of the slot to be s.
func (p *process) onAll(lock int, want layout.Slot) {
	p.c.T.Helper()
	for _, s := range p.c.Slots(lock, p.id) {
		require.Equal(p.c.T, want, s)
	}
}

// TestResume_HalfWrittenSlot_IsCompletedFirst: NOTE-FIRST. The next process sees the other two disks.
func TestResume_HalfWrittenSlot_IsCompletedFirst(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		half  func(t *testing.T, c *severalCluster, p *process)
		phase layout.Phase
	}{
		"number": {func(t *testing.T, c *severalCluster, p *process) {
			h := acquire(t, c.start(2).testHost, Request{Name: "x"})
			p.reachOne(disktest.Fault{After: 1, Hang: true})
			asking(t.Context(), p.testHost, Request{Name: "x"})
			t.Cleanup(func() { require.NoError(t, h.Release()) })
		}, layout.Waiting},
		"withdrawal": {func(t *testing.T, c *severalCluster, p *process) {
			h := acquire(t, c.start(2).testHost, Request{Name: "x"})
			ctx, cancel := context.WithCancel(t.Context())
			asking(ctx, p.testHost, Request{Name: "x"})
			eventually(t, "it waits", func() bool { return c.Slots(1, 1)[2].Phase == layout.Waiting })
			p.reachOne(disktest.Fault{Err: unix.EIO})
			cancel()
			t.Cleanup(func() { require.NoError(t, h.Release()) })
		}, layout.Idle},
		"release": {func(t *testing.T, _ *severalCluster, p *process) {
			h := acquire(t, p.testHost, Request{Name: "x"})
			p.reachOne(disktest.Fault{Err: unix.EIO})
			go func() { _ = h.Release() }()
		}, layout.Idle},
	} {
		t.Run(name, func(t *testing.T) {
			onThreeDisks(t, func(t *testing.T, c *severalCluster) {
				p := c.start(1)
				require.NoError(t, acquire(t, p.testHost, Request{Name: "x"}).Release()) // its slot is not blank
				test.half(t, c, p)
				eventually(t, "the write is on one disk", func() bool {
					s := c.Slots(1, 1)
					return s[0].Phase == test.phase && s[0].Sequence > max(s[1].Sequence, s[2].Sequence)
				})
				notes := p.kill()
				require.Equal(t, test.phase, notes[1].Phase)
				require.Equal(t, uint32(1), notes[1].Generation)
				require.NotEqual(t, notes[1], c.Slots(1, 1)[1])
				p.resume(func(disks []*disktest.Faulty) {
					disks[0].Inject(disktest.Fault{From: c.SB.Geometry.Entry(1), Err: unix.EIO})
				})
				require.Equal(t, notes[1], p.io.of(1)[0], "that is written before anything is read")
				for _, d := range p.disks {
					d.RemoveFaults()
				}
				eventually(t, "no client of this host is left", func() bool { return c.Slots(1, 1)[1].Phase == layout.Idle })
			})
		})
	}
}

// TestResume_NotesOfAnyLock_AreCompleted: also of one whose entry is free or damaged, and of the
// directory's lock.
func TestResume_NotesOfAnyLock_AreCompleted(t *testing.T) {
	onThreeDisks(t, func(t *testing.T, c *severalCluster) {
		p := c.start(1)
		incarnation := p.mem.Incarnation()
		p.kill()
		c.Put(c.SB.Geometry.Entry(3), func(buf []byte) error { buf[7] = 7; return nil })
		file := p.reopen()
		want := map[int]layout.Slot{}
		for _, lock := range []int{0, 1, 2, 3} {
			s := c.Slots(lock, 1)[0]
			s.Incarnation, s.Creation, s.Generation, s.Sequence, s.Ticket = incarnation, max(s.Creation, 1), max(s.Generation, 1), s.Sequence+5, layout.MakeTicket(9, 1)
			sector := make([]byte, layout.RecordSize)
			require.NoError(t, c.SB.Space().EncodeSlot(sector, s))
			require.NoError(t, file.SlotNotes().Put(lock, sector))
			want[lock] = s
		}
		file.Close()
		p.resume()
		for lock, s := range want {
			require.Equal(t, s, p.io.of(lock)[0], "lock %d", lock)
			synctest.Wait()
			if lock > 0 {
				p.onAll(lock, s)
			}
		}
		require.Empty(t, p.kill())
	})
}

// TestResume_LeaseLostMeanwhile_DoesNotWrite: the sessions of the previous process end when the lease does.
func TestResume_LeaseLostMeanwhile_DoesNotWrite(t *testing.T) {
	onThreeDisks(t, func(t *testing.T, c *severalCluster) {
		p := c.start(1)
		h := acquire(t, p.testHost, Request{Name: "x"})
		p.reachOne(disktest.Fault{Err: unix.EIO})
		go func() { _ = h.Release() }()
		eventually(t, "the write fails", func() bool { return c.Slots(1, 1)[0].Phase == layout.Idle })
		notes := p.kill()
		p.resume(func(disks []*disktest.Faulty) {
			p.reachOne(disktest.Fault{Err: unix.EIO})
			for _, d := range disks[1:] {
				d.Inject(disktest.Fault{Op: blockdev.OpWrite, To: c.SB.Geometry.Entry(1), Err: unix.EIO}) // no renewal
			}
		})
		<-p.Lost()
		require.Greater(t, p.mem.Moments().Deadline-p.io.wrote, p.times().Budget(), "no write begins later (LAST-CALL)")
		require.Equal(t, layout.Choosing, c.Slots(1, 1)[1].Phase)
		require.Equal(t, notes, p.kill(), "it is still not complete")
	})
}

// TestValue_HalfWritten_LastsOnceAHolderWasTold: the writer of a value has died, and later reads would
// return it or not.
func TestValue_HalfWritten_LastsOnceAHolderWasTold(t *testing.T) {
	onThreeDisks(t, func(t *testing.T, c *severalCluster) {
		a, b := c.start(1), c.start(3)
		require.NoError(t, acquire(t, b.testHost, Request{Name: "x"}).Release())
		h := acquire(t, a.testHost, Request{Name: "x"})
		require.NoError(t, h.SetValue(t.Context(), []byte("old")))
		token := layout.MakeTicket(h.Token().Number()+1, 2)
		half := layout.Slot{Lock: 1, Host: 2, Incarnation: 7, Creation: h.Lock().Entry.Creation, Generation: 1, Sequence: 1, Ticket: token,
			Value: []byte("new"), ValueToken: token}
		buf := blockdev.Alloc(c.SB.Geometry.Stride)
		require.NoError(t, c.SB.Space().EncodeSlot(buf, half))
		require.NoError(t, c.Disks[0].Open().Write(buf, c.SB.Geometry.Slot(1, 2)))
		without := func(p *process, disk int) {
			for _, d := range p.disks {
				d.RemoveFaults()
			}
			p.disks[disk].Inject(disktest.Fault{Op: blockdev.OpRead, From: c.SB.Geometry.Slot(1, 1), Err: unix.EIO})
		}
		writes := func(p *process) (n int) {
			for _, s := range p.io.of(1) {
				if !s.Blank() {
					n++
				}
			}
			return n
		}
		want := Value{Name: "x", Value: []byte("new"), Token: token, Host: 2}
		without(b, 2)
		before := writes(b)
		require.Equal(t, want, valueOf(t, b.testHost))
		require.Equal(t, before, writes(b), "its clients do not hold the lock")
		without(b, 0)
		require.Equal(t, "old", string(valueOf(t, b.testHost).Value), "no holder has learned of it")

		without(a, 2)
		require.Equal(t, want, valueOf(t, a.testHost))
		without(b, 0)
		require.Equal(t, want, valueOf(t, b.testHost))
		before = writes(a)
		require.Equal(t, want, valueOf(t, a.testHost))
		require.Equal(t, before, writes(a), "the own slot shows it")
		require.NoError(t, h.Release())
		without(b, 0)
		h = acquire(t, b.testHost, Request{Name: "x"})
		require.Equal(t, want, valueOf(t, b.testHost))
		require.NoError(t, h.SetValue(t.Context(), []byte("later")))
		require.Equal(t, "later", string(valueOf(t, a.testHost).Value))
		require.NoError(t, h.Release())
	})
}

// TestValue_OneDisk_IsNotCopied: there a value that was read stays.
func TestValue_OneDisk_IsNotCopied(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		setValue(t, a, "v")
		h := acquire(t, b, Request{Name: "x"})
		require.Equal(t, "v", string(valueOf(t, b).Value))
		require.NoError(t, h.Release())
		require.Zero(t, c.Slot(1, 2).ValueToken)
	})
}

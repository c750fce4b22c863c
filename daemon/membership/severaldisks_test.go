package membership

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/stall"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/clocktest"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
	"github.com/bakeryd/bakeryd/test/logtest"
)

// disks are the member disks of a lockspace, in memory.
type disks struct {
	lockspacetest.Codec

	t    *testing.T
	sb   layout.Superblock
	disk []*disktest.Memory
}

// onDisks runs a test in a bubble, with a lockspace on n disks and a lease of a minute.
func onDisks(t *testing.T, n int, test func(t *testing.T, d *disks)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := layout.Geometry{Stride: 512, Hosts: 4, Locks: 4}
		d := &disks{t: t, sb: layout.Superblock{UUID: layout.UUID{1, 2, 3}, Name: "test", Geometry: g, Lease: time.Minute,
			Formatted: time.Now().UTC().Truncate(time.Microsecond), Members: layout.Members{Epoch: 7, Positions: n}}}
		for i := range n {
			d.sb.Members.Disks[i] = layout.UUID{9, byte(i + 1)}
			d.disk = append(d.disk, disktest.NewMemory(max(g.Size(), layout.HeadSize), 512, 512))
		}
		for i := range n {
			sb := d.sb
			sb.Position = i + 1
			lockspacetest.PutSuperblocks(t, d.disk[i].Open(), sb)
		}
		d.sb.Position = 1
		d.Codec = lockspacetest.Codec{Space: d.sb.Space()}
		test(t, d)
	})
}

func (d *disks) times() timing.Times { return timing.Of(d.sb) }

// record returns the record of a host on one disk.
func (d *disks) record(disk, host int) layout.HostRecord {
	d.t.Helper()
	p := blockdev.Alloc(512)
	require.NoError(d.t, d.disk[disk].Open().Read(p, d.sb.Geometry.Host(host)))
	r, err := d.sb.Space().DecodeHost(p, host)
	require.NoError(d.t, err)
	return r
}

// slot returns a slot of host 1.
func (d *disks) slot(incarnation, sequence uint64) []byte {
	p := blockdev.Alloc(512)
	require.NoError(d.t, d.sb.Space().EncodeSlot(p, layout.Slot{Lock: 1, Host: 1, Incarnation: incarnation, Generation: 1, Sequence: sequence}))
	return p
}

// states returns the state of a host on each disk.
func (d *disks) states(host int) (states []layout.HostState) {
	for i := range d.disk {
		states = append(states, d.record(i, host).State)
	}
	return states
}

// machine is a computer with its view of the disks, and the files of its bakeryd.
type machine struct {
	*disks
	*lockspace.Disks
	*Member
	dir     string
	ids     *hostid.Identity
	log     logtest.Log
	missing []atomic.Bool
	hung    atomic.Pointer[chan struct{}] // if set, superblocks are read after it is closed

	mu    sync.Mutex
	views []*disktest.Faulty // as opened last
}

// boot opens the disks on a machine with a name, in a directory of an earlier one or a new one.
func (d *disks) boot(name string, earlier *machine) *machine { return d.bootWithout(name, earlier) }

// bootWithout is boot with missing disks.
func (d *disks) bootWithout(name string, earlier *machine, missing ...int) *machine {
	d.t.Helper()
	m := &machine{disks: d, dir: d.t.TempDir(), missing: make([]atomic.Bool, len(d.disk)), views: make([]*disktest.Faulty, len(d.disk))}
	if earlier != nil {
		m.dir = earlier.dir
	}
	for _, i := range missing {
		m.missing[i].Store(true)
	}
	var paths []string
	for i := range d.disk {
		paths = append(paths, fmt.Sprintf("disk%d", i))
	}
	dev, _, _, err := lockspace.OpenDisks(paths, lockspace.DiskOptions{Open: m.open,
		Timeout: d.times().ClaimBudget() / 2, Patience: d.times().ClaimBudget() / 2, Retry: d.times().Retry()})
	require.NoError(d.t, err)
	m.Disks = dev.(*lockspace.Disks)
	m.ids, err = hostid.New(hostid.Options{Name: name, MachineID: [16]byte{name[0]}, RuntimeDir: m.dir, StateDir: m.dir}, d.sb.UUID)
	require.NoError(d.t, err)
	d.t.Cleanup(m.shutDown)
	return m
}

// heldDisk is a disk that the machine can lock.
type heldDisk struct{ *disktest.Faulty }

func (heldDisk) Lock(int64, int64) error { return nil }

// open opens a disk. A read-only one is closed soon, and is no view.
func (m *machine) open(path string, readOnly bool) (lockspace.Disk, error) {
	var i int
	if _, err := fmt.Sscanf(path, "disk%d", &i); err != nil {
		return nil, err
	}
	if m.missing[i].Load() {
		return nil, unix.EIO
	}
	if hung := m.hung.Load(); hung != nil && readOnly {
		<-*hung
	}
	f := disktest.NewFaulty(m.disk[i].Open(), disktest.FaultyOptions{})
	if !readOnly {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.views[i] = f
	}
	return heldDisk{f}, nil
}

// view returns a disk as this machine opened it last.
func (m *machine) view(i int) *disktest.Faulty {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.views[i]
}

// start begins to join as host 1.
func (m *machine) start(change func(*Config)) *machine {
	m.t.Helper()
	cfg := Config{
		Dev: m.Disks, SB: m.sb, Log: slog.New(slog.NewTextHandler(&m.log, nil)), Identity: m.ids, Clock: clocktest.Clock{}, Tally: new(tally.Tally),
		Stalls: new(stall.Watch), Quarantine: new(stall.Quarantine), Lease: lease.Config{ID: 1, Self: m.ids.HostRecord()},
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	m.Member, err = Join(cfg)
	require.NoError(m.t, err)
	return m
}

// live waits until the machine is live.
func (m *machine) live() *machine {
	m.t.Helper()
	select {
	case <-m.Ready():
	case <-m.Over():
		require.NoError(m.t, m.Err())
	}
	return m
}

// disappear makes a disk fail for this machine.
func (m *machine) disappear(i int) {
	m.missing[i].Store(true)
	m.view(i).Inject(disktest.Fault{Err: unix.EIO})
}

// kill ends the process of the machine: nothing of it reaches a disk any more, and its lock files are free.
// Its handover file was closed.
func (m *machine) kill() {
	for i := range m.disk {
		m.missing[i].Store(true)
		m.view(i).Crash()
		m.view(i).RemoveFaults()
	}
	m.LoseFor(errors.New("killed"))
	m.Wait()
	m.ids.ReleaseLockFiles()
}

// shutDown ends the machine, also after a kill.
func (m *machine) shutDown() {
	for i := range m.disk {
		m.view(i).RemoveFaults()
	}
	if m.Member != nil {
		m.LoseFor(errors.New("the test is over"))
		<-m.Over()
		m.Wait()
	}
	_ = m.Disks.Close()
	m.ids.ReleaseLockFiles()
}

// keepTerms begins a handover file.
func (m *machine) keepTerms() *handover.File {
	m.t.Helper()
	file, err := handover.Create(m.dir, m.sb.UUID, 1)
	require.NoError(m.t, err)
	m.KeepTerms(file)
	m.t.Cleanup(file.Close)
	return file
}

// resume begins to continue the lease of the machine's earlier process.
func (m *machine) resume() *machine {
	m.t.Helper()
	file, term, _, err := handover.Resume(m.dir, m.sb.UUID, 1, clocktest.Clock{}.Now())
	require.NoError(m.t, err)
	m.t.Cleanup(file.Close)
	return m.start(func(cfg *Config) {
		cfg.Previous = file
		cfg.Lease.Resume = &lease.Term{ID: term.HostID, Incarnation: term.Incarnation, T0: term.T0, Ready: term.Ready, Clean: term.Clean, ReadHorizon: term.ReadHorizon, Epoch: term.Epoch}
	})
}

// renewal waits for the next renewal, and returns how long that took.
func (m *machine) renewal() time.Duration {
	m.t.Helper()
	begun := time.Now()
	select {
	case <-m.Renewals():
	case <-m.Over():
		require.NoError(m.t, m.Err())
	}
	return time.Since(begun)
}

// own is a fault of the record of host 1 alone.
func (d *disks) own(f disktest.Fault) disktest.Fault {
	f.From = d.sb.Geometry.Host(1)
	f.To = f.From + 512
	return f
}

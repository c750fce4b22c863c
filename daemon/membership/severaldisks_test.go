package membership

import (
	"bytes"
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
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/stall"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/clocktest"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
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
			Formatted: time.Now().UTC().Truncate(time.Microsecond), Members: layout.Members{Epoch: 7}}}
		for i := range n {
			d.sb.Members.Disks[i] = layout.UUID{9, byte(i)}
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
	*mirror.Set
	*Member
	dir     string
	ids     *hostid.Identity
	log     lines
	missing []atomic.Bool

	mu    sync.Mutex
	views []*disktest.Faulty // as opened last
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// boot opens the disks on a machine with a name, in a directory of an earlier one or a new one.
func (d *disks) boot(name string, earlier *machine) *machine {
	d.t.Helper()
	m := &machine{disks: d, dir: d.t.TempDir(), missing: make([]atomic.Bool, len(d.disk)), views: make([]*disktest.Faulty, len(d.disk))}
	if earlier != nil {
		m.dir = earlier.dir
	}
	var list []mirror.Member
	for i := range d.disk {
		list = append(list, mirror.Member{Name: fmt.Sprintf("disk%d", i), Open: func() (blockdev.Device, error) {
			if m.missing[i].Load() {
				return nil, unix.EIO
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.views[i] = disktest.NewFaulty(d.disk[i].Open(), disktest.FaultyOptions{})
			return m.views[i], nil
		}})
	}
	var err error
	m.Set, err = mirror.Open(list, mirror.Options{Stride: 512, Size: d.sb.Geometry.Size(), Codec: d, Check: m.check,
		Timeout: d.times().ClaimBudget() / 2, Patience: d.times().ClaimBudget() / 2, Retry: d.times().Retry()})
	require.NoError(d.t, err)
	m.ids, err = hostid.New(hostid.Options{Name: name, MachineID: [16]byte{name[0]}, RuntimeDir: m.dir, StateDir: m.dir}, d.sb.UUID)
	require.NoError(d.t, err)
	d.t.Cleanup(m.shutDown)
	return m
}

// check passes a disk that has its superblock and what host 1 wrote there.
func (m *machine) check(position int, dev blockdev.Device) error {
	p := blockdev.Alloc(512)
	if err := dev.Read(p, 0); err != nil {
		return err
	}
	sb, err := layout.DecodeSuperblock(p, 0)
	if err != nil || sb.UUID != m.sb.UUID || sb.Position != position+1 {
		return errors.New("not the disk")
	}
	if m.Set == nil { // being opened
		return nil
	}
	off := m.sb.Geometry.Host(1)
	if err := dev.Read(p, off); err != nil {
		return err
	}
	if v, err := m.Version(p, off, position); err == nil && v.Less(m.Set.Kept(off, position)) {
		return errors.New("it lost a record")
	}
	return nil
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
		Dev: m.Set, SB: m.sb, Log: slog.New(slog.NewTextHandler(&m.log, nil)), Identity: m.ids, Clock: clocktest.Clock{}, Tally: new(tally.Tally),
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
	_ = m.Set.Close()
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
		cfg.Lease.Resume = &lease.Term{ID: term.HostID, Incarnation: term.Incarnation, T0: term.T0, Ready: term.Ready, Clean: term.Clean, ReadHorizon: term.ReadHorizon}
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

package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/layout"
)

// Ready reports whether tickets may be taken.
func (m *Machine) Ready() bool { return m.phase == live && m.ready }

// Writing reports whether a write of the own record is under way.
func (m *Machine) Writing() bool { return m.writing }

// Host returns one host.
func (m *Machine) Host(id int) Host { return m.hosts[id-1] }

// rig drives one machine by hand over a table of four hosts.
type rig struct {
	t     *testing.T
	m     *Machine
	times timing.Times
	now   time.Duration
	table []Record
	out   []Action
	bad   map[int]error // by host id: the error of a record that stays unreadable, whatever is written
}

var (
	self  = layout.HostRecord{Name: "self", MachineID: machineID(1), BootID: machineID(1)}
	times = timing.Times{Lease: 30 * time.Second}
)

func newRig(t *testing.T, cfg Config) *rig {
	t.Helper()
	if cfg.Hosts = 4; cfg.Times == (timing.Times{}) {
		cfg.Times = times
	}
	if cfg.Self.Name == "" {
		cfg.Self = self
	}
	next := uint64(100)
	cfg.Incarnation = func() uint64 { next++; return next }
	r := &rig{t: t, m: New(cfg), times: cfg.Times, now: time.Hour, table: make([]Record, 4)}
	for i := range r.table {
		r.table[i].ID = i + 1
	}
	return r
}

// set writes a record into the table.
func (r *rig) set(id int, state layout.HostState, machine byte, incarnation, sequence uint64) *Record {
	rec := &r.table[id-1]
	*rec = Record{HostRecord: layout.HostRecord{
		ID: id, State: state, MachineID: machineID(machine), Incarnation: incarnation, Sequence: sequence, Name: "other", ReadHorizon: 4,
	}}
	return rec
}

// got returns the first action of a kind that the last event returned.
func got[A Action](r *rig) (A, bool) {
	for _, a := range r.out {
		if a, ok := a.(A); ok {
			return a, true
		}
	}
	var none A
	return none, false
}

func want[A Action](r *rig) A {
	r.t.Helper()
	a, ok := got[A](r)
	require.True(r.t, ok, "want %T, got %#v", a, r.out)
	return a
}

func none[A Action](r *rig) {
	r.t.Helper()
	a, ok := got[A](r)
	require.False(r.t, ok, "unexpected %#v", a)
}

func (r *rig) start() { r.out = r.m.Start(r.now) }

// tick advances to the next wake-up.
func (r *rig) tick() {
	r.t.Helper()
	r.now = max(r.now, want[Wait](r).Until)
	r.out = r.m.Tick(r.now)
}

func (r *rig) tickAt(now time.Duration) { r.now = now; r.out = r.m.Tick(now) }

// read completes the requested read, after a time.
func (r *rig) read(took time.Duration) {
	r.t.Helper()
	hosts := want[ReadTable](r).Hosts
	r.now += took
	r.deliver(hosts)
}

// deliver completes a read with the given number of records.
func (r *rig) deliver(hosts int) { r.out = r.m.TableRead(r.now, r.table[:hosts]) }

// write completes the requested write after a time, and returns its record.
func (r *rig) write(took time.Duration) layout.HostRecord {
	r.t.Helper()
	rec := r.land()
	r.ack(took)
	return rec
}

func (r *rig) land() layout.HostRecord {
	r.t.Helper()
	rec := want[Write](r).Record
	r.table[rec.ID-1] = Record{HostRecord: rec, Err: r.bad[rec.ID]}
	return rec
}

func (r *rig) ack(took time.Duration) { r.now += took; r.out = r.m.Written(r.now) }

// join continues from a read that found the id free until the host is live, and returns the
// claim's wait.
func (r *rig) join() time.Duration {
	r.t.Helper()
	require.Equal(r.t, layout.StateJoining, r.write(time.Millisecond).State)
	begin := r.now
	r.tick()
	waited := r.now - begin
	r.read(time.Millisecond)
	require.Equal(r.t, layout.StateLive, r.write(time.Millisecond).State)
	want[Joined](r)
	return waited
}

// live returns a rig whose machine is live as host 1.
func live1(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, Config{ID: 1})
	r.start()
	r.read(0)
	r.join()
	return r
}

// damage makes a record unreadable, whatever is written.
func (r *rig) damage(id int) {
	r.table[id-1].Err = errSim
	r.bad = map[int]error{id: errSim}
}

// run carries out the machine's actions, without delay, until a time.
func (r *rig) run(until time.Duration) {
	r.t.Helper()
	for {
		if _, ok := got[Write](r); ok {
			r.write(0)
			continue
		}
		if _, ok := got[ReadTable](r); ok {
			r.read(0)
			continue
		}
		w, ok := got[Wait](r)
		if !ok || w.Until > until {
			r.now = until
			return
		}
		r.tick()
	}
}

package lease

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// sharing returns a host on a table that other hosts use too.
func sharing(t *testing.T, id int, machine byte, first uint64, now time.Duration, table []Record) *rig {
	r := wideRig(t, id, len(table))
	r.m.cfg.Self.MachineID = machineID(machine)
	next := first
	r.m.cfg.Incarnation = func() uint64 { next++; return next }
	r.table, r.now = table, now
	return r
}

// TestFoundUnreadable: a record that was unreadable when a host joined is not published as found.
// Otherwise the host's late write would claim to cover a host that it does not.
func TestFoundUnreadable(t *testing.T) {
	table := make([]Record, 20)
	for i := range table {
		table[i].ID = i + 1
	}
	// X joins as host 1. While it looks, record 10 (blank) cannot be read for a moment.
	x := sharing(t, 1, 1, 100, time.Hour, table)
	table[9].Err = errors.New("EIO")
	x.start()
	x.read(0)
	table[9].Err = nil
	x.join()
	require.True(t, x.m.Ready())
	require.Equal(t, 3, table[0].ReadHorizon)
	require.GreaterOrEqual(t, x.m.ReadHorizon(), 10, "it reads that record all the same")
	// X renews; the write fails, and may still land.
	var late layout.HostRecord
	for {
		if _, ok := got[ReadTable](x); ok {
			x.read(0)
		}
		if w, ok := got[Write](x); ok {
			late = w.Record
			x.out = x.m.WriteFailed(x.now)
			break
		}
		x.tick()
	}
	// From now on X's reads hang: its lease runs out.
	x.now = x.m.Deadline()
	x.out = x.m.Tick(x.now)
	require.Zero(t, want[Lost](x).Incarnation)

	// The same machine joins again with id 1: Y.
	y := sharing(t, 1, 1, 200, x.now, table)
	y.start()
	for !y.m.Ready() {
		switch {
		case has[ReadTable](y):
			y.read(0)
		case has[Write](y):
			y.write(0)
		default:
			y.tick()
		}
	}
	require.Equal(t, 3, y.m.ReadHorizon())
	y.renewals(2)
	if has[Write](y) {
		y.write(0)
	}
	// now X's write lands, just after a renewal of Y
	table[0] = Record{HostRecord: late}
	// Z joins at 11 (blank) within Y's renewal interval.
	z := sharing(t, 11, 2, 300, y.now, table)
	z.start()
	for i := 0; i < 6 && !z.m.Ready(); i++ {
		switch {
		case has[ReadTable](z):
			z.read(0)
		case has[Write](z):
			z.write(0)
		default:
			z.tick()
		}
	}
	if z.m.Ready() && y.m.Ready() && y.m.Live(z.now) && y.m.ReadHorizon() < 11 {
		t.Fatal("COVERED is broken: host 1 takes tickets and reads 1..3, host 11 takes tickets")
	}
}

func has[A Action](r *rig) bool { _, ok := got[A](r); return ok }

// TestFoundUnreadableFar: one unreadable moment of a blank record far away, in one sweep of one
// host, does not make other hosts read everything.
func TestFoundUnreadableFar(t *testing.T) {
	r := wideLive(t, 1, 2000)
	r.renewals(5)
	r.table[1999].Err = errors.New("EIO")
	r.renewals(1)
	r.table[1999].Err = nil
	// Another host, which never saw that.
	o := wideRig(t, 2, 2000)
	o.table = r.table
	o.now = r.now
	o.m.cfg.Self.MachineID = machineID(2)
	next := uint64(500)
	o.m.cfg.Incarnation = func() uint64 { next++; return next }
	if _, ok := got[Write](r); ok {
		r.write(0)
	}
	o.start()
	o.read(0)
	o.join()
	o.renewals(2, 1)
	require.Equal(t, layout.StateLive, r.table[1].State)
	require.LessOrEqual(t, o.m.ReadHorizon(), 4, "all records above 2 are blank, and readable")
}

// TestRaiseAfterFailedWrite: a raised horizon is published immediately, also if its first write
// fails.
func TestRaiseAfterFailedWrite(t *testing.T) {
	r := wideLive(t, 3, 40)
	r.set(1, layout.StateLive, 2, 7, 1).ReadHorizon = 5
	r.renewals(1, 1)
	if has[Write](r) {
		r.write(0)
	}
	begin := r.now
	r.table[0].ReadHorizon = 30
	r.now += time.Millisecond
	r.out = r.m.Refresh(r.now)
	r.read(0)
	want[Write](r)
	r.out = r.m.WriteFailed(r.now) // once
	for !has[Write](r) {
		if has[ReadTable](r) {
			r.read(0)
			continue
		}
		r.tick()
	}
	if late := r.now - begin; late > times.Renew()/2 {
		t.Fatalf("written again after %v; a retry is every %v", late, times.Retry())
	}
}

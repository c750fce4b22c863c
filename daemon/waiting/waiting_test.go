package waiting

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/layout"
)

func TestStage_For_IsTheLastOne(t *testing.T) {
	var s Stage
	require.Empty(t, s.String())
	s.For("a", "end it")
	require.Equal(t, "a", s.String())
	require.Equal(t, Reason{For: "a", Do: "end it"}, s.Reason())
	n := 0
	s.By(func() Reason { n++; return Reason{For: string(rune('a' + n))} })
	require.Equal(t, "b", s.String())
	require.Equal(t, "c", s.String(), "it is computed when it is asked for")
}

// TestReaders_NamesTheHostsThatDoNotCoverThisOne: with the reason for each, and not all of many.
func TestReaders_NamesTheHostsThatDoNotCoverThisOne(t *testing.T) {
	times := timing.Of(layout.Superblock{Lease: 30 * time.Second})
	live := lease.Host{Readable: true, State: layout.StateLive, Name: "db", ReadHorizon: 2}
	with := func(change func(h *lease.Host)) lease.Host {
		h := live
		change(&h)
		return h
	}
	const next = "the next read of the host table"
	for _, c := range []struct {
		host lease.Host
		want string
	}{
		{lease.Host{State: layout.StateBlank}, next},
		{with(func(h *lease.Host) { h.ReadHorizon = 9 }), next},
		{with(func(h *lease.Host) { h.Gone, h.Settled = true, true }), next},
		{with(func(h *lease.Host) { h.Readable, h.Damaged = false, time.Second }), "the unreadable record of host 1 (db)"},
		{with(func(h *lease.Host) { h.State, h.ReadHorizon = layout.StateJoining, 0 }), "host 1 (db), which is joining, to be live or to give up"},
		{with(func(h *lease.Host) { h.Gone = true }), "the end of the lease of an earlier host 1 (db)"},
		{with(func(h *lease.Host) { h.Read = time.Minute }), "host 1 (db), which is silent, to renew or to be over its lease"},
		{live, "host 1 (db) to read as far as host id 9, once a lease"},
		{with(func(h *lease.Host) { h.ReadHorizon = 7 }), "host 1 (db) to find this host, at its next renewal"},
		{with(func(h *lease.Host) { h.Name, h.ReadHorizon = "a\nb", 8 }), `host 1 ("a\nb") to find this host, at its next renewal`},
	} {
		waits := Readers(9, []lease.Host{c.host}, times)
		require.Equal(t, c.want, waits.For)
		require.Equal(t, strings.Contains(c.want, "unreadable"), waits.Do != "", "the others end by themselves")
		require.Equal(t, Reason{For: next}, Readers(1, []lease.Host{c.host}, times), "it does not wait for itself")
	}
	five := []lease.Host{live, live, live, live, live}
	require.Equal(t, "host 1 (db) to read as far as host id 9, once a lease, host 2 (db) to read as far as host id 9, once a lease, "+
		"host 3 (db) to read as far as host id 9, once a lease, 2 more", Readers(9, five, times).For)
}

// TestSilent_NamesHostsThatAreNotDead.
func TestSilent_NamesHostsThatAreNotDead(t *testing.T) {
	times := timing.Of(layout.Superblock{Lease: 30 * time.Second})
	hosts := []lease.Host{{Readable: true, State: layout.StateLive, Name: "db1"}, {Readable: true, State: layout.StateLive, Name: "db2"}}
	require.Empty(t, Silent(hosts, times))
	hosts[0].Read, hosts[1].Read = time.Minute, time.Minute
	require.Equal(t, "host 1 (db1), host 2 (db2) to renew, or to be declared dead", Silent(hosts, times))
	hosts[0].Gone = true
	require.Equal(t, "host 2 (db2) to renew, or to be declared dead", Silent(hosts, times))
}

package report

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

func TestBlocker(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	holder := Holder{Host: 3, HostName: "db3", PID: 2234, Command: "sleep 300", Since: now.Add(-38*time.Second - 700*time.Millisecond)}
	held := func(change ...func(*Holder)) Lock {
		h := holder
		for _, f := range change {
			f(&h)
		}
		return Lock{Name: "x", Number: 4, Holders: []Holder{h}}
	}
	since := func(d time.Duration) func(*Holder) { return func(h *Holder) { h.Since = now.Add(-d) } }
	several := held()
	several.Permits, several.Holders = 3, append(several.Holders, Holder{Host: 1, HostName: "db1"}, Holder{Host: 2, HostName: "db2"})
	second := Lock{Name: "x", Number: 4, Permits: 2, Holders: []Holder{{Host: 1, HostName: "db1", PID: 5}, holder}}
	behind := Lock{Name: "x", Number: 4, Permits: 1, Queue: []Queued{{Host: 3, HostName: "db3", Phase: layout.Waiting}, {Host: 1, HostName: "db1", Phase: layout.Waiting}}}
	next := behind
	next.Permits, next.Holders = 2, []Holder{{Host: 2, HostName: "db2"}}
	silent := silentHost(21_900, 14_100)

	for name, c := range map[string]struct {
		report *Report
		want   string
	}{
		"free":                 {stuckReport(Host{}, Lock{}), ""},
		"entering":             {stuckReport(Host{}, behind), ""},
		"held":                 {stuckReport(Host{}, held()), `held by db3 (host 3), pid 2234 "sleep 300", for 38 s`},
		"minutes":              {stuckReport(Host{}, held(since(11*time.Minute))), `held by db3 (host 3), pid 2234 "sleep 300", for 11 min`},
		"hours":                {stuckReport(Host{}, held(since(59*time.Hour))), `held by db3 (host 3), pid 2234 "sleep 300", for 59 h`},
		"in the future":        {stuckReport(Host{}, held(since(-time.Hour))), `held by db3 (host 3), pid 2234 "sleep 300", for 0 s`},
		"no name":              {stuckReport(Host{}, held(func(h *Holder) { h.HostName = "" })), `held by host 3, pid 2234 "sleep 300", for 38 s`},
		"no command":           {stuckReport(Host{}, held(func(h *Holder) { h.Command = "" })), "held by db3 (host 3), pid 2234, for 38 s"},
		"only the host":        {stuckReport(Host{}, held(func(h *Holder) { *h = Holder{Host: 3, HostName: "db3"} })), "held by db3 (host 3)"},
		"hostile":              {stuckReport(Host{}, held(func(h *Holder) { h.HostName, h.Command = "d\x1b[2J", "a\n\"b\x9b" })), `held by "d\x1b[2J" (host 3), pid 2234 "a\n\"b\x9b", for 38 s`},
		"several":              {stuckReport(Host{}, several), `held by db3 (host 3), pid 2234 "sleep 300", for 38 s, and 2 more`},
		"silent":               {stuckReport(silent, held()), `held by db3 (host 3), pid 2234 "sleep 300", for 38 s, silent, dead in 15 s`},
		"the second is":        {stuckReport(silent, second), `held by db3 (host 3), pid 2234 "sleep 300", for 38 s, and 1 more, silent, dead in 15 s`},
		"orphan":               {stuckReport(Host{}, held(func(h *Holder) { h.Orphan, h.Processes = true, []int{9} })), "held by db3 (host 3), for 38 s: its bakeryctl is gone, process 9 (sleep 300) lives"},
		"behind a silent one":  {stuckReport(silent, behind), "behind host 3 (db3) in the queue, silent, dead in 15 s"},
		"and next to a holder": {stuckReport(silent, next), "held by db2 (host 2); behind host 3 (db3) in the queue, silent, dead in 15 s"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, c.report.Blocker(&c.report.Locks[0], now))
		})
	}
}

// TestBuildLock_SharedSnapshot_StaysAsItIs: several callers interpret one read at the same time.
func TestBuildLock_SharedSnapshot_StaysAsItIs(t *testing.T) {
	geometry := layout.Superblock{Geometry: layout.Geometry{Hosts: 8, Locks: 4, Stride: 512}}
	k := &Knowledge{Hosts: make([]lease.Host, 8)}
	s := &lockspace.Snapshot{Superblock: geometry, Entries: []layout.Entry{{Lock: 1, Name: "x", Creation: 1, Permits: 1}},
		Damaged: make([]lockspace.Record, 0, 16), Hosts: make([]layout.HostRecord, 0, 16)}
	for id := 2; id <= 7; id++ {
		k.Hosts[id-1] = lease.Host{Incarnation: uint64(id), State: layout.StateLive, Readable: id%2 == 0}
		s.Damaged = append(s.Damaged, lockspace.Record{Kind: lockspace.KindSlot, Host: id, Lock: 1, Err: layout.ErrChecksum})
	}
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 20 {
				BuildLock(s, k, layout.HostRecord{ID: 1, Incarnation: 1, State: layout.StateLive})
			}
		})
	}
	callers.Wait()
	require.Zero(t, s.Damaged[:7][6], "what lies behind the damaged slots")
	require.Zero(t, s.Hosts[:1][0])
}

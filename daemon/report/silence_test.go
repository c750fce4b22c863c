package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// TestReport_DiskNotRead_HostsAreUnknown: the last renewals that this host saw are older than a lease,
// and so is its last read.
func TestReport_DiskNotRead_HostsAreUnknown(t *testing.T) {
	disk, _ := lockspacetest.Example(t)
	s, err := lockspace.Inspect(disk.OpenReadOnly())
	require.NoError(t, err)
	k := watchedBy(31*time.Second, 29*time.Second, 0, 0, 0, 0)
	for i := range k.Hosts {
		k.Hosts[i].Read = k.Hosts[i].Since
	}
	r := Build(s, k)
	r.Judge()
	require.Equal(t, HealthUnknown, r.Hosts[0].Health)
	require.Equal(t, "no renewal seen for 31 s", r.Hosts[0].Silence)
	require.Equal(t, "no renewal seen for 35 s", r.Hosts[0].Aged(4*time.Second).Silence)
	require.Nil(t, r.Hosts[0].DeadInMS)
	require.Equal(t, HealthLive, r.Hosts[1].Health, "its lease runs, for all that is known")
	require.Empty(t, r.Hosts[1].Silence)
}

// ownLock returns a report whose host 1 made it and holds a lock.
func ownLock() *Report {
	r := stuckReport(Host{}, Lock{Name: "x", Number: 1, Holders: []Holder{{Host: 1, HostName: "db1"}, {Host: 2, HostName: "db2"}}})
	r.Hosts[0].Incarnation, r.ThisHost.Incarnation = 11, 11
	return r
}

func TestReport_LostLease_ShowsHostAndHoldsAsLost(t *testing.T) {
	for name, lose := range map[string]func(*ThisHost){
		"lost": func(h *ThisHost) { h.State = "lost" },
		"over": func(h *ThisHost) { h.LeaseLeftMS = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			r := ownLock()
			r.Judge()
			require.Equal(t, HealthLive, r.Hosts[0].Health)
			require.Equal(t, HealthLive, r.Locks[0].Holders[0].HostHealth)
			require.Empty(t, r.Locks[0].Doubt())

			lose(r.ThisHost)
			r.Judge()
			require.Equal(t, HealthLost, r.Hosts[0].Health)
			require.Equal(t, "its lease is lost", r.Hosts[0].Silence)
			require.Equal(t, HealthLive, r.Hosts[1].Health)
			require.Equal(t, HealthLost, r.Locks[0].Holders[0].HostHealth)
			require.Equal(t, HealthLive, r.Locks[0].Holders[1].HostHealth)
			require.Empty(t, r.Locks[0].Doubt(), "one of its holds stands")
			require.Empty(t, r.Locks[0].Stuck)

			r.Locks[0].Queue = []Queued{{Place: 1, Host: 2, HostName: "db2", Phase: layout.Waiting}}
			r.ThisHost.LeaseLeftMS = -12_300
			r.Judge()
			require.Equal(t, "its lease has been over for 12 s", r.Hosts[0].Silence)
			require.Equal(t, "held by host 1 (db1), which has lost its lease: the lock is free when that host is declared dead or joins again", r.Locks[0].Stuck)

			r.ThisHost.State, r.ThisHost.LeaseLeftMS = "live", 20_000
			r.Judge()
			require.Equal(t, HealthLive, r.Hosts[0].Health)
			require.Equal(t, HealthLive, r.Locks[0].Holders[0].HostHealth)
		})
	}
}

// TestReport_OwnRecordNotRead_IsLive: a host knows its lease, whatever it could read.
func TestReport_OwnRecordNotRead_IsLive(t *testing.T) {
	for _, health := range []Health{HealthSilent, HealthUnknown} {
		r := ownLock()
		r.Hosts[0].Health, r.Hosts[0].DeadInMS = health, new(int64(5))
		r.Judge()
		require.Equal(t, HealthLive, r.Hosts[0].Health)
		require.Nil(t, r.Hosts[0].DeadInMS)
	}
	r := ownLock()
	r.Hosts[0].Health, r.ThisHost.State = HealthDead, "lost"
	r.Judge()
	require.Equal(t, HealthDead, r.Hosts[0].Health, "others have its locks")
	r.Hosts[0].Health, r.Hosts[0].Incarnation = HealthLive, 12
	r.Judge()
	require.Equal(t, HealthLive, r.Hosts[0].Health, "of another incarnation")
}

func TestReport_Past_ClaimsNothingOfThePresent(t *testing.T) {
	r := ownLock()
	r.ThisHost.LeaseLeftMS, r.ThisHost.IO = 4000, &IO{OldestMS: 60_000}
	for i := range r.Hosts {
		r.Hosts[i].SilentMS = new(int64(1000))
	}
	r.Hosts[2].Health, r.Hosts[2].DeadInMS = HealthSilent, new(int64(9000))
	r.Hosts = append(r.Hosts, Host{ID: 4, Health: HealthLeft})
	r.Locks[0].Queue = []Queued{{Place: 1, Host: 3, HostName: "db3", Phase: layout.Waiting}}
	r.Judge()
	before := r.Problems

	past := r.Past("it is still joining", "see the log", 34_500*time.Millisecond, 44*time.Second)
	require.Equal(t, []Health{HealthLost, HealthUnknown, HealthUnknown, HealthLeft},
		[]Health{past.Hosts[0].Health, past.Hosts[1].Health, past.Hosts[2].Health, past.Hosts[3].Health})
	require.Equal(t, "its lease has been over for 30 s", past.Hosts[0].Silence)
	require.Equal(t, "no renewal seen for 35 s", past.Hosts[1].Silence)
	require.Nil(t, past.Hosts[2].DeadInMS)
	require.Equal(t, HealthLost, past.Locks[0].Holders[0].HostHealth)
	require.Equal(t, HealthUnknown, past.Locks[0].Doubt())
	require.Empty(t, past.Locks[0].Stuck, "the waiter may have the lock by now")
	require.Equal(t, "joining", past.ThisHost.State)
	require.Equal(t, "error joining: this host is not in the lockspace: it is still joining -> the locks shown are of 44 s ago; see the log", past.Problems[0].String())
	require.Equal(t, "error lease: this host has lost its lease and its locks -> "+joinsAgain, past.Problems[1].String())
	require.Len(t, past.Problems, 2)

	require.Equal(t, HealthLive, r.Hosts[0].Health, "the report itself is unchanged")
	require.Equal(t, int64(1000), *r.Hosts[1].SilentMS)
	require.Equal(t, HealthLive, r.Locks[0].Holders[0].HostHealth)
	require.Equal(t, before, r.Problems)
	require.Equal(t, "live", r.ThisHost.State)

	old := r.Unanswered(34_500 * time.Millisecond)
	require.Equal(t, []Health{HealthUnknown, HealthUnknown, HealthUnknown, HealthLeft},
		[]Health{old.Hosts[0].Health, old.Hosts[1].Health, old.Hosts[2].Health, old.Hosts[3].Health})
	require.Equal(t, "no renewal seen for 35 s", old.Hosts[0].Silence)
	require.Equal(t, HealthUnknown, old.Locks[0].Holders[0].HostHealth, "bakeryd may be alive, and not be reached")
	require.Equal(t, HealthLive, r.Hosts[0].Health)

	past = r.Past("it is still joining", "", time.Second, time.Second)
	require.Equal(t, "its lease is lost", past.Hosts[0].Silence, "the term ended before its lease")
	require.Equal(t, "the locks shown are of 1 s ago", past.Problems[0].Remedy)
}

// TestReport_PastOfSeveralDisks_KeepsTheDisks: those that failed are the reason.
func TestReport_PastOfSeveralDisks_KeepsTheDisks(t *testing.T) {
	r := ownLock()
	r.Disks = []Disk{{Position: 1, Device: "/dev/a", State: "up"}, {Position: 2, Device: "/dev/b", State: "down"}, {Position: 3, Device: "/dev/c", State: "hangs"}}
	r.Judge()
	past := r.Past("it is still joining", "", time.Second, 0)
	require.Equal(t, r.Disks, past.Disks)
	require.Equal(t, "the locks are not known", past.Problems[0].Remedy, "they were never read")
	var texts []string
	for _, p := range past.Problems {
		texts = append(texts, p.Text)
	}
	require.Contains(t, texts, "member disk 2 (/dev/b) is down")
	require.Contains(t, texts, "member disk 3 (/dev/c) hangs")
}

func TestLock_Doubt(t *testing.T) {
	for want, of := range map[Health][][]Health{
		"":            {nil, {HealthLive}, {HealthLost, HealthLive}, {HealthUnknown, HealthSilent}, {""}},
		HealthLost:    {{HealthLost}, {HealthLost, HealthLost}},
		HealthUnknown: {{HealthUnknown}, {HealthLost, HealthUnknown}, {HealthUnknown, HealthLost}},
	} {
		for _, healths := range of {
			l := Lock{}
			for _, h := range healths {
				l.Holders = append(l.Holders, Holder{HostHealth: h})
			}
			require.Equal(t, want, l.Doubt(), healths)
		}
	}
}

package lease

import (
	"flag"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// lives configures a world in which hosts watch one another. Faults befall the first, with id 1;
// the others observe it. All but the late ones are live when the exploration begins.
type lives struct {
	hosts    int
	late     int // number of hosts at the end that begin at any time
	watchdog uint16
	policy   layout.Policy
	after    time.Duration // fence-after
	copied   bool          // the last host has the first one's machine id and host id
	apart    int           // distance between their ids; 0: one
	stalls   int
	stalled  uint32        // only these items are stalled; 0: any
	medium   bool          // not explored by every run
	members  int           // 0: one disk
	ids      int           // number of host ids; 0: those of the hosts
	span     time.Duration // end of the exploration; 0: long enough for deaths
	prepare  func(*world)  // with several members: what happened before
	mortal
	several
}

func (l lives) world(mu mutation) *world {
	var cfgs []Config
	apart := max(l.apart, 1)
	for i := range l.hosts {
		cfg := Config{ID: 1 + i*apart, Policy: l.policy, Times: exploreTimes, Self: layout.HostRecord{MachineID: machineID(byte(i + 1))}}
		cfg.Times.FenceAfter = l.after
		if i == 0 {
			cfg.Self.WatchdogArmed, cfg.Self.WatchdogSeconds = l.watchdog > 0, l.watchdog
		}
		if l.copied && i == l.hosts-1 {
			cfg.ID, cfg.Self = 1, cfgs[0].Self
		}
		cfgs = append(cfgs, cfg)
	}
	w := newWorld(max(l.hosts*apart, l.ids), cfgs...)
	if l.members > 0 {
		w.spread(l.members)
	}
	w.mutate(mu)
	w.mortal = l.mortal
	w.deaths, w.crashes, w.fails, w.evicts, w.leaves = true, 0, 0, 0, 0
	for i := l.hosts - l.late; i < l.hosts; i++ {
		w.stalled |= 1 << itemOf(i, doStart)
	}
	w.calmly(l.hosts - l.late)
	w.crashes, w.fails, w.evicts, w.leaves = l.crashes, l.fails, l.evicts, l.leaves
	copies := w.copies
	w.several = l.several
	if w.copies = copies; l.prepare != nil {
		l.prepare(w)
	}
	if l.stalled != 0 {
		w.spared = ^l.stalled
	}
	w.by = w.now + exploreTimes.Renew() + unit // later crashes are equivalent
	w.stalls, w.trace = l.stalls+*moreStalls, nil
	return w
}

// calmly lets the first hosts join, one after the other, without delays.
func (w *world) calmly(hosts int) {
	for i := range hosts {
		for !w.nodes[i].m.Ready() {
			moved := false
			for j := range i + 1 {
				if moves := w.enabled(j); len(moves) > 0 {
					w.do(j, moves[0])
					moved = true
					break
				}
			}
			if !moved {
				w.now, _ = w.nextMoment()
			}
		}
	}
}

// deathHorizon is long enough to declare a host dead and to claim its id, if it falls silent in
// the first moments or returns at the last moment of its lease.
const deathHorizon = 150 * unit

// soon is the least fence-after: hosts renew every 4 units, and grant no locks later than 9.6 units after
// that.
const soon = 12 * unit

// horizon returns the end of the exploration of a world that begins now. A host that is fenced early is
// declared dead, and its lease is over, long before deathHorizon, unless it joins again.
func (l lives) horizon(w *world) time.Duration {
	if l.span > 0 {
		return w.now + l.span
	}
	if l.after > 0 && l.rejoins == 0 {
		return w.now + exploreTimes.Lease + 2*unit
	}
	return w.now + deathHorizon
}

// Those that are not medium have fewer than 80,000 states.
var deathWorlds = map[string]lives{
	"paused or slow":                      {hosts: 2, stalls: 1, medium: true},
	"two observers":                       {hosts: 3, medium: true, mortal: mortal{crashes: 1, mayDie: 1, whole: true}},
	"watchdog":                            {hosts: 2, watchdog: 3, stalls: 1, medium: true},
	"crashed":                             {hosts: 2, mortal: mortal{crashes: 1, mayDie: 1, whole: true}},
	"crashed, observer joins at any time": {hosts: 2, late: 1, medium: true, mortal: mortal{crashes: 1, mayDie: 1, whole: true}},
	"lost, id wanted by a copy":           {hosts: 2, late: 1, copied: true, stalls: 1, medium: true, mortal: mortal{rejoins: 1}},
	"evicted":                             {hosts: 3, mortal: mortal{evicts: 1, whole: true}},
	"fenced":                              {hosts: 2, policy: layout.PolicyFence, watchdog: 3, stalls: 1, medium: true},

	// Hosts are fenced before their lease is over.
	"fenced early":              {hosts: 2, policy: layout.PolicyFence, after: soon, watchdog: 3, stalls: 1, medium: true},
	"fenced early, crashed":     {hosts: 2, policy: layout.PolicyFence, after: soon, medium: true, mortal: mortal{crashes: 1, mayDie: 1, whole: true}},
	"fenced early, write fails": {hosts: 2, policy: layout.PolicyFence, after: soon, mortal: mortal{fails: 1, mayDie: 1, whole: true}},

	// Hosts beyond the read horizon of the others until they are found.
	"far, joins at any time": {hosts: 2, late: 1, apart: 3, mortal: mortal{whole: true}},
	"far, crashes":           {hosts: 2, late: 1, apart: 3, mortal: mortal{crashes: 1, mayDie: 2, whole: true}},
	"far, evicts":            {hosts: 2, late: 1, apart: 3, mortal: mortal{evicts: 1, whole: true}},
	"far, paused or slow":    {hosts: 2, apart: 3, stalls: 1, medium: true},
	"near one crashes":       {hosts: 2, apart: 3, mortal: mortal{crashes: 1, mayDie: 1, whole: true}},
}

// The stalled items of the first two hosts: the process of one, the reads of the other.
const (
	holder   = 1 << 0
	observer = 2 << items
)

// deepWorlds take long: they are explored with -lease.deep.
var deepWorlds = map[string]lives{
	"crashed, id wanted by a copy":   {hosts: 2, late: 1, copied: true, mortal: mortal{crashes: 1, mayDie: 1, whole: true}},
	"paused, observer reads slowly":  {hosts: 2, stalls: 2, stalled: holder | observer},
	"lost after a failed write":      {hosts: 2, late: 1, copied: true, stalls: 1, stalled: 2, mortal: mortal{rejoins: 1, fails: 1, mayDie: 1}},
	"two observers, host paused":     {hosts: 3, stalls: 1, stalled: holder},
	"crashed, observer reads slowly": {hosts: 2, stalls: 1, stalled: observer, mortal: mortal{crashes: 1, mayDie: 1}},
	"fenced early, two observers":    {hosts: 3, policy: layout.PolicyFence, after: soon, mortal: mortal{crashes: 1, mayDie: 1, whole: true}},
	"fenced early, joins again":      {hosts: 2, policy: layout.PolicyFence, after: soon, stalls: 1, stalled: holder, mortal: mortal{rejoins: 1, whole: true}},
	"far, joins next to a crashed":   {hosts: 2, late: 1, apart: 3, mortal: mortal{crashes: 1, mayDie: 1, whole: true}},
	"far, joins next to a paused":    {hosts: 2, late: 1, apart: 3, stalls: 1, stalled: holder, mortal: mortal{whole: true}},
}

var (
	quick = flag.Bool("lease.quick", false, "explore all quick scenarios, not only the small ones")
	deep  = flag.Bool("lease.deep", false, "explore all quick scenarios and what takes long, minutes and gigabytes")
)

// TestMortality explores what hosts conclude about one another: DEAD, PUBLISHED, RESUMED, VOID,
// SINGLE.
func TestMortality(t *testing.T) {
	worlds := maps.Clone(deathWorlds)
	if *deep {
		maps.Copy(worlds, deepWorlds)
	}
	for name, l := range worlds {
		if l.medium && !*quick && !*deep {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := l.world(sound)
			begin := time.Now()
			e := explore(w, l.horizon(w))
			if e.found != "" {
				t.Fatalf("%s is broken:\n%s", e.found, e.at.story())
			}
			t.Logf("%d states with %d stalls in %v", len(e.seen), w.stalls, time.Since(begin).Round(time.Millisecond))
		})
	}
}

// TestMortalityMutations shows that each rule that is left out is found.
func TestMortalityMutations(t *testing.T) {
	if !mutating(t) {
		return
	}
	for _, c := range []struct {
		name     string
		mutation mutation
		world    string
		stalls   int
		stalled  uint32
		broken   string
	}{
		{"judged before the lease is over", judgeEarly, "paused or slow", 1, 0, "VERDICT"},
		{"fenced before the watchdog", noWatchdog, "fenced", 1, 0, "FENCE"},
		{"declared dead without a fence", uncut, "fenced early", 1, 0, "VERDICT"},
		{"declared dead at once although it renewed", hasty, "fenced early", 1, 0, "SURE"},
		{"declared dead by an old read", staleRead, "fenced early", 1, 0, "SURE"},
		{"granted until the end of the lease", grantsOn, "fenced early", 1, 0, "SURE"},
		{"stillness counted from the asking", sinceAsked, "paused or slow", 2, holder | observer, "VERDICT"},
		{"acted on before it is durable", actEarly, "paused or slow", 1, 0, "PUBLISHED"},
		{"watchdog not waited for", noWatchdog, "watchdog", 1, 0, "VERDICT"},
		{"a wish taken for a verdict", wishKills, "evicted", 0, 0, "VOID"},
		{"a resumed lease counted again", resumeLate, "crashed", 0, 0, "T0-FIRST"},
		{"ended cleanly whatever was written", nameUnclean, "lost, id wanted by a copy", 1, 0, "SINGLE"},
		{"what was not read taken for unchanged", assumed, "far, joins at any time", 0, 0, "VOID"},
		{"spoken before all listen", unheard, "far, evicts", 0, 0, "HEARD"},
		{"others' records not read", nearsighted, "paused or slow", 0, 0, "HEARD"},
	} {
		if c.stalls > 1 && !*deep {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := deathWorlds[c.world]
			l.stalls, l.stalled = c.stalls, c.stalled
			w := l.world(c.mutation)
			e := explore(w, l.horizon(w))
			require.Equal(t, c.broken, e.found)
			t.Logf("found after %d states", len(e.seen))
		})
	}
}

// TestMortalityJoiner: a claim goes live whenever its process continues, so that standing still
// proves nothing about it (JOINERS).
func TestMortalityJoiner(t *testing.T) {
	mutating := mutating(t)
	for mu, broken := range map[mutation]string{sound: "", judgeJoining: "VERDICT"} {
		if mu != sound && !mutating {
			continue
		}
		w := newWorld(2, Config{ID: 2, Self: layout.HostRecord{MachineID: machineID(2)}}, Config{ID: 1})
		w.disk[0] = past(layout.StateLeft, 9)
		w.mutate(mu)
		w.deaths = true
		w.calmly(1)
		w.stalls, w.spared = 1, ^uint32(1<<itemOf(1, doTick))
		e := explore(w, w.now+deathHorizon)
		require.Equal(t, broken, e.found)
		t.Logf("%d states", len(e.seen))
	}
}

// TestMortalityBlind: hosts that resume, or are about to go live, obey a verdict.
func TestMortalityBlind(t *testing.T) {
	mutating := mutating(t)
	for _, mu := range []mutation{sound, resumeBlind} {
		if mu != sound && !mutating {
			continue
		}
		r := live1(t)
		term, _ := r.m.Term()
		r.set(3, layout.StateLive, 3, 7, 1).Verdicts = []layout.Verdict{{Host: 1, Incarnation: 101}}
		s := r.successor(t, term, 1)
		s.m.mutate(mu)
		s.start()
		s.read(0)
		require.Equal(t, mu == resumeBlind, s.m.MayWrite(s.now))
	}
	for _, mu := range []mutation{sound, deaf} {
		if mu != sound && !mutating {
			continue
		}
		r := newRig(t, Config{ID: 2})
		r.m.mutate(mu)
		r.start()
		r.read(0)
		r.write(0)
		r.tick()
		r.set(3, layout.StateLive, 3, 8, 1).Verdicts = []layout.Verdict{{Host: 2, Incarnation: 101}}
		r.read(0)
		_, writes := got[Write](r)
		require.Equal(t, mu == deaf, writes)
	}
}

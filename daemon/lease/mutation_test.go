package lease

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutation breaks one rule, so that tests can show that they notice.
type mutation uint8

const (
	sound           mutation = iota
	noBudget                 // a claim does not measure its steps
	noWait                   // a claim looks immediately
	lateT0                   // the lease runs from the acknowledgement
	revive                   // an acknowledgement after the end of the lease renews it
	earlyCover               // the read horizon is not raised by a read after the own record was written
	shortLeft                // every record that says left is claimed the short way
	rebooted                 // another boot id is proof of death
	shortStill               // a joining record that stood still is claimed the short way
	hidden                   // a record is believed to show the host that is live
	judgeEarly               // a host is declared dead after half a lease
	judgeJoining             // a joining record that stood still is declared dead
	actEarly                 // a verdict is acted on before it is durable
	sinceAsked               // Since is the time of the request for the read that first showed a record
	noWatchdog               // no wait for watchdogs
	wishKills                // a wish is treated as a verdict
	resumeBlind              // an incarnation under a verdict is resumed
	resumeLate               // a resumed lease runs from the resumption
	nameUnclean              // Lost names the incarnation whatever became of its writes
	deaf                     // a claim goes live under a verdict on itself
	coverSoon                // no wait for a joining record
	narrowLook               // a claim looks only at the records that it found before
	nearsighted              // a live host reads up to its own record
	noSweep                  // no host searches for hosts beyond the read horizon
	unheeded                 // the read horizons of other hosts do not count
	assumed                  // a record that was not read counts as read, and unchanged
	unheard                  // a host publishes verdicts before it is ready
	sparse                   // reads that lie far apart make an unbroken span
	abandonedEarly           // a record is abandoned after half of the span
	endedJoiner              // a joiner that was overwritten is remembered as ended
	ownBlind                 // a lease is renewed whether or not the own record can be read
	lateRead                 // a renewal's term does not depend on how long its read took
	coverDamaged             // a joiner passes every unreadable record
	foundAlways              // an unreadable record is passed without waiting for the look of a joiner behind it
	judgeDamaged             // the span of a damaged record counts from the last change seen
	evictTorn                // an operator's command treats one unreadable read as silence
	shortDamaged             // a claim of an abandoned record is short
	hadSuffices              // a machine takes an id that it had, whatever the policy
	noBackoff                // a long claim that failed is repeated immediately
	uncut                    // a host that is silent for fence-after is declared dead without being fenced
	hasty                    // a fenced host is declared dead at once, although it renewed before the fence
	staleRead                // a fenced host is declared dead by a read that was requested before the fence
	grantsOn                 // a host grants locks until its lease is over
	unsteady                 // the silence of others counts through an outage of the device
	countAll                 // a claim counts members that had not acknowledged it when it was complete
	minorityVerdict          // a verdict is acted on although a minority shows it
	deafMinority             // a host ignores a verdict on itself that a minority shows
	lastRead                 // the record is the newest of a read, whatever was seen before
	anyStill                 // a record stands still if its newest version does
	anySteps                 // renewals on different members count together
	keptTerm                 // the term is kept while left is written
	unnoted                  // the next process does not know what the last write showed
	sameGeneration           // a claim does not increase the generation
	dropSoon                 // a verdict is dropped when a minority shows another incarnation
	stirs                    // the first change of a record is taken for a renewal
	missedDamage             // a record is taken for damaged if too few copies were read
	resumeSure               // a resumed record is taken for one on a majority
)

// The package has no mutations. Tests that need them run in a test binary of their own, whose sources are
// patched: the machine has a field for its mutation, and rules are left out if that says so.
var patches = []struct{ file, old, new string }{
	{"sound_test.go", `mutable = false`, `mutable = true`},
	{"sound_test.go", `mutate(mutation) {`, `mutate(mu mutation) { m.mutation = mu `},
	{"sound_test.go", `return sound`, `return m.mutation`},
	{"lease.go", `cfg Config
	t   timing.Times`,
		`cfg      Config
	t        timing.Times
	mutation mutation`},
	{"claim.go", `m.timer = m.now + wait`,
		`if m.mutation == noWait {
		wait = 0
	}
	m.timer = m.now + wait`},
	{"claim.go", `case m.hosts[m.id-1].Gone:`,
		`case m.hosts[m.id-1].Gone && m.mutation != deaf:`},
	{"claim.go", `return m.now-readAt <= budget`,
		`return m.now-readAt <= budget || m.mutation == noBudget`},
	{"claim.go", `if m.long && m.wrote >= 0 {`,
		`if m.long && m.wrote >= 0 && m.mutation != noBackoff {`},
	{"death.go", `return id != m.id && h.State == layout.StateLive && !h.Gone && !m.sentenced(id, h.Incarnation)`,
		`return id != m.id && (h.State == layout.StateLive || h.State == layout.StateJoining && m.mutation == judgeJoining) &&
		!h.Gone && !m.sentenced(id, h.Incarnation)`},
	{"death.go", `if m.suspect(i+1) && h.Looked >= h.DeadAt(m.t) {`,
		`if m.suspect(i+1) && (h.Looked >= h.DeadAt(m.t) || m.mutation == judgeEarly && h.Read-h.Since >= m.t.Lease/2 ||
			m.mutation == judgeDamaged && h.Looked-h.Since >= m.t.Dead()+h.maxWatchdog) {`},
	{"death.go", `return w.operator && !h.Readable && h.damagedFor() <= m.t.Alive()`,
		`return w.operator && !h.Readable && h.damagedFor() <= m.t.Alive() && m.mutation != evictTorn`},
	{"death.go", `m.turn(id, e)`,
		`if m.mutation == uncut {
				m.publish(layout.Verdict{Host: id, Incarnation: m.hosts[id-1].Incarnation})
				continue
			}
			m.turn(id, e)`},
	{"death.go", `!w.operator && h.Looked < h.DeadAt(m.t) ||`,
		`!w.operator && h.Looked < h.DeadAt(m.t) && m.mutation != hasty ||`},
	{"death.go", `		case !w.fresh ||`,
		`		case !w.fresh && m.mutation != staleRead ||`},
	{"event.go", `return m.Deadline() - m.t.Lease + m.t.Sure()`,
		`if m.mutation == grantsOn {
		return m.Deadline()
	}
	return m.Deadline() - m.t.Lease + m.t.Sure()`},
	{"renew.go", `if m.t.FenceAfter > 0 &&`,
		`if m.mutation != unsteady && m.t.FenceAfter > 0 &&`},
	{"death.go", `if !m.ready {`,
		`if !m.ready && m.mutation != unheard {`},
	{"event.go", `m.clean = m.clean &&`,
		`if m.mutation == revive && m.phase == live {
		m.t0 = m.writeAt
	}
	m.clean = m.clean &&`},
	{"event.go", `m.acked, m.shown, m.wrote =`,
		`if m.mutation == lateT0 {
		m.term0 = m.now
	}
	m.acked, m.shown, m.wrote =`},
	{"event.go", `if expired && m.clean && !m.writing {`,
		`if expired && m.clean && !m.writing || m.mutation == nameUnclean {`},
	{"evict.go", `|| !m.ready {`,
		`|| !m.ready && m.mutation != unheard {`},
	{"hosts.go", `m.applyVerdicts(i+1, r)
	}`,
		`m.applyVerdicts(i+1, r)
	}
	if m.mutation == assumed {
		for i := len(records); i < len(m.hosts); i++ {
			m.hosts[i].Readable, m.hosts[i].Read, m.hosts[i].Looked = true, m.readAt, m.readAt
		}
	}`},
	{"hosts.go", ` m.readAt-h.Looked > m.t.Alive() {`,
		` m.readAt-h.Looked > m.t.Alive() && m.mutation != sparse {`},
	{"hosts.go", `return m.t.Blind() + max(m.t.MaxWatchdog(), h.maxWatchdog)`,
		`switch m.mutation {
	case abandonedEarly:
		return m.t.Dead() / 2
	case noWatchdog:
		return m.t.Blind()
	}
	return m.t.Blind() + max(m.t.MaxWatchdog(), h.maxWatchdog)`},
	{"hosts.go", `if h.State == layout.StateLive && !h.Gone {`,
		`if h.State == layout.StateLive && !h.Gone || m.mutation == endedJoiner {`},
	{"hosts.go", `h.Incarnation, h.State,`,
		`if m.mutation == sinceAsked && h.Since == m.now {
		h.Since = m.readAt
	}
	h.Incarnation, h.State,`},
	{"hosts.go", `if r.WatchdogArmed {`,
		`if r.WatchdogArmed && m.mutation != noWatchdog {`},
	{"hosts.go", `case r.State == layout.StateJoining && !h.Settled:`,
		`case m.mutation == hidden:
			if !h.Gone && r.ReadHorizon < m.id {
				return false
			}
		case r.State == layout.StateJoining && m.mutation == coverSoon:
		case r.State == layout.StateJoining && !h.Settled:`},
	{"hosts.go", `return m.stands >= 0 && m.readAt-m.stands >= m.t.Unseen() && h.damagedFor() >= m.t.Blind()`,
		`found := m.stands >= 0 && m.readAt-m.stands >= m.t.Unseen() || m.mutation == foundAlways
	return m.mutation == coverDamaged || found && h.damagedFor() >= m.t.Blind()`},
	{"join.go", `case r.State == layout.StateLeft, m`,
		`case r.State == layout.StateLeft && m.mutation == shortLeft:
		m.claim(r)
	case r.State == layout.StateLeft, m`},
	{"join.go", `case same && (h.Gone || stood >= dead):
		m.long = m.long || h.Gone || r.State == layout.StateJoining`,
		`case same && !h.Gone && m.mutation == rebooted && r.BootID != m.cfg.Self.BootID:
		m.claim(r)
	case same && (h.Gone || stood >= dead):
		m.long = m.long || h.Gone || r.State == layout.StateJoining && m.mutation != shortStill`},
	{"join.go", `m.long, m.rewrote = true, true`,
		`m.long, m.rewrote = m.mutation != shortDamaged, true`},
	{"join.go", `(m.cfg.Reclaim || had && m.cfg.Policy == layout.PolicyLease)`,
		`(m.cfg.Reclaim || had && (m.cfg.Policy == layout.PolicyLease || m.mutation == hadSuffices))`},
	{"reach.go", `if m.phase == live && r.State == layout.StateLive {`,
		`if m.phase == live && r.State == layout.StateLive && m.mutation != unheeded {`},
	{"reach.go", `if top > 0 {`,
		`if top > 0 && (m.mutation != earlyCover || m.phase == looking) {`},
	{"reach.go", `case m.phase == leaving, m.phase == live && !m.sweeps():`,
		`case m.phase == live && m.mutation == nearsighted:
		return m.id
	case m.phase == leaving, m.phase == live && !m.sweeps(), m.phase == claiming && m.mutation == narrowLook:`},
	{"reach.go", ` && !m.company(m.id-1, false)`,
		` && !m.company(m.id-1, false) && m.mutation != noSweep`},
	{"renew.go", `m.unseen = records[m.id-1].Err != nil`,
		`m.unseen = records[m.id-1].Err != nil && m.mutation != ownBlind`},
	{"renew.go", `m.term0 = min(m.now, m.readAt+m.t.Budget())`,
		`if m.mutation != lateRead {
			m.term0 = min(m.now, m.readAt+m.t.Budget())
		}`},
	{"resume.go", `m.now+m.t.Budget() >= t.T0+m.t.Lease {`,
		`m.now+m.t.Budget() >= t.T0+m.t.Lease && m.mutation != resumeLate {`},
	{"resume.go", `m.hosts[t.ID-1].Gone {`,
		`m.hosts[t.ID-1].Gone && m.mutation != resumeBlind {`},
	{"resume.go", `own := m.cfg.Self`,
		`if m.mutation == resumeLate {
		m.t0 = m.now
	}
	own := m.cfg.Self`},
	{"verdict.go", `case v.Kind.Dead() && (m.condemns(v) || votes >= m.members.Quorum()):`,
		`case m.mutation == deafMinority && m.condemns(v):
		case v.Kind.Dead() && (m.condemns(v) || votes >= m.members.Quorum() || m.mutation == minorityVerdict), m.mutation == wishKills:`},
	{"claim.go", `members.Shown(r.Copies, m.counted, m.own.Incarnation)`,
		`members.Shown(r.Copies, m.counted, m.own.Incarnation)
		if m.mutation == countAll {
			shown, unread = members.Shown(r.Copies, []int{0, 1, 2}, m.own.Incarnation)
		}`},
	{"hosts.go", `if id != m.id || !m.held {`, `if (id != m.id || !m.held) && m.mutation != lastRead {`},
	{"hosts.go", `m.hosts[id-1].window = m.members.Still(id, r.Copies)`,
		`if m.mutation != anyStill {
		m.hosts[id-1].window = m.members.Still(id, r.Copies)
	}`},
	{"hosts.go", `errors.Is(err, members.ErrMinority) || h.Readable`, `errors.Is(err, members.ErrMinority) && m.mutation != missedDamage || h.Readable`},
	{"hosts.go", `if h.steps++; m.members != nil {`, `if h.steps++; m.members != nil && m.mutation != anySteps {`},
	{"verdict.go", `return s.Incarnation == h.Incarnation &&`, `return m.mutation == dropSoon || s.Incarnation == h.Incarnation &&`},
	{"resume.go", `m.own.State == layout.StateLeft {`, `m.own.State == layout.StateLeft && m.mutation != keptTerm {`},
	{"resume.go", `m.cover(t.ReadHorizon)`,
		`if m.mutation != unnoted {
			m.cover(t.ReadHorizon)
		}`},
	{"resume.go", `m.acked = 0 //`,
		`if m.mutation != resumeSure {
			m.acked = 0
		} //`},
	{"claim.go", `m.spent = append(m.spent, m.own.Incarnation)`,
		`if m.mutation == sameGeneration {
		m.own.Generation = max(r.Generation, 1)
	}
	m.spent = append(m.spent, m.own.Incarnation)`},
	{"join.go", `!m.stirred {`, `!m.stirred && m.mutation != stirs {`},
	{"verdict.go", `m.unpublished = true
	return true`,
		`m.unpublished = true
	if m.mutation == actEarly {
		m.declareDead(v, m.id)
	}
	return true`},
}

// mutating reports whether this binary has the mutations. If not, it runs the test in the one that has.
func mutating(t *testing.T) bool {
	t.Helper()
	if mutable {
		return true
	}
	binary, err := mutableBinary()
	require.NoError(t, err)
	args := []string{"-test.v", "-test.run=^" + t.Name() + "$"}
	flag.Visit(func(f *flag.Flag) {
		if strings.HasPrefix(f.Name, "lease.") || f.Name == "test.timeout" {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	out, err := exec.Command(binary, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("with mutations: %v\n%s", err, out)
	}
	for name, states := range scenariosOf(t.Name(), string(out)) {
		if sub, isSub := strings.CutPrefix(name, t.Name()+"/"); isSub {
			t.Run(sub, func(t *testing.T) { t.Log(states) })
		} else {
			t.Log(states)
		}
	}
	return false
}

// scenariosOf returns the lines with numbers of states in the output of a test and its subtests, by the
// name of the test that says them. The ledger of test/explore has them by that name: some scenarios are
// large, and others are not.
func scenariosOf(test, output string) map[string]string {
	said := map[string]string{}
	for line := range strings.Lines(output) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "===" {
			test = f[2]
		} else if strings.Contains(line, " states") {
			said[test] += strings.TrimSpace(line) + "\n"
		}
	}
	return said
}

// TestMutating_ScenariosOfSubtests_KeepTheirNames: otherwise the quick scenarios of a test reach other
// states than all of them, and no ledger can be written.
func TestMutating_ScenariosOfSubtests_KeepTheirNames(t *testing.T) {
	require.Equal(t, map[string]string{"TestX/a": "x_test.go:1: found after 5 states\n", "TestX/b": "x_test.go:1: found after 7 states\n"},
		scenariosOf("TestX", `=== RUN   TestX
=== RUN   TestX/a
=== PAUSE TestX/a
=== RUN   TestX/b
=== CONT  TestX/a
    x_test.go:1: found after 5 states
=== NAME  TestX/b
    x_test.go:1: found after 7 states
--- PASS: TestX (0.10s)
    --- PASS: TestX/a (0.00s)
PASS
`))
}

var mutableDir string // of the binary; removed by TestMain

// mutableBinary builds the tests with the patched sources.
var mutableBinary = sync.OnceValues(func() (binary string, err error) {
	if mutableDir, err = os.MkdirTemp("", "lease"); err != nil {
		return "", err
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	text, replaced := map[string]string{}, map[string]string{}
	for _, p := range patches {
		if text[p.file] == "" {
			b, err := os.ReadFile(p.file)
			if err != nil {
				return "", err
			}
			text[p.file] = string(b)
		}
		if n := strings.Count(text[p.file], p.old); n != 1 {
			return "", fmt.Errorf("%s: %q occurs %d times, want once", p.file, p.old, n)
		}
		text[p.file] = strings.Replace(text[p.file], p.old, p.new, 1)
	}
	for file, s := range text {
		replaced[filepath.Join(here, file)] = filepath.Join(mutableDir, file)
		err = errors.Join(err, os.WriteFile(filepath.Join(mutableDir, file), []byte(s), 0o600))
	}
	overlay, binary := filepath.Join(mutableDir, "overlay.json"), filepath.Join(mutableDir, "lease.test")
	b, jsonErr := json.Marshal(map[string]any{"Replace": replaced})
	if err = errors.Join(err, jsonErr, os.WriteFile(overlay, b, 0o600)); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", binary, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the tests with mutations: %w: %s", err, out)
	}
	return binary, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(mutableDir)
	os.Exit(code)
}

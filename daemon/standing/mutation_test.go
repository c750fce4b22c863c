package standing_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/standing"
	"github.com/bakeryd/bakeryd/layout"
)

// TestMutations shows that the explorer notices when a rule of the glue is left out.
func TestMutations(t *testing.T) {
	only := func(host int, item ...int) (bits uint) {
		for _, it := range item {
			bits |= 1 << (host*items + it)
		}
		return bits
	}
	for _, c := range []struct {
		name string
		sc   scenario
		glue func(*glue)
		want string
		run  bool
	}{
		{"a slot is written whatever is left of the lease", scenario{stalls: 1, items: only(0, itemProcess)},
			func(g *glue) { g.mayWrite = func(*lease.Machine, time.Duration) bool { return true } }, "LAST-CALL", true},
		{"a host whose record is unreadable is gone", scenario{record: 1}, func(g *glue) {
			g.hosts = func(known []lease.Host, since time.Duration) []bakery.Host {
				out := standing.Hosts(known, layout.PolicyLease, since)
				for i := range out {
					if !known[i].Readable {
						out[i].Readable, out[i].Gone, out[i].Unsettled = true, true, false
					}
				}
				return out
			}
		}, "EXCLUSION", true},
		{"VOID: the host table is read before the slots", scenario{stalls: 2, items: only(0, itemReadTable) | only(1, itemReadTable), rejoins: 1},
			func(g *glue) { g.oldTable = true }, "VOID", *full},
		{"VOID: slots are judged by the time of their request", joins,
			func(g *glue) { g.fromRequest = true }, "VOID", true},
		{"SURE: locks are granted until the end of the lease", fences, func(g *glue) {
			g.mayGrant = func(m *lease.Machine, now time.Duration) bool { return m.MayWrite(now) && now < m.WarnAt() }
		}, "SURE", true},
		{"a grant is noted after its holder was told", scenario{crashes: 1, resumes: 1}, func(g *glue) { g.lateNote = true }, "EXCLUSION", *full},
		{"a record that is unreadable shows no end, and is not abandoned", scenario{crashes: 1, record: 1, of: 1}, func(g *glue) {
			forget := func(known []lease.Host) []lease.Host {
				out := append([]lease.Host(nil), known...)
				for i := range out {
					if !out[i].Readable {
						out[i].Ended, out[i].Gone = nil, false
					}
				}
				return out
			}
			g.hosts = func(known []lease.Host, since time.Duration) []bakery.Host {
				return standing.Hosts(forget(known), layout.PolicyFence, since)
			}
			g.learn = func(m *bakery.Machine, own int, known []lease.Host, views []bakery.View, slotsEnded, judged time.Duration) ([]standing.Ended, bool) {
				return standing.EvaluateHostTable(m, own, forget(known), layout.PolicyFence, views, slotsEnded, judged)
			}
		}, "DEADLOCK", *quick || *full},
	} {
		if !c.run {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.sc.rounds, c.sc.glue, c.sc.want = [both]int{1, 1}, c.glue, c.want
			r := explore(c.sc, *limit)
			t.Logf("found after %d states in %.1f s", r.states, r.took.Seconds())
			require.Equal(t, c.want, strings.Split(r.fault, ":")[0], strings.Join(r.trace, "\n"))
		})
	}
}

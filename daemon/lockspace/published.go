package lockspace

import "github.com/bakeryd/bakeryd/layout"

// HostIncarnation identifies an incarnation of a host.
type HostIncarnation struct {
	Host        int
	Incarnation uint64
}

// Verdicts are the kinds of verdict that hosts publish about one incarnation.
type Verdicts struct{ Dead, Forgotten, Wish bool }

// VerdictTable has the verdicts that any host publishes, by incarnation.
type VerdictTable map[HostIncarnation]Verdicts

// PublishedVerdicts returns the verdicts that the hosts of a snapshot publish.
func (s *Snapshot) PublishedVerdicts() VerdictTable {
	all := make(VerdictTable)
	for _, h := range s.Hosts {
		for _, v := range h.Verdicts {
			of := HostIncarnation{v.Host, v.Incarnation}
			w := all[of]
			w.Dead = w.Dead || v.Kind.Dead()
			w.Forgotten = w.Forgotten || v.Kind == layout.VerdictForgotten
			w.Wish = w.Wish || v.Kind == layout.VerdictWish
			all[of] = w
		}
	}
	return all
}

package lockspace

import "github.com/bakeryd/bakeryd/layout"

// Life names an incarnation of a host.
type Life struct {
	Host        int
	Incarnation uint64
}

// Verdicts are what hosts publish of an incarnation.
type Verdicts struct{ Dead, Forgotten, Wish bool }

// Published are the verdicts of all hosts.
type Published map[Life]Verdicts

// Published returns what the hosts of a snapshot publish.
func (s *Snapshot) Published() Published {
	all := make(Published)
	for _, h := range s.Hosts {
		for _, v := range h.Verdicts {
			of := Life{v.Host, v.Incarnation}
			w := all[of]
			w.Dead = w.Dead || v.Kind.Dead()
			w.Forgotten = w.Forgotten || v.Kind == layout.VerdictForgotten
			w.Wish = w.Wish || v.Kind == layout.VerdictWish
			all[of] = w
		}
	}
	return all
}

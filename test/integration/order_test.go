//go:build integration

package integration

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOrderOfArrival(t *testing.T) {
	bySector(t, func(t *testing.T, sector int) {
		s := newSpace(t, sector)
		hosts := s.hosts(5)
		holder := hosts[0].take("x")
		last := holder.entered()
		var waiters []*process
		order := []int{3, 1, 4, 2} // not that of their ids
		for _, i := range order {
			waiters = append(waiters, hosts[i].take("x"))
			hosts[0].sees(hosts[i], "x")
		}
		// All are told the same, whomever one asks.
		for _, h := range hosts {
			var places []int
			for _, q := range h.report("x").Queue {
				places = append(places, q.Host-1)
			}
			require.Equal(t, order, places)
		}
		for i, w := range waiters {
			holder.letGo()
			token := w.entered()
			require.Greater(t, token, last)
			last, holder = token, w
			for _, later := range waiters[i+1:] {
				later.outside()
			}
		}
		holder.letGo()
	})
}

// TestHandoff has one host with many clients, who all came before that of
// another host but for which it is passed on at home only so often.
func TestHandoff(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	a, b := s.host(1, "--handoff", "3"), s.host(2)
	inside := a.take("x")
	inside.entered()
	var local []*process
	for i := range 8 {
		local = append(local, a.take("x"))
		a.queues("x", i+1)
	}
	a.settles(a, "x")
	other := b.take("x")
	a.sees(b, "x")
	row := 0
	for inside != nil {
		inside.letGo()
		inside = nil
		everybody := append(slices.Clone(local), other)
		var next int
		if len(everybody) == 1 && other == nil {
			break
		}
		eventually(t, "somebody enters", func() bool {
			next = slices.IndexFunc(everybody, func(p *process) bool {
				if p == nil {
					return false
				}
				_, ok := p.next()
				return ok
			})
			return next >= 0
		})
		inside = everybody[next]
		if inside == other {
			other = nil
			continue
		}
		require.Zero(t, next, "the first of those who wait at home")
		local = local[1:]
		if other != nil {
			row++
		}
	}
	require.Nil(t, other)
	require.Empty(t, local)
	require.LessOrEqual(t, row, 3)
}

func TestReadersTogetherWritersAlone(t *testing.T) {
	bySector(t, func(t *testing.T, sector int) {
		s := newSpace(t, sector)
		hosts := s.hosts(4)
		readers := []*process{hosts[0].take("x", "-s"), hosts[1].take("x", "--shared"), hosts[0].take("x", "-s")}
		for _, r := range readers {
			r.entered()
		}
		writer := hosts[2].take("x")
		hosts[0].sees(hosts[2], "x")
		// Who comes after a writer does not overtake it: on another host, nor where readers are inside.
		late := []*process{hosts[3].take("x", "-s")}
		hosts[0].sees(hosts[3], "x")
		late = append(late, hosts[1].take("x", "-s"))
		hosts[1].queues("x", 1)
		for _, r := range readers {
			writer.outside()
			r.letGo()
		}
		writer.entered()
		for _, r := range late {
			r.outside()
		}
		require.Equal(t, 1, hosts[0].lock("-n", "-s", "x", "--", "true").code)
		writer.letGo()
		for _, r := range late {
			r.entered()
		}
		for _, r := range late {
			r.letGo()
		}
		hosts[0].free("x")
	})
}

//go:build integration

package integration

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOrderOfArrival(t *testing.T) {
	onSectors(t, func(t *testing.T, s *space) {
		hosts := s.hosts(5)
		holder, last := hosts[0].holds("x")
		var waiters []*process
		order := []int{3, 1, 4, 2} // not the order of ids
		for _, i := range order {
			waiters = append(waiters, hosts[i].take("x"))
			hosts[0].sees(hosts[i], "x")
		}
		// All hosts report the same.
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

func TestReadersTogetherWritersAlone(t *testing.T) {
	onSectors(t, func(t *testing.T, s *space) {
		hosts := s.hosts(4)
		readers := []*process{hosts[0].take("x", "-s"), hosts[1].take("x", "--shared"), hosts[0].take("x", "-s")}
		for _, r := range readers {
			r.entered()
		}
		writer := hosts[2].take("x")
		hosts[0].sees(hosts[2], "x")
		// A reader that comes after a writer does not overtake it, on any host.
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

package states

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// numbers searches the numbers below n, from 1, by the given moves.
func numbers(n int, final int, moves ...func(i int) int) (g *Graph, ids map[int]uint32) {
	key := func(i int) []byte { return binary.AppendUvarint(nil, uint64(i)) }
	g, ids = New(), map[int]uint32{1: 0}
	g.Begin(key(1))
	var queue Pile[int]
	queue.Add(1)
	for id := 0; id < g.Len(); id++ {
		i := queue.Take(id)
		if i == final {
			g.Final(uint32(id))
		}
		for _, move := range moves {
			to := move(i)
			if to >= n {
				continue
			}
			reached, fresh := g.Reach(key(to), uint32(id))
			if fresh {
				queue.Add(to)
				ids[to] = reached
			}
		}
		g.Expanded()
	}
	return g, ids
}

func next(i int) int   { return i + 1 }
func double(i int) int { return 2 * i }

func TestGraph_AllNumbers_FindsEach(t *testing.T) {
	const n = 17_000 // the table and the piles grow
	g, ids := numbers(n, n-1, next, double)
	require.Equal(t, n-1, g.Len())
	for i := 1; i < n; i++ {
		id, ok := g.Find(binary.AppendUvarint(nil, uint64(i)))
		if !ok || id != ids[i] {
			t.Fatalf("%d has id %d, %t, want %d", i, id, ok, ids[i])
		}
	}
	_, ok := g.Find(binary.AppendUvarint(nil, n))
	require.False(t, ok)
	_, stuck := g.Stuck()
	require.False(t, stuck)
}

func TestGraph_Path_IsShortest(t *testing.T) {
	g, ids := numbers(100, 99, next, double)
	path := g.Path(ids[10])
	require.Equal(t, []uint32{ids[2], ids[4], ids[5], ids[10]}, path)
}

func TestGraph_FinalOutOfReach_IsStuck(t *testing.T) {
	g, _ := numbers(100, 64, double) // 1, 2, 4, .. 64
	_, stuck := g.Stuck()
	require.False(t, stuck)
	g, ids := numbers(100, 32, next, double)
	id, stuck := g.Stuck()
	require.True(t, stuck)
	first := ids[33]
	for i := 33; i < 100; i++ {
		first = min(first, ids[i])
	}
	require.Equal(t, first, id)
}

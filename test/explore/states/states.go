// Package states keeps the states that an exhaustive search has found, and the moves between them.
// It knows nothing of what is searched: a state is a key. Begin with [Graph.Reach].
package states

import (
	"hash/maphash"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Graph has the states of a search in the order in which they were found, and expects them to be
// expanded in that order: the path to each is then the shortest. It keeps a hash of 96 bits of a
// key. With 10^8 states two of them have the same hash with a probability of 10^-13.
type Graph struct {
	seeds  [2]maphash.Seed
	table  []place // open addressing
	parent Pile[uint32]
	degree Pile[uint16] // of each state that was expanded: the number of its edges
	edges  Pile[uint32] // targets of the edges, in the same order
	done   []uint64     // bits: states from which a final one can be reached
	before int          // number of edges before the state under expansion
}

// place is an entry of the table: a state's hash, and its id + 1 (0: free).
type place struct {
	hash uint64
	more uint32
	id   uint32
}

// New returns a graph without states.
func New() *Graph {
	return &Graph{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, table: newTable(1 << 12)}
}

// Len returns the number of states. Their ids are below it.
func (g *Graph) Len() int { return g.parent.n }

// Begin adds the state that the search begins with, whose id is 0.
func (g *Graph) Begin(key []byte) { g.add(g.hash(key), 0) }

// Reach adds an edge from the state under expansion to the state of a key. It returns the latter's
// id, and whether it is new.
func (g *Graph) Reach(key []byte, from uint32) (id uint32, fresh bool) {
	p := g.hash(key)
	if at := g.at(p); at.id != 0 {
		id = at.id - 1
	} else {
		id, fresh = g.add(p, from), true
	}
	g.edges.Add(id)
	return id, fresh
}

// Find returns the id of the state of a key.
func (g *Graph) Find(key []byte) (id uint32, ok bool) {
	at := g.at(g.hash(key))
	return at.id - 1, at.id != 0
}

// Expanded ends the edges from the next state in the order.
func (g *Graph) Expanded() {
	g.degree.Add(uint16(g.edges.n - g.before))
	g.before = g.edges.n
}

// Final marks a state in which the search may end.
func (g *Graph) Final(id uint32) { g.done[id/64] |= 1 << (id % 64) }

// Path returns the states on the path to a state, without the first.
func (g *Graph) Path(id uint32) []uint32 {
	var path []uint32
	for ; id != 0; id = g.parent.At(int(id)) {
		path = append(path, id)
	}
	for i, j := 0, len(path)-1; i < j; i, j = i+1, j-1 {
		path[i], path[j] = path[j], path[i]
	}
	return path
}

// Stuck returns the first state, of those that were all expanded, from which no final one can be
// reached. It goes over the states from the last to the first until nothing changes: most moves
// lead to later ones.
func (g *Graph) Stuck() (id uint32, ok bool) {
	for changed := true; changed; {
		changed = false
		end := g.edges.n
		for k := g.degree.n - 1; k >= 0; k-- {
			first := end - int(g.degree.At(k))
			for e := first; e < end && !g.isDone(uint32(k)); e++ {
				if g.isDone(g.edges.At(e)) {
					g.Final(uint32(k))
					changed = true
				}
			}
			end = first
		}
	}
	for id := range uint32(g.degree.n) {
		if !g.isDone(id) {
			return id, true
		}
	}
	return 0, false
}

// newTable returns an empty table. Searches spend much of their time on reads of it at random,
// which are faster from huge pages.
func newTable(n int) []place {
	table := make([]place, n)
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&table[0])), n*int(unsafe.Sizeof(table[0])))
	if len(memory) >= 4<<20 {
		_ = unix.Madvise(memory, unix.MADV_HUGEPAGE) // without huge pages it is only slower
	}
	return table
}

func (g *Graph) isDone(id uint32) bool { return g.done[id/64]&(1<<(id%64)) != 0 }

func (g *Graph) hash(key []byte) place {
	return place{hash: maphash.Bytes(g.seeds[0], key), more: uint32(maphash.Bytes(g.seeds[1], key))}
}

// at returns the entry of a hash, or the free one where it belongs.
func (g *Graph) at(p place) *place {
	for at := int(p.hash) & (len(g.table) - 1); ; at = (at + 1) & (len(g.table) - 1) {
		if q := &g.table[at]; q.id == 0 || q.hash == p.hash && q.more == p.more {
			return q
		}
	}
}

func (g *Graph) add(p place, from uint32) uint32 {
	n := g.parent.n
	p.id = uint32(n + 1)
	*g.at(p) = p
	g.parent.Add(from)
	if n%64 == 0 {
		g.done = append(g.done, 0)
	}
	if 5*n > 3*len(g.table) {
		old := g.table
		g.table = newTable(2 * len(old))
		for _, p := range old {
			if p.id != 0 {
				*g.at(p) = p
			}
		}
	}
	return uint32(n)
}

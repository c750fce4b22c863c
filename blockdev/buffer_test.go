package blockdev

import (
	"bytes"
	"reflect"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAlloc(t *testing.T) {
	for _, n := range []int{1, 512, 4096, 4097, 1 << 20} {
		p := Alloc(n)
		require.Len(t, p, n)
		require.Equal(t, n, cap(p), "append must not write behind it")
		require.Zero(t, reflect.ValueOf(p).Pointer()%pageSize)
		require.Equal(t, make([]byte, n), p)
	}
	require.Panics(t, func() { Alloc(0) })
	require.Panics(t, func() { Alloc(-1) })
}

func TestPoolSizes(t *testing.T) {
	var pool Pool
	for _, n := range []int{1, 511, 512, 4096, 4097, 65536, slabSize, slabSize + 1, 3 << 20} {
		p := pool.Get(n)
		require.Len(t, p, n)
		require.Zero(t, reflect.ValueOf(p).Pointer()%pageSize)
		pool.Put(p[:0])
	}
	require.Panics(t, func() { pool.Get(0) })
}

func TestPoolRefusesWhatItDidNotLend(t *testing.T) {
	var pool, other Pool
	p := pool.Get(512)
	require.Panics(t, func() { pool.Put(nil) })
	require.Panics(t, func() { pool.Put(make([]byte, 4096)) })
	require.Panics(t, func() { pool.Put(p[1:]) })
	require.Panics(t, func() { other.Put(p) })
	pool.Put(p)
	require.Panics(t, func() { pool.Put(p) }, "given back twice")
}

// No two borrowers ever have the same memory.
func TestPoolConcurrency(t *testing.T) {
	var pool Pool
	var group sync.WaitGroup
	for borrower := range 8 {
		group.Go(func() {
			mark := []byte{byte(borrower + 1)}
			for round := range 300 {
				a, b := pool.Get(512<<(round%6)), pool.Get(4096)
				for _, p := range [][]byte{a, b} {
					copy(p, bytes.Repeat(mark, len(p)))
				}
				for _, p := range [][]byte{a, b} {
					if bytes.Count(p, mark) != len(p) {
						t.Error("lent twice")
					}
					pool.Put(p)
				}
			}
		})
	}
	group.Wait()
}

func TestPoolAllocatesNothing(t *testing.T) {
	var pool Pool
	lend := func() {
		a, b := pool.Get(512), pool.Get(1<<20)
		pool.Put(a)
		pool.Put(b)
	}
	lend()
	require.Zero(t, testing.AllocsPerRun(100, lend))

	// Returning more than were ever free at the same time does not allocate either.
	many := make([][]byte, 1000)
	for i := range many {
		many[i] = pool.Get(512)
	}
	next := 0
	require.Zero(t, testing.AllocsPerRun(len(many)-1, func() { pool.Put(many[next]); next++ }))
}

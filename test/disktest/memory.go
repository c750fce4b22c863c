// Package disktest simulates disks for tests: [Memory] is a disk in memory that several hosts share,
// [Faulty] injects faults into any disk.
package disktest

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/bakeryd/bakeryd/blockdev"
)

// Memory is a disk in memory that any number of hosts can open. Requests are atomic: a read
// returns all of an overlapping write or nothing of it. Wrap it in a [Faulty] for less orderly
// disks.
type Memory struct {
	info  blockdev.Info
	mu    sync.RWMutex // guards bytes
	bytes []byte
}

// NewMemory returns a disk of zeroes. It panics if the block sizes are not powers of two from 512
// up, the physical block is smaller than the logical one, or the size is not a positive multiple
// of the physical one.
func NewMemory(size int64, logical, physical int) *Memory {
	for _, block := range []int{logical, physical} {
		if block < 512 || block&(block-1) != 0 {
			panic(fmt.Sprintf("disktest: block size %d", block))
		}
	}
	if physical < logical || size <= 0 || size%int64(physical) != 0 {
		panic(fmt.Sprintf("disktest: memory of %d bytes in blocks of %d and %d", size, logical, physical))
	}
	return &Memory{
		info:  blockdev.Info{Path: "memory", LogicalBlock: logical, PhysicalBlock: physical, Size: size},
		bytes: make([]byte, size),
	}
}

// Open opens the disk for one more host.
func (m *Memory) Open() blockdev.Device { return m.open(false) }

// OpenReadOnly opens the disk for reading only.
func (m *Memory) OpenReadOnly() blockdev.Device { return m.open(true) }

func (m *Memory) open(readOnly bool) *blockdev.Handle {
	info := m.info
	info.ReadOnly = readOnly
	h := blockdev.NewHandle(info, m.serve, func() error { return nil })
	return &h
}

func (m *Memory) serve(r blockdev.Request) error {
	if r.Op == blockdev.OpRead {
		m.mu.RLock()
		defer m.mu.RUnlock()
		copy(r.Bytes, m.bytes[r.Off:])
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Op == blockdev.OpWrite {
		copy(m.bytes[r.Off:], r.Bytes)
	} else {
		clear(m.bytes[r.Off : r.Off+r.N])
	}
	return nil
}

// Random returns a buffer of random bytes for a device.
func Random(seed uint64, n int) []byte {
	p := blockdev.Alloc(n)
	fill(rand.New(rand.NewPCG(seed, 0)), p)
	return p
}

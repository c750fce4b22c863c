package blockdev

import (
	"fmt"
	"sync"
)

// Memory is a disk in memory that any number of hosts can open. Requests are atomic: a read
// returns all of an overlapping write or nothing of it. Wrap it in a [Faulty] for less orderly
// disks.
type Memory struct {
	info  Info
	mu    sync.RWMutex // guards bytes
	bytes []byte
}

// NewMemory returns a disk of zeroes. It panics if the block sizes are not powers of two from 512
// up, the physical block is smaller than the logical one, or the size is not a positive multiple
// of the physical one.
func NewMemory(size int64, logical, physical int) *Memory {
	for _, block := range []int{logical, physical} {
		if block < minBlock || block&(block-1) != 0 {
			panic(fmt.Sprintf("blockdev: block size %d", block))
		}
	}
	if physical < logical || size <= 0 || size%int64(physical) != 0 {
		panic(fmt.Sprintf("blockdev: memory of %d bytes in blocks of %d and %d", size, logical, physical))
	}
	return &Memory{
		info:  Info{Path: "memory", LogicalBlock: logical, PhysicalBlock: physical, Size: size},
		bytes: make([]byte, size),
	}
}

// Open opens the disk for one more host.
func (m *Memory) Open() Device { return m.open(false) }

// OpenReadOnly opens the disk for reading only.
func (m *Memory) OpenReadOnly() Device { return m.open(true) }

func (m *Memory) open(readOnly bool) *memoryHandle {
	h := &memoryHandle{memory: m}
	h.handle = newHandle(h, m.info)
	h.info.ReadOnly = readOnly
	return h
}

// memoryHandle is one host's view of a Memory.
type memoryHandle struct {
	handle
	memory *Memory
}

func (h *memoryHandle) serve(r request) error {
	m := h.memory
	if r.op == OpRead {
		m.mu.RLock()
		defer m.mu.RUnlock()
		copy(r.bytes, m.bytes[r.off:])
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.op == OpWrite {
		copy(m.bytes[r.off:], r.bytes)
	} else {
		clear(m.bytes[r.off : r.off+r.n])
	}
	return nil
}

func (h *memoryHandle) release() error { return nil }

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
	h := &memoryHandle{memory: m, info: m.info, ledger: newLedger()}
	h.info.ReadOnly = readOnly
	return h
}

// memoryHandle is one host's view of a Memory.
type memoryHandle struct {
	memory *Memory
	info   Info
	ledger *ledger
}

var _ Zeroer = (*memoryHandle)(nil)

func (h *memoryHandle) Info() Info { return h.info }

func (h *memoryHandle) Read(p []byte, off int64) error {
	if err := h.info.check(OpRead, p, off); err != nil {
		return err
	}
	return h.do(OpRead, int64(len(p)), off, func(m *Memory) {
		m.mu.RLock()
		defer m.mu.RUnlock()
		copy(p, m.bytes[off:])
	})
}

func (h *memoryHandle) Write(p []byte, off int64) error {
	if err := h.info.check(OpWrite, p, off); err != nil {
		return err
	}
	return h.do(OpWrite, int64(len(p)), off, func(m *Memory) {
		m.mu.Lock()
		defer m.mu.Unlock()
		copy(m.bytes[off:], p)
	})
}

// Zero implements Zeroer.
func (h *memoryHandle) Zero(off, n int64) error {
	if err := h.info.checkRange(OpZero, n, off); err != nil {
		return err
	}
	return h.do(OpZero, n, off, func(m *Memory) {
		m.mu.Lock()
		defer m.mu.Unlock()
		clear(m.bytes[off : off+n])
	})
}

// do runs action and counts it in the ledger.
func (h *memoryHandle) do(op Op, n, off int64, action func(*Memory)) error {
	id, ok := h.ledger.begin(op)
	if !ok {
		return requestError(op, n, off, h.info.Path, ErrClosed)
	}
	action(h.memory)
	h.ledger.end(id, nil)
	return nil
}

// Stats returns statistics since the device was opened.
func (h *memoryHandle) Stats() Stats { return h.ledger.stats() }

func (h *memoryHandle) Close() error {
	if !h.ledger.close() {
		return fmt.Errorf("close %s: %w", h.info.Path, ErrClosed)
	}
	return nil
}

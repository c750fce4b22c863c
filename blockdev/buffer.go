package blockdev

import (
	"fmt"
	"math/bits"
	"sync"

	"golang.org/x/sys/unix"
)

// pageSize is the smallest page of any machine. Direct IO never requires a larger alignment in
// memory.
const pageSize = 4096

const (
	minClass = 12      // 4096 bytes, the smallest buffer of a Pool
	slabSize = 1 << 18 // small buffers are cut from mappings of this size
)

// scratch provides buffers to this package.
var scratch Pool

// Alloc returns n bytes of zeroes that begin at a page, as direct IO requires. They are never
// freed; use [Pool] for temporary buffers. It panics if there is no memory, as make does.
func Alloc(n int) []byte {
	if n <= 0 {
		panic(fmt.Sprintf("blockdev: buffer of %d bytes", n))
	}
	p, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic(fmt.Sprintf("blockdev: buffer of %d bytes: %v", n, err))
	}
	return p[:n:n]
}

// Pool lends buffers that begin at a page. It never lends one to two borrowers and never frees
// memory. Once it has enough, it allocates nothing. The zero Pool is ready for use, also
// concurrently.
type Pool struct {
	mu   sync.Mutex        // guards the fields below and the lent flag of every buffer
	free [64][]*buffer     // by class: buffers of 1<<class bytes; there is room for the lent ones
	all  map[*byte]*buffer // by first byte
}

type buffer struct {
	bytes []byte
	class int
	lent  bool
}

// Get lends a buffer of length n, with arbitrary contents: a read or an encoder must set every
// byte. Return it with Put.
func (p *Pool) Get(n int) []byte {
	if n <= 0 {
		panic(fmt.Sprintf("blockdev: buffer of %d bytes", n))
	}
	class := max(minClass, bits.Len(uint(n-1)))
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free[class]) == 0 {
		p.grow(class)
	}
	last := len(p.free[class]) - 1
	b := p.free[class][last]
	p.free[class] = p.free[class][:last]
	b.lent = true
	return b.bytes[:n]
}

// Put takes back a buffer from Get, or any part that begins where it begins. The borrower must
// not use it afterwards. Put panics if the buffer is not of this pool, or is not lent.
func (p *Pool) Put(b []byte) {
	if cap(b) == 0 {
		panic("blockdev: put of an empty buffer")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.all[&b[:1][0]]
	if known == nil || !known.lent {
		panic("blockdev: put of a buffer that was not lent by this pool")
	}
	known.lent = false
	p.free[known.class] = append(p.free[known.class], known)
}

// grow adds buffers to a class. It reserves the space to take all of them back, so that Put never
// allocates.
func (p *Pool) grow(class int) {
	length := 1 << class
	slab := Alloc(max(length, slabSize))
	if p.all == nil {
		p.all = make(map[*byte]*buffer)
	}
	free := make([]*buffer, 0, cap(p.free[class])+len(slab)/length)
	for ; len(slab) > 0; slab = slab[length:] {
		b := &buffer{bytes: slab[:length:length], class: class}
		p.all[&slab[0]] = b
		free = append(free, b)
	}
	p.free[class] = free
}

package disktest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
)

// Fault selects requests and defines how they fail. A zero field has no effect.
//
// A request first waits (Delay, Hang). Then the first of Crash, Late, Err, Flicker and Returns that is
// set takes effect.
type Fault struct {
	Op       blockdev.Op // OpAny: every kind
	From, To int64       // requests that overlap [From,To); To 0 is the end of the device
	After    int         // number of matching requests that pass first
	Times    int         // number of requests that are hit then; 0 is all
	Chance   float64     // probability with which each of these is hit; 0 is 1

	Delay time.Duration // the request waits for Delay,
	Hang  bool          // then until it is released

	Crash bool  // the host crashes: this request and all later ones return ErrCrashed
	Late  bool  // a write is acknowledged, or returns Err, and lands when Land is called
	Err   error // the request fails with this error, usually an errno
	// Landed is the number of bytes of a failing or crashing write that reach the disk, which may
	// end inside a block; All is the whole write. Of a zeroing only whole blocks land.
	Landed int

	// Flicker is the number of other states that a write shows before it lands. In each state,
	// every block is old, new, part new and part old, or garbage, in any order. Each state lasts
	// for Delay. This is the worst that a disk may show to hosts that read it during a write.
	Flicker int

	Returns Contents // the result of a read
}

// All is the Fault.Landed of a write that fails although all of it has landed.
const All = -1

// Contents is the result of a faulty read, in the blocks that overlap the range of the Fault.
type Contents uint8

// The results of a faulty read.
const (
	Right   Contents = iota // the contents of the disk
	Stale                   // the contents when the fault was injected
	Garbage                 // random bytes
)

// Injection is a fault that was injected into a Faulty.
type Injection struct {
	Fault

	faulty  *Faulty
	id      uint64
	before  []byte        // contents from the block of From on, when injected; for Stale
	base    int64         // offset of before
	hit     chan struct{} // closed by the first request that is hit
	release chan struct{} // closed by Release

	// Guarded by faulty.mu.
	passed   int
	fired    int
	released bool
}

// Fired returns the number of requests that were hit so far.
func (i *Injection) Fired() int {
	i.faulty.mu.Lock()
	defer i.faulty.mu.Unlock()
	return i.fired
}

// Hit returns a channel that is closed when a request has been hit. With Hang set, that request
// hangs then.
func (i *Injection) Hit() <-chan struct{} { return i.hit }

// Release continues the requests that hang, and ends the fault. It may be called any number of
// times.
func (i *Injection) Release() {
	i.faulty.mu.Lock()
	defer i.faulty.mu.Unlock()
	i.faulty.remove(i)
	if !i.released {
		i.released = true
		close(i.release)
	}
}

// matches reports whether the fault applies to a request.
func (i *Injection) matches(r blockdev.Request) bool {
	return (i.Op == blockdev.OpAny || i.Op == r.Op) && r.Off < i.To && i.From < r.Off+r.N
}

// spent reports whether the fault has hit Times requests.
func (i *Injection) spent() bool { return i.Times > 0 && i.fired >= i.Times }

// take decides whether a matching request is hit, and counts it.
func (i *Injection) take() bool {
	if i.passed < i.After {
		i.passed++
		return false
	}
	i.passed++
	if i.Chance != 0 && i.random(uint64(i.passed), 0).Float64() >= i.Chance {
		return false
	}
	i.fired++
	if i.fired == 1 {
		close(i.hit)
	}
	return true
}

// random returns the random source of one request, which depends on no other rule or goroutine.
func (i *Injection) random(nth, purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(i.faulty.seed^i.id<<32, nth<<8|purpose))
}

// remember reads the present contents of the fault's range.
func (i *Injection) remember() {
	block := int64(i.faulty.Info().LogicalBlock)
	i.base = i.From - i.From%block
	p := scratch.Get(int((i.To - i.base + block - 1) / block * block))
	defer scratch.Put(p)
	if err := i.faulty.dev.Read(p, i.base); err != nil {
		panic("disktest: inject: " + err.Error())
	}
	i.before = bytes.Clone(p)
}

// corrupt changes the result of a read at off, in the blocks that overlap the range of the fault.
func (i *Injection) corrupt(dice *rand.Rand, p []byte, off int64) {
	begin, end := max(i.base, off), min(i.base+int64(len(i.before)), off+int64(len(p)))
	if begin >= end {
		return
	}
	now, was := p[begin-off:end-off], i.before[begin-i.base:end-i.base]
	if i.Returns == Stale {
		copy(now, was)
	} else {
		fill(dice, now)
	}
}

// flicker fills state with one of the states that a write of p over old may show.
func flicker(dice *rand.Rand, state, old, p []byte, block int) {
	copy(state, p)
	for at := 0; at < len(p); at += block {
		switch dice.IntN(4) {
		case 0:
			copy(state[at:at+block], old[at:])
		case 1:
			cut := dice.IntN(block)
			copy(state[at+cut:at+block], old[at+cut:])
		case 2:
			fill(dice, state[at:at+block])
		}
	}
}

func fill(dice *rand.Rand, p []byte) {
	for i := range p {
		p[i] = byte(dice.Uint32())
	}
}

func (i *Injection) validate(info blockdev.Info) error {
	switch {
	case i.From < 0 || i.To <= i.From || i.To > info.Size:
		return fmt.Errorf("fault in [%d,%d) of a device of %d bytes", i.From, i.To, info.Size)
	case i.Chance < 0 || i.Chance > 1:
		return fmt.Errorf("fault with probability %v", i.Chance)
	case i.Returns != Right && i.Op != blockdev.OpRead:
		return fmt.Errorf("fault of %v with what a read returns", i.Op)
	case (i.Late || i.Flicker != 0) && i.Op != blockdev.OpWrite:
		return fmt.Errorf("fault of %v with how a write lands", i.Op)
	case i.Landed != 0 && i.Err == nil && !i.Crash:
		return fmt.Errorf("fault with %d bytes landed, but no failure", i.Landed)
	}
	return nil
}

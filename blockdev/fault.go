package blockdev

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Fault says which requests go wrong, and how. What is left zero does not happen.
//
// A request waits first (Delay, Jitter, Hang), then goes to the place that Shift says, and there Crash, Late,
// Err, Flicker or Returns happens: the first of them that is set.
type Fault struct {
	Op       Op      // OpAny: every kind
	From, To int64   // requests that touch [From,To); To 0 is the end of the device
	After    int     // so many of them pass untouched first
	Times    int     // then so many are hit; 0 is all
	Chance   float64 // and of these each with this probability; 0 is 1

	Delay  time.Duration // it waits as long,
	Jitter time.Duration // a random time up to this longer,
	Hang   bool          // and until it is released

	Shift int64 // it goes to the wrong place, so many bytes further on

	Crash bool  // the host crashes: this request and all after it return ErrCrashed, until Restart
	Late  bool  // a write is acknowledged, or returns Err, and lands only when Land is called
	Err   error // it fails with this, as a rule an errno
	// Landed is how many bytes of a write that fails or crashes have reached the disk by then, even part of
	// a block; All of them is -1. Of a zeroing only whole blocks do.
	Landed int

	// Flicker makes a write show so many other states before it lands: each of its blocks is the old one, the
	// new one, part new and part old, or garbage, in any order. Each state lasts for Delay. It is how a disk
	// may look to those who read it while it is being written, and no worse.
	Flicker int

	Returns Contents // what a read returns instead of what is there
}

// All is the Fault.Landed of a write that fails and has nevertheless wholly landed.
const All = -1

// Contents is what a faulty read returns, in those of its blocks that the Fault is about.
type Contents uint8

// What a faulty read can return.
const (
	Right   Contents = iota // what is on the disk
	Stale                   // what was there when the fault was injected
	Mixed                   // each block as it is, as it was, or part of each, but never all of them as they are
	Garbage                 // random bytes
)

// Injection is a fault that was injected into a Faulty.
type Injection struct {
	Fault

	faulty  *Faulty
	id      uint64
	before  []byte        // contents from the block of From on, when injected; for Stale and Mixed
	base    int64         // where before begins
	hit     chan struct{} // closed by the first request that is hit
	release chan struct{} // closed by Release

	// Guarded by faulty.mu.
	passed   int
	fired    int
	released bool
}

// Fired returns how many requests were hit so far.
func (i *Injection) Fired() int {
	i.faulty.mu.Lock()
	defer i.faulty.mu.Unlock()
	return i.fired
}

// Hit is closed as soon as a request was hit. One that hangs is then hanging.
func (i *Injection) Hit() <-chan struct{} { return i.hit }

// Release lets the requests go on that hang, and ends the fault. It may be called any number of times.
func (i *Injection) Release() {
	i.faulty.mu.Lock()
	defer i.faulty.mu.Unlock()
	i.faulty.remove(i)
	if !i.released {
		i.released = true
		close(i.release)
	}
}

// matches says whether a request is one that this fault is about.
func (i *Injection) matches(r request) bool {
	return (i.Op == OpAny || i.Op == r.op) && r.off < i.To && i.From < r.off+r.n
}

// spent says whether the fault has hit as often as it should.
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

// random returns the dice of one request, so that what it throws depends on no other rule or goroutine.
func (i *Injection) random(nth, purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(i.faulty.seed^i.id<<32, nth<<8|purpose))
}

// remember reads what is now where the fault will be.
func (i *Injection) remember() {
	block := int64(i.faulty.info.LogicalBlock)
	i.base = i.From - i.From%block
	i.before = make([]byte, (i.To-i.base+block-1)/block*block)
	p := scratch.Get(chunk)
	defer scratch.Put(p)
	for done := 0; done < len(i.before); {
		part := p[:min(chunk, len(i.before)-done)]
		if err := i.faulty.dev.Read(part, i.base+int64(done)); err != nil {
			panic("blockdev: inject: " + err.Error())
		}
		done += copy(i.before[done:], part)
	}
}

// corrupt changes what a read of off got, in the blocks that touch the range of the fault.
func (i *Injection) corrupt(dice *rand.Rand, p []byte, off int64) {
	block := i.faulty.info.LogicalBlock
	begin, end := i.base, i.base+int64(len(i.before))
	begin, end = max(begin, off), min(end, off+int64(len(p)))
	if begin >= end {
		return
	}
	now, was := p[begin-off:end-off], i.before[begin-i.base:end-i.base]
	switch i.Returns {
	case Stale:
		copy(now, was)
	case Garbage:
		fill(dice, now)
	case Mixed:
		// One block at least is not as it is.
		spoilt := dice.IntN(len(now)/block) * block
		for at := 0; at < len(now); at += block {
			kind := dice.IntN(3)
			if at == spoilt {
				kind = dice.IntN(2)
			}
			switch kind {
			case 0:
				copy(now[at:at+block], was[at:])
			case 1:
				cut := dice.IntN(block)
				copy(now[at+cut:at+block], was[at+cut:])
			}
		}
	}
}

// flicker makes one of the states through which a write of p over old goes.
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

func (i *Injection) validate(info Info) error {
	switch {
	case i.From < 0 || i.To <= i.From || i.To > info.Size:
		return fmt.Errorf("fault in [%d,%d) of a device of %d bytes", i.From, i.To, info.Size)
	case i.Chance < 0 || i.Chance > 1:
		return fmt.Errorf("fault with probability %v", i.Chance)
	case i.Shift%int64(info.LogicalBlock) != 0:
		return fmt.Errorf("fault with a shift of %d bytes with blocks of %d", i.Shift, info.LogicalBlock)
	case i.Returns != Right && i.Op != OpRead:
		return fmt.Errorf("fault of %v with what a read returns", i.Op)
	case (i.Late || i.Flicker != 0) && i.Op != OpWrite:
		return fmt.Errorf("fault of %v with how a write lands", i.Op)
	case i.Landed != 0 && i.Err == nil && !i.Crash:
		return fmt.Errorf("fault with %d bytes landed, but no failure", i.Landed)
	}
	return nil
}

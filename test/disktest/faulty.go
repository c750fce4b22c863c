package disktest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
)

// scratch has the buffers of faults.
var scratch blockdev.Pool

// ErrCrashed is returned by a Faulty after a Fault with Crash.
var ErrCrashed = errors.New("host has crashed")

// Faulty is a device as one host sees it when faults occur between the host and the disk. Without
// faults it behaves like the device that it wraps.
//
// Random choices follow from the seed: the nth request that matches a fault always has the same
// result.
type Faulty struct {
	blockdev.Handle
	dev   blockdev.Device
	seed  uint64
	sleep func(time.Duration)

	crashed atomic.Bool

	mu     sync.Mutex   // guards the fields below, and the counts of every Injection
	rules  []*Injection // oldest first
	nextID uint64
	late   []blockdev.Request // oldest first
}

// FaultyOptions configure NewFaulty: the seed of random choices, and the way to wait.
type FaultyOptions struct {
	Seed  uint64
	Sleep func(time.Duration) // nil is time.Sleep; a test with its own clock sets another
}

// NewFaulty returns a device that wraps and owns dev. It passes on every request that no injected
// fault hits.
func NewFaulty(dev blockdev.Device, opts FaultyOptions) *Faulty {
	f := &Faulty{dev: dev, seed: opts.Seed, sleep: opts.Sleep}
	f.Handle = blockdev.NewHandle(dev.Info(), f.serve, dev.Close)
	if f.sleep == nil {
		f.sleep = time.Sleep
	}
	return f
}

// Inject adds a fault. If several faults match a request, the newest hits it. It panics if the
// fault is inconsistent, or if it needs old contents (Stale) and these cannot be read.
func (f *Faulty) Inject(fault Fault) *Injection {
	if fault.To == 0 {
		fault.To = f.Info().Size
	}
	i := &Injection{Fault: fault, faulty: f, hit: make(chan struct{}), release: make(chan struct{})}
	if err := i.validate(f.Info()); err != nil {
		panic("disktest: " + err.Error())
	}
	if fault.Returns != Right {
		i.remember()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	i.id = f.nextID
	f.nextID++
	f.rules = append(f.rules, i)
	return i
}

// Hang makes the requests that match a fault hang until release is called.
func (f *Faulty) Hang(fault Fault) (release func()) {
	fault.Hang = true
	return f.Inject(fault).Release
}

// RemoveFaults releases and removes every fault. Late writes stay late, and a crashed host stays crashed.
func (f *Faulty) RemoveFaults() {
	f.mu.Lock()
	rules := slices.Clone(f.rules)
	f.mu.Unlock()
	for _, i := range rules {
		i.Release()
	}
}

// Land makes the late writes land, in the order in which they were made, and returns their
// number. One that fails is lost, and those after it stay late. A crash does not stop them: they
// were in the fabric already.
func (f *Faulty) Land() (int, error) {
	f.mu.Lock()
	late := f.late
	f.late = nil
	f.mu.Unlock()
	for n, r := range late {
		err := f.dev.Write(r.Bytes, r.Off)
		scratch.Put(r.Bytes)
		if err != nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.late = append(late[n+1:], f.late...)
			return n, err
		}
	}
	return len(late), nil
}

// Crash makes the host crash now: hanging requests fail when released, later ones immediately.
func (f *Faulty) Crash() { f.crashed.Store(true) }

// serve serves a request, with the effect of a fault.
func (f *Faulty) serve(r blockdev.Request) error {
	if f.crashed.Load() {
		return f.Fail(r, ErrCrashed)
	}
	i, nth := f.match(r)
	if i == nil {
		return f.pass(r)
	}
	dice := i.random(uint64(nth), 1)
	if i.wait(); f.crashed.Load() {
		return f.Fail(r, ErrCrashed)
	}
	switch {
	case i.Crash:
		f.Crash()
		return f.Fail(r, f.land(r, i.Landed, ErrCrashed))
	case i.Late:
		f.keep(r)
		if i.Err != nil {
			return f.Fail(r, i.Err)
		}
		return nil
	case i.Err != nil:
		return f.Fail(r, f.land(r, i.Landed, i.Err))
	case i.Flicker > 0:
		return f.flicker(i, dice, r)
	}
	err := f.pass(r)
	if err == nil && i.Returns != Right {
		i.corrupt(dice, r.Bytes, r.Off)
	}
	return err
}

// match returns the fault that hits a request, nil if none, and the index of the request there.
func (f *Faulty) match(r blockdev.Request) (hit *Injection, nth int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range slices.Backward(f.rules) {
		if i.matches(r) && !i.spent() && i.take() {
			if i.fired == i.Times && !i.Hang { // a hanging request is released by RemoveFaults
				f.remove(i)
			}
			return i, i.passed
		}
	}
	return nil, 0
}

// remove removes a rule. The caller holds f.mu.
func (f *Faulty) remove(i *Injection) {
	f.rules = slices.DeleteFunc(f.rules, func(other *Injection) bool { return other == i })
}

// wait blocks a request for the time of the fault.
func (i *Injection) wait() {
	if i.Delay > 0 {
		i.faulty.sleep(i.Delay)
	}
	if i.Hang {
		<-i.release
	}
}

// pass sends a request to the device.
func (f *Faulty) pass(r blockdev.Request) error {
	switch r.Op {
	case blockdev.OpRead:
		return f.dev.Read(r.Bytes, r.Off)
	case blockdev.OpWrite:
		return f.dev.Write(r.Bytes, r.Off)
	default:
		return f.dev.Zero(r.Off, r.N)
	}
}

// keep delays a write until Land.
func (f *Faulty) keep(r blockdev.Request) {
	kept := scratch.Get(len(r.Bytes))
	copy(kept, r.Bytes)
	r.Bytes = kept
	f.mu.Lock()
	defer f.mu.Unlock()
	f.late = append(f.late, r)
}

// land writes the first bytes of a write or zeroing that fails with cause.
func (f *Faulty) land(r blockdev.Request, landed int, cause error) error {
	block := int64(f.Info().LogicalBlock)
	n := min(int64(landed), r.N)
	if landed == All {
		n = r.N
	}
	var err error
	switch {
	case r.Op == blockdev.OpWrite && n > 0:
		err = f.tear(r, n)
	case r.Op == blockdev.OpZero && n >= block:
		err = f.dev.Zero(r.Off, n-n%block)
	}
	if err != nil {
		return fmt.Errorf("%w; landing %d bytes: %w", cause, n, err)
	}
	return cause
}

// tear writes the first n bytes of a write.
func (f *Faulty) tear(r blockdev.Request, n int64) error {
	block := int64(f.Info().LogicalBlock)
	torn := scratch.Get(int((n + block - 1) / block * block))
	defer scratch.Put(torn)
	if err := f.dev.Read(torn, r.Off); err != nil {
		return err
	}
	copy(torn, r.Bytes[:n])
	return f.dev.Write(torn, r.Off)
}

// flicker writes, after showing other states.
func (f *Faulty) flicker(i *Injection, dice *rand.Rand, r blockdev.Request) error {
	old, state := scratch.Get(int(r.N)), scratch.Get(int(r.N))
	defer scratch.Put(old)
	defer scratch.Put(state)
	if err := f.dev.Read(old, r.Off); err != nil {
		return err
	}
	for range i.Flicker {
		flicker(dice, state, old, r.Bytes, f.Info().LogicalBlock)
		if err := f.dev.Write(state, r.Off); err != nil {
			return err
		}
		if i.Delay > 0 {
			f.sleep(i.Delay)
		}
	}
	return f.pass(r)
}

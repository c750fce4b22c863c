package blockdev

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// ErrCrashed is returned by a Faulty, from a Fault with Crash until Restart.
var ErrCrashed = errors.New("host has crashed")

// Faulty is a device as one host sees it when things go wrong between it and the disk. Without faults it is the
// device it stands before.
//
// What is random follows from the seed: the nth request that a fault is about always meets the same fate.
type Faulty struct {
	dev    Device
	info   Info
	ledger *ledger
	seed   uint64
	sleep  func(time.Duration)

	mu      sync.Mutex   // guards all below, and the counts of every Injection
	rules   []*Injection // the newest last
	nextID  uint64
	late    []request // in the order they were made
	crashed bool
}

var (
	_ Device = (*Faulty)(nil)
	_ Zeroer = (*Faulty)(nil)
)

// FaultyOptions are the seed of what is random, and how to wait.
type FaultyOptions struct {
	Seed  uint64
	Sleep func(time.Duration) // nil is time.Sleep; a test with a clock of its own has its own
}

// request is what a Device is asked for. The bytes of an OpZero are nil.
type request struct {
	op    Op
	n     int64
	off   int64
	bytes []byte
}

// NewFaulty returns a device that passes everything on to dev, which it then owns, but for the faults that are
// injected into it.
func NewFaulty(dev Device, opts FaultyOptions) *Faulty {
	f := &Faulty{dev: dev, info: dev.Info(), ledger: newLedger(), seed: opts.Seed, sleep: opts.Sleep}
	if f.sleep == nil {
		f.sleep = time.Sleep
	}
	return f
}

// Inject adds a fault. Of several that are about one request the newest hits it. It panics if the fault makes no
// sense, or if it is to show old contents (Stale, Mixed) and these cannot be read.
func (f *Faulty) Inject(fault Fault) *Injection {
	if fault.To == 0 {
		fault.To = f.info.Size
	}
	i := &Injection{Fault: fault, faulty: f, hit: make(chan struct{}), release: make(chan struct{})}
	if err := i.validate(f.info); err != nil {
		panic("blockdev: " + err.Error())
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

// Hang makes the requests that a fault is about hang until release is called.
func (f *Faulty) Hang(fault Fault) (release func()) {
	fault.Hang = true
	return f.Inject(fault).Release
}

// Heal releases and removes every fault. Writes that are late stay so, and a crashed host stays crashed.
func (f *Faulty) Heal() {
	f.mu.Lock()
	rules := slices.Clone(f.rules)
	f.mu.Unlock()
	for _, i := range rules {
		i.Release()
	}
}

// Land makes the writes land that are late, in the order in which they were made, and returns how many did.
// One that fails is lost, and those after it stay late. A crash does not keep them from landing: they were in the
// fabric already.
func (f *Faulty) Land() (int, error) {
	f.mu.Lock()
	late := f.late
	f.late = nil
	f.mu.Unlock()
	for n, r := range late {
		err := f.dev.Write(r.bytes, r.off)
		scratch.Put(r.bytes)
		if err != nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.late = append(late[n+1:], f.late...)
			return n, err
		}
	}
	return len(late), nil
}

// Crash makes the host crash now: requests that hang fail when released, later ones at once.
func (f *Faulty) Crash() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashed = true
}

// Restart ends a crash.
func (f *Faulty) Restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashed = false
}

// Info implements Device.
func (f *Faulty) Info() Info { return f.info }

// Stats says how the device did, faults included.
func (f *Faulty) Stats() Stats { return f.ledger.stats() }

// Read implements Device.
func (f *Faulty) Read(p []byte, off int64) error {
	if err := f.info.check(OpRead, p, off); err != nil {
		return err
	}
	return f.account(request{op: OpRead, n: int64(len(p)), off: off, bytes: p})
}

// Write implements Device.
func (f *Faulty) Write(p []byte, off int64) error {
	if err := f.info.check(OpWrite, p, off); err != nil {
		return err
	}
	return f.account(request{op: OpWrite, n: int64(len(p)), off: off, bytes: p})
}

// Zero implements Zeroer.
func (f *Faulty) Zero(off, n int64) error {
	if err := f.info.checkRange(OpZero, n, off); err != nil {
		return err
	}
	return f.account(request{op: OpZero, n: n, off: off})
}

// Close implements Device. It waits for requests that hang.
func (f *Faulty) Close() error {
	if !f.ledger.close() {
		return fmt.Errorf("close %s: %w", f.info.Path, ErrClosed)
	}
	return f.dev.Close()
}

// account has the ledger see a request.
func (f *Faulty) account(r request) error {
	id, ok := f.ledger.begin(r.op)
	if !ok {
		return f.fail(r, ErrClosed)
	}
	err := f.do(r)
	f.ledger.end(id, err)
	return err
}

func (f *Faulty) fail(r request, err error) error {
	return requestError(r.op, r.n, r.off, f.info.Path, err)
}

// do serves a request, or what a fault makes of it.
func (f *Faulty) do(r request) error {
	i, nth, crashed := f.match(r)
	if crashed {
		return f.fail(r, ErrCrashed)
	}
	if i == nil {
		return f.pass(r)
	}
	dice := i.random(uint64(nth), 1)
	if i.wait(dice); f.isCrashed() {
		return f.fail(r, ErrCrashed)
	}
	asked := r
	r.off += i.Shift
	switch {
	case i.Crash:
		f.Crash()
		return f.fail(asked, f.land(r, i.Landed, ErrCrashed))
	case i.Late:
		f.keep(r)
		if i.Err != nil {
			return f.fail(asked, i.Err)
		}
		return nil
	case i.Err != nil:
		return f.fail(asked, f.land(r, i.Landed, i.Err))
	case i.Flicker > 0:
		return f.flicker(i, dice, r)
	}
	err := f.pass(r)
	if err == nil && i.Returns != Right {
		i.corrupt(dice, r.bytes, r.off)
	}
	return err
}

// match finds the fault that hits a request, if any, and the number by which it counts there.
func (f *Faulty) match(r request) (hit *Injection, nth int, crashed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return nil, 0, true
	}
	for _, i := range slices.Backward(f.rules) {
		if i.matches(r) && !i.spent() && i.take() {
			if i.fired == i.Times && !i.Hang { // one that hangs stays for Heal to release
				f.remove(i)
			}
			return i, i.passed, false
		}
	}
	return nil, 0, false
}

// remove takes a rule out. The caller holds f.mu.
func (f *Faulty) remove(i *Injection) {
	f.rules = slices.DeleteFunc(f.rules, func(other *Injection) bool { return other == i })
}

func (f *Faulty) isCrashed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crashed
}

// wait holds a request up for as long as the fault says.
func (i *Injection) wait(dice *rand.Rand) {
	d := i.Delay
	if i.Jitter > 0 {
		d += time.Duration(dice.Int64N(int64(i.Jitter)))
	}
	if d > 0 {
		i.faulty.sleep(d)
	}
	if i.Hang {
		<-i.release
	}
}

// pass hands a request on to the device.
func (f *Faulty) pass(r request) error {
	switch r.op {
	case OpRead:
		return f.dev.Read(r.bytes, r.off)
	case OpWrite:
		return f.dev.Write(r.bytes, r.off)
	default:
		return Zero(f.dev, r.off, r.n)
	}
}

// keep has a write wait for Land.
func (f *Faulty) keep(r request) {
	kept := scratch.Get(len(r.bytes))
	copy(kept, r.bytes)
	r.bytes = kept
	f.mu.Lock()
	defer f.mu.Unlock()
	f.late = append(f.late, r)
}

// land makes the first bytes of a write or zeroing that fails with cause reach the disk.
func (f *Faulty) land(r request, landed int, cause error) error {
	block := int64(f.info.LogicalBlock)
	n := min(int64(landed), r.n)
	if landed == All {
		n = r.n
	}
	var err error
	switch {
	case r.op == OpWrite && n > 0:
		err = f.tear(r, n)
	case r.op == OpZero && n >= block:
		err = Zero(f.dev, r.off, n-n%block)
	}
	if err != nil {
		return fmt.Errorf("%w; landing %d bytes: %w", cause, n, err)
	}
	return cause
}

// tear writes the first n bytes of a write.
func (f *Faulty) tear(r request, n int64) error {
	block := int64(f.info.LogicalBlock)
	torn := scratch.Get(int((n + block - 1) / block * block))
	defer scratch.Put(torn)
	if err := f.dev.Read(torn, r.off); err != nil {
		return err
	}
	copy(torn, r.bytes[:n])
	return f.dev.Write(torn, r.off)
}

// flicker writes, but by way of other states.
func (f *Faulty) flicker(i *Injection, dice *rand.Rand, r request) error {
	old, state := scratch.Get(int(r.n)), scratch.Get(int(r.n))
	defer scratch.Put(old)
	defer scratch.Put(state)
	if err := f.dev.Read(old, r.off); err != nil {
		return err
	}
	for range i.Flicker {
		flicker(dice, state, old, r.bytes, f.info.LogicalBlock)
		if err := f.dev.Write(state, r.off); err != nil {
			return err
		}
		if i.Delay > 0 {
			f.sleep(i.Delay)
		}
	}
	return f.pass(r)
}

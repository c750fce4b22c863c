package fusetest

import (
	"math"
	"sync"
	"syscall"
	"time"
)

// Trouble selects requests: reads, writes or both, of any of the bytes From to To-1. To 0 is the
// end of the disk.
type Trouble struct {
	Reads, Writes bool
	From, To      int64
}

// All selects all requests.
var All = Trouble{Reads: true, Writes: true}

// request is a read or write of length bytes at off by the kernel.
type request struct {
	write  bool
	off    int64
	length int
}

func (t Trouble) selects(r request) bool {
	to := t.To
	if to == 0 {
		to = math.MaxInt64
	}
	return (r.write && t.Writes || !r.write && t.Reads) && r.off < to && r.off+int64(r.length) > t.From
}

// State says which requests are faulty. The zero State has no faults.
type State struct {
	Hang  Trouble // no answer until the state changes
	Fail  Trouble // EIO
	Slow  Trouble // an answer that is late by Delay
	Delay time.Duration

	// Cut makes all requests fail, also those that hang, as those of a host that lost its power.
	// The writes that Hang selects land when [File.Land] is called.
	Cut bool
}

// Faults are the faults of one place that requests pass, such as a path or a disk. The zero Faults
// has none.
type Faults struct {
	mu      sync.Mutex // guards the fields below
	state   State
	changed chan struct{} // closed when the state changes; nil if no request hangs
	hanging int
}

// Change changes the state, which also applies to requests under way.
func (f *Faults) Change(change func(*State)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.state)
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// Set sets the state.
func (f *Faults) Set(s State) { f.Change(func(state *State) { *state = s }) }

// Repair ends all faults. Writes that hang land now.
func (f *Faults) Repair() { f.Set(State{}) }

// Hanging returns the number of requests that hang.
func (f *Faults) Hanging() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hanging
}

// pass blocks while a request hangs or is late, and returns its error. lands is true for a write
// that fails because of a cut, and lands later.
func (f *Faults) pass(r request) (errno syscall.Errno, lands bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.state.Hang.selects(r) && !f.state.Cut {
		if f.changed == nil {
			f.changed = make(chan struct{})
		}
		changed := f.changed
		f.hanging++
		f.mu.Unlock()
		<-changed
		f.mu.Lock()
		f.hanging--
	}
	switch {
	case f.state.Cut:
		return syscall.EIO, r.write && f.state.Hang.selects(r)
	case f.state.Fail.selects(r):
		return syscall.EIO, false
	case f.state.Slow.selects(r):
		delay := f.state.Delay
		f.mu.Unlock()
		time.Sleep(delay)
		f.mu.Lock()
	}
	return 0, false
}

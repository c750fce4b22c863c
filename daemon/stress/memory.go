package stress

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Memory is a lock whose slots are registers in the memory of this process. Only reads and writes
// of them decide which worker enters.
type Memory struct {
	// MaxTicket is an exclusive bound of ticket numbers. 0: no bound.
	MaxTicket uint64
}

func (b Memory) open(ctx context.Context, r *run) ([]access, error) {
	n, limit := r.cfg.Workers, uint64(0)
	if b.MaxTicket > 0 {
		if least := LeastMaxTicket(n); b.MaxTicket < least {
			return nil, fmt.Errorf("%w: %d workers cannot keep their tickets below %d, want at least %d", ErrInvalid, n, b.MaxTicket, least)
		}
		limit = b.MaxTicket - reserve(n)
	}
	s := &shelf{registers: make([]register, n)}
	for i := range s.registers {
		s.registers[i].rung.L = &s.registers[i].mu
	}
	context.AfterFunc(ctx, s.stop)
	all := make([]access, n)
	for i := range all {
		c := &customer{shelf: s, ctx: ctx, v: newVisitor(i, n, limit), read: make([]word, n), trace: r.trace}
		c.v.distort = r.cfg.distort
		all[i] = c
	}
	return all, nil
}

// shelf holds the registers of all workers.
type shelf struct {
	registers []register
	stopped   atomic.Bool
}

// register is a word that one worker writes and all read. The other fields only spare waiting
// workers from reading it all the time. The bell rings after the word was written, and each woken
// worker reads the word.
type register struct {
	word     atomic.Uint64
	watchers atomic.Int32
	mu       sync.Mutex
	rung     sync.Cond
	_        [64]byte // keeps neighbours in different cache lines
}

func (r *register) write(w word) {
	r.word.Store(uint64(w))
	if r.watchers.Load() > 0 {
		r.ring()
	}
}

func (r *register) ring() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rung.Broadcast()
}

// await waits until the register shows another word than was, and returns it. After a stop it
// returns immediately.
func (s *shelf) await(of int, was word) word {
	r := &s.registers[of]
	if w := word(r.word.Load()); w != was {
		return w
	}
	r.watchers.Add(1) // before the word is read again: the writer reads it after its write
	defer r.watchers.Add(-1)
	r.mu.Lock()
	defer r.mu.Unlock()
	for word(r.word.Load()) == was && !s.stopped.Load() {
		r.rung.Wait()
	}
	return word(r.word.Load())
}

func (s *shelf) stop() {
	s.stopped.Store(true)
	for i := range s.registers {
		s.registers[i].ring()
	}
}

// customer carries out a visitor's actions.
type customer struct {
	shelf *shelf
	ctx   context.Context
	v     *visitor
	read  []word
	trace *trace
}

func (c *customer) lock() (grant, error) {
	if c.shelf.stopped.Load() || c.drive(c.v.begin()) == done {
		return grant{}, context.Cause(c.ctx)
	}
	if c.trace != nil {
		c.drive(c.v.settle())
	}
	return grant{ticket: c.v.m.Token(), era: c.v.gate.era, bounded: c.v.gate.limit > 0}, nil
}

func (c *customer) unlock() error {
	c.drive(c.v.leave())
	return nil
}

func (c *customer) close() error {
	c.drive(c.v.retire())
	return nil
}

func (c *customer) highest() uint64 { return c.v.highest }

// drive continues until the visitor is inside, or done.
func (c *customer) drive(a action) kind {
	for {
		if c.trace != nil {
			c.tell(a)
		}
		switch a.kind {
		case write:
			c.shelf.registers[c.v.self].write(a.word)
			a = c.v.wrote()
		case look:
			for i := range c.read {
				c.read[i] = word(c.shelf.registers[i].word.Load())
			}
			a = c.v.saw(c.read)
		case poll:
			w := c.shelf.await(a.of, a.was)
			if c.shelf.stopped.Load() {
				a = c.v.cancel()
			} else {
				a = c.v.changed(a.of, w)
			}
		default:
			return a.kind
		}
	}
}

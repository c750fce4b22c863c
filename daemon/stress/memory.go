package stress

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Memory returns a lock whose slots are registers in the memory of this process. Only reads and
// writes of them decide which worker enters. maxTicket is an exclusive bound of ticket numbers; 0:
// no bound.
func Memory(maxTicket uint64) Backend {
	return func(ctx context.Context, r *run) (all []access, err error) {
		n, limit := r.cfg.Workers, uint64(0)
		if maxTicket > 0 {
			if least := LeastMaxTicket(n); maxTicket < least {
				return nil, fmt.Errorf("%w: %d workers cannot keep their tickets below %d, want at least %d", ErrInvalid, n, maxTicket, least)
			}
			limit = maxTicket - reserve(n)
		}
		registers := make([]register, n)
		context.AfterFunc(ctx, func() {
			for i := range registers {
				registers[i].ring()
			}
		})
		for i := range n {
			c := &customer{registers: registers, ctx: ctx, v: newVisitor(i, n, limit), read: make([]word, n), trace: r.trace}
			c.v.distort = r.cfg.distort
			all = append(all, access{c.lock, c.unlock, c.close})
		}
		return all, nil
	}
}

// register is a word that one worker writes and all read. The bell only spares waiting workers from
// reading it all the time: its close tells them that the word was written, and each reads the word.
type register struct {
	word atomic.Uint64
	bell atomic.Pointer[chan struct{}] // nil if no worker waits
	_    [64]byte                      // keeps neighbours in different cache lines
}

func (r *register) write(w word) {
	r.word.Store(uint64(w))
	if r.bell.Load() != nil {
		r.ring()
	}
}

func (r *register) ring() {
	if bell := r.bell.Swap(nil); bell != nil {
		close(*bell)
	}
}

// await waits until the register shows another word than was, and returns it. After the end of ctx
// it returns immediately.
func (r *register) await(ctx context.Context, was word) word {
	for {
		bell := r.bell.Load() // before word and ctx: it is closed after a write or the end of ctx
		w := word(r.word.Load())
		switch {
		case w != was || ctx.Err() != nil:
			return w
		case bell == nil:
			r.bell.CompareAndSwap(nil, new(make(chan struct{})))
			continue
		}
		<-*bell
	}
}

// customer carries out a visitor's actions.
type customer struct {
	registers []register
	ctx       context.Context
	v         *visitor
	read      []word
	trace     *trace
}

func (c *customer) lock() (grant, error) {
	if c.ctx.Err() != nil || c.drive(c.v.begin()) == done {
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

// drive continues until the visitor is inside, or done.
func (c *customer) drive(a action) kind {
	for {
		if c.trace != nil {
			c.tell(a)
		}
		switch a.kind {
		case write:
			c.registers[c.v.self].write(a.word)
			a = c.v.wrote()
		case look:
			for i := range c.read {
				c.read[i] = word(c.registers[i].word.Load())
			}
			a = c.v.saw(c.read)
		case poll:
			w := c.registers[a.of].await(c.ctx, a.was)
			if c.ctx.Err() != nil {
				a = c.v.cancel()
			} else {
				a = c.v.changed(a.of, w)
			}
		default:
			return a.kind
		}
	}
}

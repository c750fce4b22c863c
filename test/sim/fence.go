package sim

import (
	"context"
	"fmt"

	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/bakeryd/bakeryd/layout"
)

// agent fences by persistent reservations of the disk: a machine without a registered key cannot write, and
// removing its key aborts its writes in flight.
type agent struct {
	p   *process
	cfg fence.Config
}

var _ fence.Agent = agent{}

func (p *process) agent(cfg fence.Config) (fence.Agent, error) { return agent{p, cfg}, nil }

// command waits until the machine and its path let a command through.
func (a agent) command(ctx context.Context) error {
	path := a.p.m.paths[0]
	h := handle{p: path, proc: a.p}
	for {
		if err := h.sleep(path.draw()); err != nil {
			return err
		}
		if err := h.ready(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !path.hangs {
			return h.fails()
		}
		changed := path.changed
		select {
		case <-changed:
		case <-ctx.Done():
		case <-a.p.killed:
		}
	}
}

// Register implements fence.Agent.
func (a agent) Register(ctx context.Context) error {
	if err := a.command(ctx); err != nil {
		return err
	}
	keys := a.p.m.w.disk.keys
	if a.cfg.Resumed && keys[a.p.m] != a.cfg.Key {
		return fence.ErrFenced
	}
	keys[a.p.m] = a.cfg.Key
	return nil
}

// Fence implements fence.Agent.
func (a agent) Fence(ctx context.Context, t fence.Target) error {
	if err := a.command(ctx); err != nil {
		return err
	}
	w := a.p.m.w
	if w.disk.keys[a.p.m] != a.cfg.Key {
		return fence.ErrFenced
	}
	aborted := false
	for _, m := range w.machines {
		if w.disk.keys[m] == t.Key {
			w.count("fenced")
			w.trace.step(a.p.m.n, fmt.Sprint("fences ", m.name()))
			w.disk.cutOff(m)
			aborted = true
		}
	}
	if !aborted { // another host removed the key, and may not have aborted the writes
		h := handle{p: a.p.m.paths[0], proc: a.p}
		if err := h.sleep(w.sb.Lease / 6); err != nil {
			return err
		}
	}
	if err := a.command(ctx); err != nil {
		return fmt.Errorf("%w: %w", fence.ErrUnconfirmed, err)
	}
	if w.disk.keys[a.p.m] != a.cfg.Key {
		return fence.ErrFenced
	}
	if w.sb.FenceAfter > 0 {
		w.rules.cut[uint64(t.Incarnation)] = true
	}
	return nil
}

// Unregister implements fence.Agent.
func (a agent) Unregister(ctx context.Context) error {
	err := a.command(ctx)
	if keys := a.p.m.w.disk.keys; err == nil && keys[a.p.m] == a.cfg.Key {
		delete(keys, a.p.m)
	}
	return err
}

// String implements fence.Agent.
func (a agent) String() string { return "simulated" }

// cutOff removes the key of a machine, and aborts its writes.
func (d *disks) cutOff(m *machine) {
	delete(d.keys, m)
	for _, wr := range d.of(m) {
		wr.cut = true
		wr.h.p.d.complete(wr, 0)
	}
}

// refuses reports whether the disk refuses a machine's writes.
func (d *disks) refuses(m *machine) bool {
	_, registered := d.keys[m]
	return d.w.sb.Policy == layout.PolicyFence && !registered
}

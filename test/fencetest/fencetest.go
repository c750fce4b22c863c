// Package fencetest has fence agents on a disk in memory, for tests. The contract test of package
// fence runs over them as well. Begin with Fabric.
package fencetest

import (
	"context"
	"sync"

	"github.com/bakeryd/bakeryd/daemon/fence"
)

// Fabric is a disk in memory that hosts can write until they are fenced.
type Fabric struct {
	mu      sync.Mutex // guards the fields below
	fenced  map[int]uint64
	calls   []fence.Target
	err     error
	release chan struct{} // Fence waits for it, if not nil
}

// Agent returns the agent of a host.
func (f *Fabric) Agent(host int, incarnation uint64) fence.Agent {
	return agent{f, host, incarnation}
}

// Fail makes every Fence return err; nil: succeed again.
func (f *Fabric) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// Hang makes every Fence wait until the returned function is called, or its ctx ends.
func (f *Fabric) Hang() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ch := make(chan struct{})
	f.release = ch
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.release = nil
		close(ch)
	})
}

// Calls returns the targets of every Fence so far.
func (f *Fabric) Calls() []fence.Target {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]fence.Target(nil), f.calls...)
}

// CanWrite reports whether the incarnation of a host has not been fenced.
func (f *Fabric) CanWrite(host int, incarnation uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fenced[host] != incarnation
}

type agent struct {
	*Fabric
	host        int
	incarnation uint64
}

func (a agent) Register(ctx context.Context) error { return ctx.Err() }

func (a agent) Fence(ctx context.Context, t fence.Target) error {
	a.mu.Lock()
	a.calls = append(a.calls, t)
	release := a.release
	a.mu.Unlock()
	if t.Name == "" {
		return fence.ErrTarget
	}
	if release != nil {
		select {
		case <-release:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fenced[a.host] == a.incarnation {
		return fence.ErrFenced
	}
	if a.err != nil {
		return a.err
	}
	if a.fenced == nil {
		a.fenced = map[int]uint64{}
	}
	a.fenced[t.Host] = uint64(t.Incarnation)
	return nil
}

func (a agent) Unregister(ctx context.Context) error { return ctx.Err() }

func (a agent) String() string { return "fake" }

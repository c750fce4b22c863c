// Package fencetest has a fence agent for tests, and the contract test of agents.
//
// It knows the promises of an Agent in daemon/fence. It never knows their implementation. Begin
// with Contract.
package fencetest

import (
	"context"
	"sync"
	"testing"

	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/stretchr/testify/require"
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
	a.fenced[t.Host] = t.Incarnation
	return nil
}

func (a agent) Unregister(ctx context.Context) error { return ctx.Err() }

func (a agent) String() string { return "fake" }

// World is one kind of agent on one disk, made for one test of the contract.
type World struct {
	Agents   [2]fence.Agent // of hosts that are not registered yet
	Targets  [2]fence.Target
	Bad      fence.Target            // a target that the agents cannot fence
	CanWrite func(host int) bool     // 0 or 1
	Break    func() (repair func())  // no attempt is confirmed until repair is called
	Hang     func() (release func()) // no attempt ends until release is called
}

// Contract tests the promises of fence.Agent. in runs each test, as synctest.Test does.
func Contract(t *testing.T, in func(*testing.T, func(*testing.T)), world func(*testing.T) World) {
	t.Helper()
	run := func(name string, test func(*testing.T)) {
		t.Run(name, func(t *testing.T) { in(t, test) })
	}
	joined := func(t *testing.T) World {
		w := world(t)
		for i, a := range w.Agents {
			require.NoError(t, a.Register(t.Context()))
			require.True(t, w.CanWrite(i))
		}
		return w
	}
	run("fenced host cannot write", func(t *testing.T) {
		w := joined(t)
		require.NoError(t, w.Agents[0].Fence(t.Context(), w.Targets[1]))
		require.False(t, w.CanWrite(1))
		require.True(t, w.CanWrite(0))
		require.NoError(t, w.Agents[0].Fence(t.Context(), w.Targets[1]), "fenced already")
		require.False(t, w.CanWrite(1))
	})
	run("target that cannot be fenced", func(t *testing.T) {
		w := joined(t)
		require.ErrorIs(t, w.Agents[0].Fence(t.Context(), w.Bad), fence.ErrTarget)
		require.True(t, w.CanWrite(0) && w.CanWrite(1))
	})
	run("not confirmed", func(t *testing.T) {
		w := joined(t)
		repair := w.Break()
		require.Error(t, w.Agents[0].Fence(t.Context(), w.Targets[1]))
		repair()
		require.NoError(t, w.Agents[0].Fence(t.Context(), w.Targets[1]))
		require.False(t, w.CanWrite(1))
	})
	run("returns when the context ends", func(t *testing.T) {
		w := joined(t)
		release := w.Hang()
		defer release()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Agents[0].Fence(ctx, w.Targets[1]) }()
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
	run("context over", func(t *testing.T) {
		w := joined(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		a := w.Agents[0]
		require.ErrorIs(t, a.Register(ctx), context.Canceled)
		require.ErrorIs(t, a.Fence(ctx, w.Targets[1]), context.Canceled)
		require.ErrorIs(t, a.Unregister(ctx), context.Canceled)
		require.True(t, w.CanWrite(1))
	})
	run("several at once", func(t *testing.T) {
		w := joined(t)
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			wg.Go(func() { errs[i] = w.Agents[0].Fence(t.Context(), w.Targets[1]) })
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		require.False(t, w.CanWrite(1))
	})
	run("leave", func(t *testing.T) {
		w := joined(t)
		require.NoError(t, w.Agents[1].Unregister(t.Context()))
		require.NoError(t, w.Agents[1].Unregister(t.Context()))
		require.NoError(t, w.Agents[0].Fence(t.Context(), w.Targets[1]), "gone")
		require.NotEmpty(t, w.Agents[0].String())
	})
}

package membership

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// ErrFenceAgent is returned when other hosts could not fence this host.
var ErrFenceAgent = errors.New("the fence agent cannot be used")

// ErrCutOff is returned when the device refuses the writes of this host.
var ErrCutOff = errors.New("another host has fenced this one")

// registration is an agent with which a host id is registered.
type registration struct {
	agent fence.Agent
	host  int
}

// registerWithin limits the time that the devices may take to register a key.
const registerWithin = 30 * time.Second

func newIncarnation() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

// incarnation returns a new incarnation for this host. The first one is drawn earlier, so that its
// key is registered before the claim begins.
func (mb *Member) incarnation() uint64 {
	n := mb.first
	mb.first = newIncarnation()
	return n
}

// register registers the key by which this host can be fenced, once per id, if the recovery policy is
// fence. Join, the writes of the host record, which call it, and Unregister never overlap.
func (mb *Member) register(id int, incarnation uint64) error {
	cfg := mb.cfg.Fence
	cfg.Resumed = mb.cfg.Lease.Resume != nil
	if r := mb.registered.Load(); mb.cfg.SB.Policy != layout.PolicyFence || r != nil && (r.host == id || cfg.Resumed) {
		return nil
	}
	mb.Unregister()
	if !cfg.Resumed {
		cfg.Key = fence.Key(id, incarnation)
		mb.cfg.Fence.Key = cfg.Key
	}
	cfg.Agent, cfg.Log = cmp.Or(cfg.Agent, "pr"), mb.cfg.Log
	if mb.set == nil {
		cfg.Devices = append([]string{mb.cfg.Dev.Info().Path}, cfg.Devices...)
	}
	agent, err := mb.cfg.NewAgent(cfg)
	if err != nil {
		return fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), registerWithin)
	defer cancel()
	if err := agent.Register(ctx); err != nil {
		return fmt.Errorf("%w: register with %v: %w", ErrFenceAgent, agent, err)
	}
	mb.registered.Store(&registration{agent, id})
	return nil
}

// Unregister removes the key by which other hosts can cut this one off, after the last write.
func (mb *Member) Unregister() {
	r := mb.registered.Load()
	if r == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), registerWithin)
	defer cancel()
	if err := r.agent.Unregister(ctx); err != nil {
		mb.cfg.Log.Warn("unregistering from the fence agent failed", "agent", r.agent.String(), "err", err)
	}
	mb.registered.Store(nil)
}

// attempt is an attempt to fence a host.
type attempt struct {
	of        lease.Host              // as it was when the attempt began
	stop      context.CancelCauseFunc // also ends those that it waits for
	confirmed bool                    // owned by the attempt until it has ended
	ended     chan struct{}
}

// errRenewed is the cause of the end of an attempt that is needless.
var errRenewed = errors.New("the host has renewed its lease")

// attempt begins to fence a host when an earlier attempt on it has ended. Called with mu held.
func (mb *Member) attempt(a lease.Fence) {
	ctx, stop := context.WithCancelCause(mb.over) // the end of the term waits for the fencing, and ends it
	at, earlier := &attempt{of: mb.m.Hosts()[a.Host-1], stop: stop, ended: make(chan struct{})}, mb.attempts[a.Host]
	if earlier != nil { // under way although its silence counts from a later time (STEADY)
		at.stop = func(why error) {
			stop(why)
			earlier.stop(why)
		}
	}
	mb.attempts[a.Host] = at
	left := a.Until - mb.cfg.Clock.Now()
	mb.io.Go(func() {
		defer close(at.ended)
		defer stop(nil)
		ctx, cancel := context.WithTimeout(ctx, left)
		defer cancel()
		if earlier != nil {
			<-earlier.ended
		}
		if ctx.Err() == nil && (earlier == nil || !earlier.confirmed || earlier.of.Incarnation != a.Incarnation) {
			over := mb.leaseOver(a)
			at.confirmed = mb.fence(ctx, a, over) || !over && mb.awaitLeaseOver(ctx, a) && mb.fence(ctx, a, true)
		}
		mb.mu.Lock()
		defer mb.mu.Unlock()
		if !at.confirmed {
			mb.failedFences[a.Host] = mb.cfg.Clock.Now()
		}
		if mb.attempts[a.Host] == at {
			delete(mb.attempts, a.Host)
		}
	})
}

// FailedFences returns when the last attempt of this host to fence another one ended without
// success, by id.
func (mb *Member) FailedFences() map[int]time.Duration {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return maps.Clone(mb.failedFences)
}

// spareRenewed ends attempts to fence hosts that have renewed since. An attempt without an answer
// confirms nothing.
func (mb *Member) spareRenewed() {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	if len(mb.attempts) == 0 {
		return
	}
	hosts := mb.m.Hosts()
	for id, at := range mb.attempts {
		if h := hosts[id-1]; h.Incarnation != at.of.Incarnation || h.Since != at.of.Since {
			at.stop(errRenewed)
		}
	}
}

// fence cuts a silent host off, and reports the result to the lease machine. over is what leaseOver returned. It
// returns whether that was confirmed.
func (mb *Member) fence(ctx context.Context, a lease.Fence, over bool) bool {
	agent := mb.registered.Load().agent
	target := fence.Target{Host: a.Host, Incarnation: text.Hex(a.Incarnation), Name: a.Name, Key: a.PRKey, LeaseOver: over}
	log := mb.cfg.Log.With("agent", agent.String(), "host", a.Host, "host_name", a.Name, "incarnation", target.Incarnation)
	log.Warn("host is silent, fencing it")
	err := agent.Fence(ctx, target)
	if err == nil {
		log.Warn("host fenced")
		mb.noteOther(events.Fenced, a.Host, a.Name, a.Incarnation, "")
		mb.cfg.Tally.Fenced.Add(1)
		mb.event(func(now time.Duration) []lease.Action { return mb.m.Fenced(now, a.Host, a.Incarnation) })
		return true
	}
	if errors.Is(context.Cause(ctx), errRenewed) && !errors.Is(err, fence.ErrFenced) {
		log.Warn("the host has renewed its lease, fencing ended without an answer", "err", err)
		return false
	}
	mb.cfg.Tally.FencingFailures.Add(1)
	if !errors.Is(err, fence.ErrFenced) {
		log.Error("fencing failed, another host or a later attempt takes over", "err", err)
		return false
	}
	// Another host fenced this one, or the device lost all registrations. In the second case no host
	// could fence any other any more. Only a new incarnation may register: a host may have cut off the
	// old key.
	log.Error("fencing failed: this host is not registered any more, giving up its lease to register again", "err", err)
	mb.LoseFor(err)
	return false
}

// leaseOver reports whether the host to fence has been silent for so long that its lease is over, which
// is later than with fence-after.
func (mb *Member) leaseOver(a lease.Fence) bool {
	return locked(mb, func(m *lease.Machine) bool {
		h := m.Hosts()[a.Host-1]
		return h.Incarnation == a.Incarnation && h.Looked >= h.DeadAt(timing.Times{Lease: mb.cfg.SB.Lease})
	})
}

// awaitLeaseOver waits until the lease of a host is over that could not be fenced. A majority of the member disks
// suffices then, and the next attempt is far away: with fence-after, this one may begin shortly before that. It
// returns false if ctx ends first, if another host has declared it dead, or with one disk.
func (mb *Member) awaitLeaseOver(ctx context.Context, a lease.Fence) bool {
	for mb.set != nil && ctx.Err() == nil {
		hosts, changed := mb.Known()
		switch {
		case hosts[a.Host-1].Gone:
			return false
		case mb.leaseOver(a):
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return false
}

// HasAsked reports whether this host has asked another one to leave.
func (mb *Member) HasAsked(host int, incarnation uint64) bool {
	return locked(mb, func(*lease.Machine) bool { return mb.wished[layout.Verdict{Host: host, Incarnation: incarnation}] })
}

// Evict passes an operator's request to the lease machine.
func (mb *Member) Evict(host int, incarnation uint64, forget bool) (err error) {
	mb.event(func(now time.Duration) (actions []lease.Action) {
		// the outcome of an earlier request does not count
		delete(mb.wished, layout.Verdict{Host: host, Incarnation: incarnation})
		actions, err = mb.m.Evict(now, host, incarnation, forget)
		return actions
	})
	return err
}

// UseAgent replaces the fence agent, as tests do.
func (mb *Member) UseAgent(agent fence.Agent) {
	mb.registered.Store(&registration{agent, mb.registered.Load().host})
}

// Key returns the key by which other hosts fence this one; 0 if they cannot.
func (mb *Member) Key() uint64 { return mb.cfg.Fence.Key }

package daemon

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/layout"
)

// FenceConfig says how this host fences others, in a lockspace whose recovery
// policy is to fence.
type FenceConfig struct {
	Agent   string   // "pr", "exec", or empty: pr
	Command string   // of exec
	Devices []string // pr: devices beside that of the lockspace
}

// fencing is this host's means to cut others off, and what they need to cut
// this one off. Without a policy that fences it does nothing.
type fencing struct {
	cfg     FenceConfig
	device  string
	log     *slog.Logger
	policy  layout.Policy
	resumed bool
	first   uint64 // the incarnation that the key is made of, 0: taken

	mu    sync.Mutex // guards agent and of
	agent fence.Agent
	of    int // the host id that is registered

	key uint64 // as published; set before the first write that has it
}

// registerWithin bounds what the devices may take to register a key.
const registerWithin = 30 * time.Second

func newFencing(d *Daemon, p *predecessor) *fencing {
	f := &fencing{cfg: d.cfg.Fence, device: d.cfg.Device, log: d.log, policy: d.sb.Policy, first: newIncarnation()}
	if f.policy != layout.PolicyFence && (f.cfg.Command != "" || len(f.cfg.Devices) > 0) {
		f.log.Warn("the fence agent is not used: it is not what the lockspace was formatted for", "policy", f.policy)
	}
	if p != nil && f.policy == layout.PolicyFence {
		f.resumed, f.key = true, p.term.PRKey
	}
	return f
}

func newIncarnation() uint64 {
	var b [8]byte
	for {
		rand.Read(b[:])
		if n := binary.LittleEndian.Uint64(b[:]); n != 0 {
			return n
		}
	}
}

// incarnation returns the next number for this host. The first is known
// before: its key can be registered while nobody waits for the claim.
func (f *fencing) incarnation() uint64 {
	n := f.first
	f.first = newIncarnation()
	return n
}

// prepare registers the key of a host whose id is known.
func (f *fencing) prepare(id int) error {
	if id == 0 && !f.resumed {
		return nil // known with the first write
	}
	return f.register(id, f.first)
}

// register makes this host one that can be fenced, once for each id.
func (f *fencing) register(id int, incarnation uint64) error {
	if f.policy != layout.PolicyFence {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.agent != nil && (f.of == id || f.resumed) {
		return nil
	}
	f.unregister()
	if !f.resumed {
		f.key = fence.Key(id, incarnation)
	}
	cfg := fence.Config{
		Agent: f.cfg.Agent, Command: f.cfg.Command, Devices: append([]string{f.device}, f.cfg.Devices...),
		Key: f.key, Resumed: f.resumed, Log: f.log,
	}
	if cfg.Agent == "" {
		cfg.Agent = "pr"
	}
	agent, err := fence.New(cfg)
	if err != nil {
		return fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), registerWithin)
	defer cancel()
	if err := agent.Register(ctx); err != nil {
		return fmt.Errorf("%w: register with %v: %w", ErrFenceAgent, agent, err)
	}
	f.agent, f.of = agent, id
	return nil
}

// leave gives the registration back, after the last write.
func (f *fencing) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unregister()
}

func (f *fencing) unregister() {
	if f.agent == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), registerWithin)
	defer cancel()
	if err := f.agent.Unregister(ctx); err != nil {
		f.log.Warn("unregistering from the fence agent failed", "agent", f.agent.String(), "err", err)
	}
	f.agent = nil
}

// fence cuts a silent host off, and lets the lease know whether it is.
func (mb *member) fence(a lease.Fence) {
	f := mb.fencing
	f.mu.Lock()
	agent := f.agent
	f.mu.Unlock()
	target := fence.Target{Host: a.Host, Incarnation: a.Incarnation, Name: a.Name, Key: a.PRKey}
	log := mb.log.With("agent", agent.String(), "fenced_host_id", a.Host, "fenced_host_name", a.Name, "incarnation", hexID(a.Incarnation))
	log.Warn("host is silent, fencing it")
	ctx, cancel := context.WithTimeout(context.Background(), a.Until-mb.clock.Now())
	defer cancel()
	go func() { // once this host is over nobody waits for it but those who wait for its IO
		select {
		case <-mb.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := agent.Fence(ctx, target)
	if err != nil {
		mb.tally.FencingFailures.Add(1)
	}
	if errors.Is(err, fence.ErrFenced) {
		// Somebody fenced this host, or the device forgot its registrations, as of all others: then nobody could fence
		// anybody any more. Only another incarnation may register again: under the old key this host may be cut off.
		log.Error("fencing failed: this host is registered no more, giving up its lease to register anew", "err", err)
		mb.loseFor(err)
		return
	}
	if err != nil {
		log.Error("fencing failed, another host or a later attempt takes over", "err", err)
		mb.event(func(now time.Duration) []lease.Action { return mb.m.FenceFailed(now, a.Host, a.Incarnation) })
		return
	}
	log.Warn("host fenced")
	mb.noteFenced(a)
	mb.tally.Fenced.Add(1)
	mb.event(func(now time.Duration) []lease.Action { return mb.m.Fenced(now, a.Host, a.Incarnation) })
}

// hasAsked tells whether this host has asked another one to leave.
func (mb *member) hasAsked(host int, incarnation uint64) bool {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return mb.wished[layout.Verdict{Host: host, Incarnation: incarnation}]
}

// evict gives the lease an operator's word.
func (mb *member) evict(host int, incarnation uint64, forget bool) (err error) {
	mb.event(func(now time.Duration) (actions []lease.Action) {
		delete(mb.wished, layout.Verdict{Host: host, Incarnation: incarnation}) // what came of an earlier word tells nothing
		actions, err = mb.m.Evict(now, host, incarnation, forget)
		return actions
	})
	return err
}

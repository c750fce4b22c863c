package membership

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/layout"
)

// ErrFenceAgent is returned when other hosts could not fence this host.
var ErrFenceAgent = errors.New("the fence agent cannot be used")

// FenceConfig is how this host fences others, if the lockspace's recovery policy is fence.
type FenceConfig struct {
	Agent   string   // "pr", "exec", or empty: pr
	Command string   // command of the exec agent
	Devices []string // for pr: devices in addition to that of the lockspace
}

// Fencing cuts other hosts off, and registers the key by which they can cut this host off. Without
// the policy fence it does nothing. Prepare, the writes of the host record, which register, and
// Leave never overlap.
type Fencing struct {
	cfg     FenceConfig
	device  string
	log     *slog.Logger
	policy  layout.Policy
	resumed bool
	first   uint64 // next incarnation, of which the key is made

	registered atomic.Pointer[registration] // nil if none

	key uint64 // as published; set before the first write that contains it
}

// registration is an agent with which a host id is registered.
type registration struct {
	agent fence.Agent
	host  int
}

// registerWithin limits the time that the devices may take to register a key.
const registerWithin = 30 * time.Second

// NewFencing returns the fencing of a host of a lockspace on a device. resumed is whether the host continues the term of
// the previous process, whose key is key.
func NewFencing(cfg FenceConfig, device string, policy layout.Policy, log *slog.Logger, resumed bool, key uint64) *Fencing {
	f := &Fencing{cfg: cfg, device: device, log: log, policy: policy, first: newIncarnation()}
	if f.policy != layout.PolicyFence && (f.cfg.Command != "" || len(f.cfg.Devices) > 0) {
		f.log.Warn("fence agent ignored: the lockspace has another recovery policy", "policy", f.policy)
	}
	if resumed && f.policy == layout.PolicyFence {
		f.resumed, f.key = true, key
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

// incarnation returns a new incarnation for this host. The first one is drawn earlier, so that its
// key is registered before the claim begins.
func (f *Fencing) incarnation() uint64 {
	n := f.first
	f.first = newIncarnation()
	return n
}

// Prepare registers the key if the host id is known.
func (f *Fencing) Prepare(id int) error {
	if id == 0 && !f.resumed {
		return nil // registered with the first write
	}
	return f.register(id, f.first)
}

// register registers the key by which this host can be fenced, once per id.
func (f *Fencing) register(id int, incarnation uint64) error {
	if f.policy != layout.PolicyFence {
		return nil
	}
	if r := f.registered.Load(); r != nil && (r.host == id || f.resumed) {
		return nil
	}
	f.Leave()
	if !f.resumed {
		f.key = fence.Key(id, incarnation)
	}
	cfg := fence.Config{
		Agent: cmp.Or(f.cfg.Agent, "pr"), Command: f.cfg.Command, Devices: append([]string{f.device}, f.cfg.Devices...),
		Key: f.key, Resumed: f.resumed, Log: f.log,
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
	f.registered.Store(&registration{agent, id})
	return nil
}

// Leave removes the registration, after the last write.
func (f *Fencing) Leave() {
	r := f.registered.Load()
	if r == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), registerWithin)
	defer cancel()
	if err := r.agent.Unregister(ctx); err != nil {
		f.log.Warn("unregistering from the fence agent failed", "agent", r.agent.String(), "err", err)
	}
	f.registered.Store(nil)
}

// fence cuts a silent host off, and reports the result to the lease machine.
func (mb *Member) fence(a lease.Fence) {
	agent := mb.cfg.Fencing.registered.Load().agent
	target := fence.Target{Host: a.Host, Incarnation: a.Incarnation, Name: a.Name, Key: a.PRKey}
	log := mb.cfg.Log.With("agent", agent.String(), "fenced_host_id", a.Host, "fenced_host_name", a.Name, "incarnation", hexID(a.Incarnation))
	log.Warn("host is silent, fencing it")
	// The end of the term waits for the fencing, and ends it.
	ctx, cancel := context.WithTimeout(mb.over, a.Until-mb.cfg.Clock.Now())
	defer cancel()
	err := agent.Fence(ctx, target)
	if err == nil {
		log.Warn("host fenced")
		mb.noteOf(events.Event{Kind: events.Fenced, Host: a.Host, HostName: a.Name, Incarnation: a.Incarnation})
		mb.cfg.Tally.Fenced.Add(1)
		mb.event(func(now time.Duration) []lease.Action { return mb.m.Fenced(now, a.Host, a.Incarnation) })
		return
	}
	mb.cfg.Tally.FencingFailures.Add(1)
	if !errors.Is(err, fence.ErrFenced) {
		log.Error("fencing failed, another host or a later attempt takes over", "err", err)
		return
	}
	// Another host fenced this one, or the device lost all registrations. In the second case no host
	// could fence any other any more. Only a new incarnation may register: a host may have cut off the
	// old key.
	log.Error("fencing failed: this host is not registered any more, giving up its lease to register again", "err", err)
	mb.LoseFor(err)
}

// HasAsked reports whether this host has asked another one to leave.
func (mb *Member) HasAsked(host int, incarnation uint64) bool {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return mb.wished[layout.Verdict{Host: host, Incarnation: incarnation}]
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
func (f *Fencing) UseAgent(agent fence.Agent) {
	f.registered.Store(&registration{agent, f.registered.Load().host})
}

// Key returns the key by which other hosts fence this one; 0 if they cannot.
func (f *Fencing) Key() uint64 { return f.key }

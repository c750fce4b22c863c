// Package fence cuts a dead host off from the disk before anybody acts on its death: the agents of the recovery
// policy `fence`.
//
// It knows SCSI and NVMe persistent reservations, how Linux gives access to them, and how to run an external fence
// command. It never knows when a host is dead, what a verdict is, or what the data on the devices means: it does no
// reads and no writes of them. A host's record and its lease are the caller's.
//
// Begin reading at Agent. `pr` goes from pr.go by device.go, the steps on one device, to a transport: ioctl.go,
// the kernel's interface, or scsi.go, PERSISTENT RESERVE commands, which sgio.go carries. exec.go is the other agent.
package fence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

var (
	// ErrFenced is returned when the own key is registered no more: another host fenced this one (or the device
	// lost its registrations). This host's lease is to be given up; its writes are refused already.
	ErrFenced = errors.New("the key of this host is registered no more: it was fenced, or the device forgot its registrations")

	// ErrUnsupported is returned when a device, or the way to it, has no usable persistent reservations.
	ErrUnsupported = errors.New("no usable persistent reservations")

	// ErrReserved is returned when a device carries a reservation that is not bakeryd's.
	ErrReserved = errors.New("the device is reserved otherwise")

	// ErrTarget is returned for a target that the agent cannot tell from others: its host record has no key, or
	// the own one, or its name is none that can be given to a fence command.
	ErrTarget = errors.New("the host cannot be fenced")

	// ErrUnconfirmed is returned when an attempt came to its end and the target may still write.
	ErrUnconfirmed = errors.New("fencing was not confirmed")

	// ErrConfig is returned by New for a configuration that cannot be used.
	ErrConfig = errors.New("fence agent misconfigured")
)

// Target is whom to fence.
type Target struct {
	Host        int
	Incarnation uint64
	Name        string // from the target's host record: not to be trusted
	Key         uint64 // the persistent reservation key in its host record
}

func (t Target) String() string {
	return fmt.Sprintf("host %d (%q, incarnation %016x)", t.Host, t.Name, t.Incarnation)
}

// Agent cuts hosts off from the disk. Its methods may be called by several goroutines. Each returns when ctx ends, or
// within seconds of that, with an error that wraps ctx's, even while a device holds up a command that is under way.
type Agent interface {
	// Register is called before this host's first write as this incarnation, and again only by a process that
	// goes on with the incarnation (Config.Resumed).
	//
	// It returns ErrUnsupported, ErrReserved, ErrUnconfirmed or, mostly when resuming, ErrFenced, or wraps an errno or
	// what the device said. Nothing may be written after an error.
	Register(ctx context.Context) error

	// Fence makes sure that the target can write no more; only nil confirms it, and nil comes also for a target
	// that was cut off before. After an error it may be called again.
	//
	// It returns ErrTarget, ErrFenced, ErrUnsupported, ErrReserved or ErrUnconfirmed, or wraps an errno or what
	// the device said.
	Fence(ctx context.Context, target Target) error

	// Unregister is called on a clean leave, after this host's last write. It is no error that nothing is
	// registered any more. It returns ErrUnsupported, or wraps an errno or what the device said.
	Unregister(ctx context.Context) error

	// String is the agent's name, for logs.
	String() string
}

// Config says which agent to make.
type Config struct {
	Agent string // "pr" or "exec"

	// Command is the command line that `exec` runs with /bin/sh -c.
	Command string

	// Devices are the paths of the lock device and of every other device that `pr` keeps dead hosts from: whole
	// disks, namespaces, or multipath devices. Two lockspaces must not share one: a host has one key on a device.
	Devices []string

	// Key is the own key for `pr`, of the incarnation that registers: see Key.
	Key uint64

	// Resumed is true in a process that goes on with an incarnation registered by the one before it. It then
	// finds out that it was fenced, instead of registering anew.
	Resumed bool

	// Drain is how long `pr` waits, before it confirms, for writes of the target that the device may have begun:
	// where the device cannot abort them (it knows PREEMPT only, as tgt) or where somebody else removed the key.
	// 0: DefaultDrain.
	Drain time.Duration

	// Log gets what an operator may want to know and no error tells; nil: nobody.
	Log *slog.Logger
}

// DefaultDrain is Config.Drain if that is 0. No standard bounds how long a device may take for a write that it has
// begun; a queue that is longer than this is not worth a lock on it.
const DefaultDrain = 5 * time.Second

// New makes an agent. It does no IO. It returns ErrConfig.
func New(cfg Config) (Agent, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	switch cfg.Agent {
	case "pr":
		return newPR(cfg, openDevice)
	case "exec":
		return newExec(cfg)
	}
	return nil, fmt.Errorf("%w: agent %q, want pr or exec", ErrConfig, cfg.Agent)
}

// Key is the persistent reservation key of one incarnation of a host: the host id in the lower 16 bits, so that keys
// of different hosts differ and that a list of keys can be read (sg_persist -k), and the incarnation above it, its
// upper 16 bits folded into its lower ones. It is never 0, for no host id is. It panics for an id outside
// of 1..65535.
func Key(hostID int, incarnation uint64) uint64 {
	if hostID < 1 || hostID > 0xffff {
		panic(fmt.Sprintf("fence: host id %d, want 1 to 65535", hostID))
	}
	return (incarnation^incarnation>>48)<<16 | uint64(hostID)
}

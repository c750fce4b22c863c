// Package fence cuts a dead host off from the disk before any host acts on its death. It has the
// agents of the recovery policy `fence`.
//
// It knows SCSI and NVMe persistent reservations, Linux's interfaces to them, and how to run an
// external fence command. It never knows when a host is dead, what a verdict is, or the meaning
// of data on the devices, which it neither reads nor writes. The caller owns host records and
// leases.
//
// Begin with Agent. The agent `pr` is pr.go, members.go (a lockspace on several disks), device.go (the
// steps on one device) and a transport: ioctl.go (the kernel's interface) or scsi.go (PERSISTENT
// RESERVE commands, sent by sgio.go). exec.go is the other agent.
package fence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/text"
)

var (
	// ErrFenced is returned when the own key is no longer registered: another host fenced this
	// one, or the device lost its registrations. Its writes are already refused. The caller must
	// end the lease.
	ErrFenced = errors.New("the key of this host is no longer registered: it was fenced, or the device lost its registrations")

	// ErrUnsupported is returned when a device, or the way to it, has no usable persistent
	// reservations.
	ErrUnsupported = errors.New("no usable persistent reservations")

	// ErrReserved is returned when another program has reserved the device.
	ErrReserved = errors.New("the device has another reservation")

	// ErrTarget is returned for a target that the agent cannot distinguish from other hosts: its
	// host record has no key, or the own key, or its name is not valid for a fence command.
	ErrTarget = errors.New("the host cannot be fenced")

	// ErrUnconfirmed is returned when an attempt has ended and the target may still write.
	ErrUnconfirmed = errors.New("fencing was not confirmed")

	// ErrConfig is returned by New for a configuration that cannot be used.
	ErrConfig = errors.New("fence agent misconfigured")
)

// Target is the host to fence.
type Target struct {
	Host        int
	Incarnation text.Hex
	Name        string // from the target's host record: untrusted
	Key         uint64 // the persistent reservation key in its host record

	// LeaseOver reports that its lease is over, and that only its clock may not have shown that, because
	// it stood still. A majority of the member disks suffices then.
	LeaseOver bool
}

func (t Target) String() string {
	return fmt.Sprintf("host %d (%q, incarnation %v)", t.Host, t.Name, t.Incarnation)
}

// Agent cuts hosts off from the disk. Its methods may be called concurrently. Each returns when
// ctx ends, or within seconds, with an error that wraps ctx's, even if a device blocks a command.
type Agent interface {
	// Register is called before this host's first write as this incarnation. Only a process that
	// resumes the incarnation (Config.Resumed) calls it again.
	//
	// It returns ErrUnsupported, ErrReserved, ErrUnconfirmed or, usually when resuming,
	// ErrFenced, or wraps an errno or the device's error. After an error nothing may be written.
	Register(ctx context.Context) error

	// Fence ensures that the target can no longer write. Only nil confirms that, also for a
	// target that was cut off before. After an error it may be called again.
	//
	// It returns ErrTarget, ErrFenced, ErrUnsupported, ErrReserved or ErrUnconfirmed, or wraps an
	// errno or the device's error.
	Fence(ctx context.Context, target Target) error

	// Unregister is called on a clean leave, after this host's last write. It is no error if no
	// key is registered. It returns ErrUnsupported, or wraps an errno or the device's error.
	Unregister(ctx context.Context) error

	// String returns the agent's name, for logs.
	String() string
}

// Config selects and configures an agent.
type Config struct {
	Agent string // "pr" or "exec"

	// Command is the command line that `exec` runs with /bin/sh -c.
	Command string

	// Devices are the paths of the lock device and of the other devices that `pr` cuts dead hosts
	// off from: whole disks, namespaces, or multipath devices. Two lockspaces must not share one:
	// a host has one key on a device.
	Devices []string

	// Members are the member disks of a lockspace on several, which Devices does not have; nil if it
	// is on one disk.
	Members Members

	// Key is the own key for `pr`, of the incarnation that registers: see Key.
	Key uint64

	// Resumed is true in a process that resumes an incarnation of the previous process. It then
	// detects that it was fenced, instead of registering again.
	Resumed bool

	// Drain is how long `pr` waits, before it confirms, for writes of the target that the device
	// may have begun. It waits if the device cannot abort them (it supports only PREEMPT, like
	// tgt), or if another host removed the key. 0: DefaultDrain.
	Drain time.Duration

	// Log receives facts for the operator that no error reports; nil: none.
	Log *slog.Logger
}

// DefaultDrain replaces a Config.Drain of 0. No standard bounds the time that a device may take
// for a write that it has begun. A device with a longer queue is unsuitable for locks.
const DefaultDrain = 5 * time.Second

// New returns an agent. It does no IO. It returns ErrConfig.
func New(cfg Config) (Agent, error) {
	switch cfg.Agent {
	case "pr":
		return newPR(cfg, openDevice)
	case "exec":
		if strings.TrimSpace(cfg.Command) == "" || strings.ContainsRune(cfg.Command, 0) {
			return nil, fmt.Errorf("%w: agent exec without a command", ErrConfig)
		}
		return execAgent(cfg.Command), nil
	}
	return nil, fmt.Errorf("%w: agent %q, want pr or exec", ErrConfig, cfg.Agent)
}

// Key returns the persistent reservation key of one incarnation of a host. The lower 16 bits are
// the host id, so that keys of hosts differ and a list of keys can be read (sg_persist -k). Above
// it is the incarnation, its upper 16 bits folded into its lower ones. The key is never 0,
// because no host id is. Key panics for an id outside of 1..65535.
func Key(hostID int, incarnation uint64) uint64 {
	if hostID < 1 || hostID > 0xffff {
		panic(fmt.Sprintf("fence: host id %d, want 1 to 65535", hostID))
	}
	return (incarnation^incarnation>>48)<<16 | uint64(hostID)
}

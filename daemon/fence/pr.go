package fence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// prAgent fences by persistent reservations. Every host registers its key on every device, and
// all of them hold one reservation (Write Exclusive - All Registrants). A host whose key is
// removed can no longer write.
type prAgent struct {
	cfg     Config
	open    opener
	devices []*device
	members *memberDisks // nil if the lockspace is on one disk, which is one of devices
}

func newPR(cfg Config, open opener) (*prAgent, error) {
	switch {
	case cfg.Key == 0:
		return nil, fmt.Errorf("%w: agent pr without a key", ErrConfig)
	case slices.Contains(cfg.Devices, ""):
		return nil, fmt.Errorf("%w: device with an empty path", ErrConfig)
	}
	cfg.Drain = cmp.Or(cfg.Drain, DefaultDrain)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	a := &prAgent{cfg: cfg, open: open}
	if cfg.Members != nil {
		a.members = newMemberDisks(cfg.Members)
	}
	a.cfg.Devices = nil // without repetitions
	for _, path := range cfg.Devices {
		if !slices.Contains(a.cfg.Devices, path) {
			a.cfg.Devices = append(a.cfg.Devices, path)
			a.devices = append(a.devices, a.device(Disk{Path: path}))
		}
	}
	return a, nil
}

func (a *prAgent) device(disk Disk) *device {
	return &device{path: disk.Path, name: disk.Name, open: a.open, log: a.cfg.Log, busy: make(chan struct{}, 1)}
}

// Register implements Agent.
func (a *prAgent) Register(ctx context.Context) error {
	err := a.each(ctx, "register with", func(d *device) error { return d.register(ctx, a.cfg.Key, a.cfg.Resumed) })
	if err == nil && a.members != nil {
		err = a.registerMembers(ctx)
	}
	return err
}

// Fence implements Agent.
func (a *prAgent) Fence(ctx context.Context, t Target) error {
	switch t.Key {
	case 0:
		// Under an all-registrants reservation key 0 would mean: every other host.
		return fmt.Errorf("%w: %s has no persistent reservation key in its record: it joined without the pr agent", ErrTarget, t)
	case a.cfg.Key:
		return fmt.Errorf("%w: %s has the key of this host", ErrTarget, t)
	}
	var onMembers error
	var both sync.WaitGroup
	if a.members != nil {
		both.Go(func() { onMembers = a.fenceOnMembers(ctx, t) })
	}
	err := a.each(ctx, "fence on", func(d *device) error { return d.fence(ctx, a.cfg.Key, t.Key, a.cfg.Drain) })
	both.Wait()
	if err = join([]error{err, onMembers}); err != nil {
		return fmt.Errorf("fence %s: %w", t, err)
	}
	return nil
}

// Unregister implements Agent.
func (a *prAgent) Unregister(ctx context.Context) error {
	err := a.each(ctx, "unregister from", func(d *device) error { return d.unregister(ctx, a.cfg.Key) })
	if a.members != nil {
		err = join([]error{err, a.unregisterMembers(ctx)})
	}
	return err
}

// String implements Agent.
func (a *prAgent) String() string {
	on := a.cfg.Devices
	if a.members != nil {
		on = append([]string{"the member disks"}, on...)
	}
	return "pr on " + strings.Join(on, ", ")
}

// each calls f on all devices at the same time. It returns the errors of all devices that failed.
func (a *prAgent) each(ctx context.Context, what string, f func(*device) error) error {
	errs := make([]error, len(a.devices))
	var all sync.WaitGroup
	for i, d := range a.devices {
		all.Go(func() {
			if err := d.do(ctx, func() error { return f(d) }); err != nil {
				errs[i] = fmt.Errorf("%s %s: %w", what, d.path, err)
			}
		})
	}
	all.Wait()
	return join(errs)
}

var errUnreadable = errors.New("registrations cannot be read")

// State is the persistent reservation of a device.
type State struct {
	Keys []uint64 // registered, once per path
	Held bool     // a reservation is held
	Type Type     // of that reservation
}

func (s State) registered(key uint64) bool { return slices.Contains(s.Keys, key) }

// ours reports whether the reservation that prevents writes of unregistered hosts is in force.
func (s State) ours() bool { return s.Held && s.Type == WriteExclusiveAllRegistrants }

// Type is the type of a reservation, numbered as in SCSI.
type Type uint8

// WriteExclusiveAllRegistrants lets only registered hosts write. Each of them holds the
// reservation.
const WriteExclusiveAllRegistrants Type = 7

var typeNames = map[Type]string{
	1: "Write Exclusive", 3: "Exclusive Access",
	5: "Write Exclusive - Registrants Only", 6: "Exclusive Access - Registrants Only",
	7: "Write Exclusive - All Registrants", 8: "Exclusive Access - All Registrants",
}

// linuxTypes has the types by their number in linux/pr.h and NVMe.
var linuxTypes = map[byte]Type{1: 1, 2: 3, 3: 5, 4: 6, 5: 7, 6: 8}

func (t Type) String() string {
	if name, ok := typeNames[t]; ok {
		return fmt.Sprintf("%s (type %d)", name, uint8(t))
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// ReadState reads the registrations and the reservation of the device at path. It changes
// nothing. It returns ErrUnsupported, or wraps an errno or the device's error.
func ReadState(ctx context.Context, path string) (state State, err error) {
	d := &device{path: path, open: openDevice, busy: make(chan struct{}, 1)}
	err = d.do(ctx, func() (err error) {
		known := false
		if state, known, err = d.look(ctx); err == nil && !known {
			err = unsupported(errUnreadable)
		}
		return err
	})
	if err != nil {
		return State{}, fmt.Errorf("read reservation of %s: %w", path, err)
	}
	return state, nil
}

package ondevice

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
)

// ErrHangs is returned when a device does not answer one request within the limit.
var ErrHangs = errors.New("the device hangs")

const (
	// openWithin is how long the disks may take until a majority has answered; the others have a tenth of it then.
	openWithin = 10 * time.Second

	// slower is how many times the limit of a [cli.Patience] one request to a device may take: a path may fail over
	// during it.
	slower = 2
)

// Read opens the device at a path, or the lockspace on the disks at several, for reading, and returns what
// f reads from it. While one request takes long it has the [cli.Patience] of ctx. If ctx ends, or a request takes too
// long, which is an error that wraps ErrHangs, f still runs: the caller must not use what f writes.
func Read[T any](ctx context.Context, paths []string, f func(blockdev.Device) (T, error)) (T, error) {
	r := reading{paths: paths, begun: time.Now(), done: make(chan struct{})}
	var contents T
	var err error
	go func() {
		defer close(r.done)
		contents, err = use(&r, f)
	}()
	if hangs := r.await(ctx, cli.PatienceOf(ctx)); hangs != nil {
		var none T
		return none, Failure(hangs)
	}
	if err != nil {
		f := Failure(err)
		if len(paths) == 1 && errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(paths[0], " ,") {
			f.Hint = "give each disk as an argument, or a --device, of its own; lsblk --paths lists the block devices"
		}
		return contents, f
	}
	return contents, nil
}

func use[T any](r *reading, f func(blockdev.Device) (T, error)) (contents T, err error) {
	var dev blockdev.Device
	if len(r.paths) == 1 {
		dev, err = blockdev.Open(r.paths[0], blockdev.Options{ReadOnly: true, Killable: true})
	} else {
		dev, _, _, err = lockspace.OpenDisks(r.paths, lockspace.DiskOptions{ReadOnly: true, Timeout: openWithin, Patience: lockspace.DefaultTimeout})
	}
	if err != nil {
		return contents, err
	}
	defer dev.Close()
	r.opened.Store(&dev)
	return f(dev)
}

// reading is a use of a device, which may hang.
type reading struct {
	paths  []string
	begun  time.Time
	opened atomic.Pointer[blockdev.Device] // nil: not yet
	done   chan struct{}
}

// await blocks until the reading is done, or returns an error if ctx ends or one request takes too long.
func (r *reading) await(ctx context.Context, p cli.Patience) error {
	for said := false; ; {
		select {
		case <-r.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
		what, since := r.late(p.Notice)
		if p.Notice > 0 && since >= p.Notice && !said {
			said = true
			p.Say(fmt.Sprintf("waiting for %s: no answer for %d s", what, since/time.Second))
		}
		if p.Limit > 0 && since >= slower*p.Limit {
			return fmt.Errorf("read %s: %w: no answer within %d s", what, ErrHangs, slower*p.Limit/time.Second)
		}
	}
}

// late returns how long the oldest request takes, or the opening of the device, and which disks have
// not answered for the time.
func (r *reading) late(least time.Duration) (what string, since time.Duration) {
	what = strings.Join(r.paths, ", ")
	dev := r.opened.Load()
	if dev == nil {
		return what, time.Since(r.begun)
	}
	var disks []string
	for _, m := range lockspace.MemberDisks(*dev) {
		if m.Stats.Oldest >= least {
			disks = append(disks, m.Name)
		}
	}
	if len(disks) > 0 {
		what = strings.Join(disks, ", ")
	}
	return what, (*dev).Stats().Oldest
}

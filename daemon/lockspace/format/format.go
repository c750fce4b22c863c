// Package format makes a lockspace on a device, and says what is on a device that holds none. It destroys what it finds only
// if it is told to, and only after no host of an old lockspace can hold a lock there.
package format

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

var (
	// ErrOccupied is returned when a device holds something, and was to be formatted without force.
	ErrOccupied = errors.New("device is not empty")

	// ErrHostAlive is returned, beside ErrOccupied, when a host was seen to use the lockspace on the device;
	// with force, when it goes on although the lockspace was wiped.
	ErrHostAlive = errors.New("lockspace is in use")

	// ErrForeignVersion is returned when a device holds a lockspace of another format version. Nothing can be
	// known of its hosts, so force does not help.
	ErrForeignVersion = errors.New("lockspace of another format version")

	// ErrVerify is returned when a device does not return what was written.
	ErrVerify = errors.New("device does not return what was written")
)

// Options say what lockspace to make. Hosts, Locks and Lease have no usable zero value.
type Options struct {
	Name   string // for people; may be empty
	Hosts  int
	Locks  int
	Lease  time.Duration
	Policy layout.Policy
	Stride int  // bytes from one record to the next; 0 is the device's physical block
	Force  bool // destroy what the device holds

	Now      func() time.Time     // for the time of formatting; nil is time.Now
	Progress func(message string) // is told what takes long; may be nil
	Counter  lockspace.Counter    // how far that is; if it is not nil Progress is told no percentages
}

// OptionError says that an option has a value that cannot be.
type OptionError struct {
	Option string // "hosts", "locks", "lease", "name", "policy" or "stride"
	Value  string
	Want   string
}

func (e *OptionError) Error() string { return fmt.Sprintf("%s %s: want %s", e.Option, e.Value, e.Want) }

// Result is what was made.
type Result struct {
	Path       string
	Created    bool // the file did not exist before
	Superblock layout.Superblock
	Size       text.Bytes // of the lockspace
	Warnings   []string
}

// Validate returns an [OptionError] unless the options make a lockspace on some device.
func (o Options) Validate() error {
	within := func(option string, value, low, high int) error {
		if value < low || value > high {
			return &OptionError{option, fmt.Sprint(value), fmt.Sprintf("%d to %d", low, high)}
		}
		return nil
	}
	if err := within("hosts", o.Hosts, 1, layout.MaxHosts); err != nil {
		return err
	}
	if err := within("locks", o.Locks, 1, layout.MaxLocks); err != nil {
		return err
	}
	switch {
	case o.Lease < layout.MinLease || o.Lease > layout.MaxLease || o.Lease%time.Microsecond != 0:
		return &OptionError{"lease", o.Lease.String(),
			fmt.Sprintf("%v to %v in whole microseconds", layout.MinLease, layout.MaxLease)}
	case layout.ValidateLockspaceName(o.Name) != nil:
		return &OptionError{"name", fmt.Sprintf("%q", o.Name),
			fmt.Sprintf("at most %d bytes of UTF-8 without control characters", layout.MaxName)}
	case o.Policy > layout.PolicyManual:
		return &OptionError{"policy", o.Policy.String(), "lease, fence or manual"}
	case o.Stride != 0 && o.geometry(o.Stride).Validate() != nil:
		return &OptionError{"stride", fmt.Sprint(o.Stride),
			fmt.Sprintf("auto, or a power of two from %d to %d", layout.MinStride, layout.MaxStride)}
	}
	return nil
}

func (o Options) geometry(stride int) layout.Geometry {
	return layout.Geometry{Stride: stride, Hosts: o.Hosts, Locks: o.Locks}
}

func (o Options) superblock(stride int) layout.Superblock {
	now := time.Now
	if o.Now != nil {
		now = o.Now
	}
	return layout.Superblock{
		UUID: layout.UUID(uuid.New()), Name: o.Name, Geometry: o.geometry(stride),
		Lease: o.Lease, Policy: o.Policy, Formatted: now().UTC().Truncate(time.Microsecond),
	}
}

func (o Options) tell(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

// Format makes a lockspace on the device at path. A path outside /dev that does not exist becomes a sparse file,
// which appears complete or not at all.
//
// It returns an OptionError before anything is opened; ErrStride or ErrDeviceSize if the device does not fit;
// ErrOccupied or ErrForeignVersion if it holds something; ErrHostAlive, ErrVerify, the errors of
// [blockdev.Open], [blockdev.Create] and of IO, or that of the context. Until something had to be destroyed the
// device is as it was; after that it holds no lockspace unless Format succeeds, and the error says so.
func Format(ctx context.Context, path string, o Options) (*Result, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) && !underDev(path) {
		return formatNew(ctx, path, o)
	}
	dev, err := blockdev.Open(path, blockdev.Options{Exclusive: true})
	if err != nil {
		if errors.Is(err, blockdev.ErrTooSmall) {
			err = fmt.Errorf("%w: the lockspace needs %v", err, text.Bytes(o.geometry(max(4096, o.Stride)).Size()))
		}
		return nil, err
	}
	result, err := FormatDevice(ctx, dev, o)
	if err := errors.Join(err, dev.Close()); err != nil {
		return nil, err
	}
	return result, nil
}

func underDev(path string) bool {
	abs, err := filepath.Abs(path)
	return err == nil && strings.HasPrefix(abs, "/dev/")
}

// errOtherStride tells formatNew that the file's filesystem has larger blocks than it took for granted.
type errOtherStride int

func (e errOtherStride) Error() string { return fmt.Sprintf("the stride is %d", int(e)) }

// formatNew makes a file. How large it must be follows from the blocks of its filesystem, which only an open file
// tells.
func formatNew(ctx context.Context, path string, o Options) (*Result, error) {
	stride := o.Stride
	if stride == 0 {
		stride = 4096
	}
	for {
		result := &Result{Path: path, Created: true}
		const block = 4096 // a file is a multiple of it, whatever the stride
		size := (o.geometry(stride).Size() + block - 1) / block * block
		err := blockdev.Create(path, size, func(dev blockdev.Device) error {
			fitting, err := chooseStride(dev.Info(), o.Stride)
			if err != nil {
				return err
			}
			if fitting != stride {
				return errOtherStride(fitting)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			result.Superblock = o.superblock(stride)
			result.Size = text.Bytes(result.Superblock.Geometry.Size())
			if err := settleBlocks(dev, result.Superblock.Geometry); err != nil {
				return err
			}
			return writeSuperblocks(dev, result.Superblock)
		})
		var other errOtherStride
		switch {
		case err == nil:
			return result, nil
		case !errors.As(err, &other):
			return nil, err
		}
		stride = int(other)
	}
}

// settleBlocks writes the zeroes of a new file out where every host writes:
// up to the slots of the first locks. The first write into a hole waits for
// the filesystem's journal, and a claim that waits long starts over the long way.
func settleBlocks(dev blockdev.Device, g layout.Geometry) error {
	const piece, most = 1 << 20, 8 << 20
	end := min(g.Slot(min(2, g.Locks), 1), most)
	buf := lockspace.Pool.Get(piece)
	defer lockspace.Pool.Put(buf)
	clear(buf)
	for off := int64(0); off < end; off += piece {
		if err := dev.Write(buf[:min(piece, end-off)], off); err != nil {
			return err
		}
	}
	return nil
}

// FormatDevice formats a device that is open and exclusively held.
func FormatDevice(ctx context.Context, dev blockdev.Device, o Options) (*Result, error) {
	info := dev.Info()
	stride, err := chooseStride(info, o.Stride)
	if err != nil {
		return nil, fmt.Errorf("format %s: %w", info.Path, err)
	}
	g := o.geometry(stride)
	if need := g.Size(); info.Size < need {
		return nil, fmt.Errorf("format %s: %w: %d hosts and %d locks %d bytes apart need %v, it has %v; %s",
			info.Path, lockspace.ErrDeviceSize, g.Hosts, g.Locks, stride, text.Bytes(need), text.Bytes(info.Size), fitting(g, info.Size))
	}
	f := &formatter{dev: dev, o: o, area: min(max(g.Size(), layout.HeadSize), info.Size)}
	result, err := f.run(ctx, stride)
	if err != nil {
		return nil, fmt.Errorf("format %s: %w", info.Path, err)
	}
	return result, nil
}

// chooseStride returns the stride for a device, where asked 0 is for the device to say. A regular file hides the
// disk beneath it, so one asked for need not be as large as its physical block.
func chooseStride(info blockdev.Info, asked int) (int, error) {
	switch {
	case asked == 0 && info.PhysicalBlock > layout.MaxStride:
		return 0, fmt.Errorf("%w: its physical blocks are of %d bytes, the largest stride is %d",
			lockspace.ErrStride, info.PhysicalBlock, layout.MaxStride)
	case asked == 0:
		return info.PhysicalBlock, nil
	case asked < info.LogicalBlock:
		return 0, fmt.Errorf("%w: stride %d is below its logical block size of %d",
			lockspace.ErrStride, asked, info.LogicalBlock)
	case asked < info.PhysicalBlock && !info.Regular:
		return 0, fmt.Errorf("%w: stride %d is below its physical block size of %d, "+
			"so a write of one host could damage what its neighbours wrote",
			lockspace.ErrStride, asked, info.PhysicalBlock)
	}
	return asked, nil
}

// fitting says with how many hosts or locks a lockspace would fit into size bytes.
func fitting(g layout.Geometry, size int64) string {
	largest := func(limit int, with func(n int) layout.Geometry) int {
		low, high := 0, limit
		for low < high {
			middle := (low + high + 1) / 2
			if with(middle).Size() <= size {
				low = middle
			} else {
				high = middle - 1
			}
		}
		return low
	}
	fewerLocks := largest(g.Locks, func(n int) layout.Geometry { return layout.Geometry{Stride: g.Stride, Hosts: g.Hosts, Locks: n} })
	fewerHosts := largest(g.Hosts, func(n int) layout.Geometry { return layout.Geometry{Stride: g.Stride, Hosts: n, Locks: g.Locks} })
	square := largest(g.Hosts, func(n int) layout.Geometry { return layout.Geometry{Stride: g.Stride, Hosts: n, Locks: n} })
	var offers []string
	if fewerLocks > 0 {
		offers = append(offers, fmt.Sprintf("%d hosts and %d locks", g.Hosts, fewerLocks))
	}
	if fewerHosts > 0 {
		offers = append(offers, fmt.Sprintf("%d hosts and %d locks", fewerHosts, g.Locks))
	}
	if len(offers) == 0 && square > 0 {
		offers = append(offers, fmt.Sprintf("%d hosts and %d locks", square, square))
	}
	if len(offers) == 0 {
		return "no lockspace fits"
	}
	return strings.Join(offers, ", or ") + " would fit"
}

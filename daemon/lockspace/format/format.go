// Package format creates a lockspace on one device or several, and reports what else a device
// holds. It destroys contents only with Options.Force, and only after no host of an old lockspace
// can hold a lock. Start reading at Format and formatter.
package format

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

var (
	// ErrOccupied is returned when a device is not empty and force is not set.
	ErrOccupied = errors.New("device is not empty")

	// ErrHostAlive is returned when a host is seen to use the lockspace on the device: with
	// ErrOccupied, or, with force, if it still renews after the lockspace was wiped.
	ErrHostAlive = errors.New("lockspace is in use")

	// ErrForeignVersion is returned when a device holds a lockspace of another format version.
	// Its hosts are not known, so force does not help.
	ErrForeignVersion = errors.New("lockspace of another format version")

	// ErrDisks is returned for a number of disks that no lockspace has, and for two paths to one
	// disk.
	ErrDisks = errors.New("a lockspace has 1, 3 or 5 different disks")

	// ErrVerify is returned when a read does not return the bytes just written.
	ErrVerify = errors.New("device does not return what was written")
)

// Options describe the lockspace to create. The zero values of Hosts, Locks and Lease are not
// valid.
type Options struct {
	Name   string // may be empty
	Hosts  int
	Locks  int
	Lease  time.Duration
	Policy layout.Policy
	// FenceAfter is how long a host may be silent before others fence it; 0: until its lease is over.
	FenceAfter time.Duration
	Stride     int  // bytes from one record to the next; 0 for the largest physical block of the devices
	Force      bool // whether to destroy the contents of the devices

	Progress func(message string) // called for steps that take long; nil if not needed
	Counter  lockspace.Counter    // progress of these steps; if nil, Progress has percentages
}

// OptionError is returned when an option has an invalid value.
type OptionError struct {
	Option string // "hosts", "locks", "lease", "name", "policy", "fence-after" or "stride"
	Value  string
	Want   string
}

// Error implements error.
func (e *OptionError) Error() string { return fmt.Sprintf("%s %s: want %s", e.Option, e.Value, e.Want) }

// Result describes the lockspace that was created.
type Result struct {
	Paths      []string          // by position
	Created    bool              // whether Format created all of them, as files
	Superblock layout.Superblock // of the first disk
	Size       text.Bytes        // of the lockspace, on each disk
	Warnings   []string
}

// Validate returns an [OptionError] if an option is invalid for every device.
func (o Options) Validate() error {
	least := layout.MinFenceAfter(o.Lease)
	for _, c := range []struct {
		option string
		value  any
		valid  bool
		want   string
	}{
		{"hosts", o.Hosts, 1 <= o.Hosts && o.Hosts <= layout.MaxHosts, fmt.Sprintf("1 to %d", layout.MaxHosts)},
		{"locks", o.Locks, 1 <= o.Locks && o.Locks <= layout.MaxLocks, fmt.Sprintf("1 to %d", layout.MaxLocks)},
		{"lease", o.Lease, layout.MinLease <= o.Lease && o.Lease <= layout.MaxLease && o.Lease%time.Microsecond == 0,
			fmt.Sprintf("%v to %v in whole microseconds", layout.MinLease, layout.MaxLease)},
		{"name", strconv.Quote(o.Name), layout.ValidateLockspaceName(o.Name) == nil,
			fmt.Sprintf("at most %d bytes of UTF-8 without control characters", layout.MaxName)},
		{"policy", o.Policy, o.Policy <= layout.PolicyManual, "lease, fence or manual"},
		{"fence-after", o.FenceAfter, o.FenceAfter == 0 || o.Policy == layout.PolicyFence, "policy fence for it, not policy " + o.Policy.String()},
		{"fence-after", o.FenceAfter, o.FenceAfter == 0 || least <= o.FenceAfter,
			fmt.Sprintf("%v or more, a fifth of the lease of %v: less also fences hosts that renew", least, o.Lease)},
		{"fence-after", o.FenceAfter, o.FenceAfter <= o.Lease, fmt.Sprintf("%v or less, the lease", o.Lease)},
		{"fence-after", o.FenceAfter, o.FenceAfter%time.Microsecond == 0, "whole microseconds"},
		{"stride", o.Stride, o.Stride == 0 || o.geometry(o.Stride).Validate() == nil,
			fmt.Sprintf("auto, or a power of two from %d to %d", layout.MinStride, layout.MaxStride)},
	} {
		if !c.valid {
			return &OptionError{c.option, fmt.Sprint(c.value), c.want}
		}
	}
	return nil
}

// ParseStride returns a stride for Options, 0 for "auto", or an [OptionError].
func ParseStride(s string) (int, error) {
	if s == "auto" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n == 0 {
		return 0, &OptionError{Option: "stride", Value: strconv.Quote(s),
			Want: fmt.Sprintf("auto, or a power of two from %d to %d", layout.MinStride, layout.MaxStride)}
	}
	return n, nil
}

func (o Options) geometry(stride int) layout.Geometry {
	return layout.Geometry{Stride: stride, Hosts: o.Hosts, Locks: o.Locks}
}

// superblock returns that of a lockspace on a number of disks, for the first of them.
func (o Options) superblock(stride, disks int) layout.Superblock {
	sb := layout.Superblock{
		UUID: layout.UUID(uuid.New()), Name: o.Name, Geometry: o.geometry(stride),
		Lease: o.Lease, Policy: o.Policy, FenceAfter: o.FenceAfter, Formatted: time.Now().UTC().Truncate(time.Microsecond),
	}
	if disks > 1 {
		sb.Position, sb.Members.Epoch, sb.Members.Positions = 1, 1, disks
		for i := range disks {
			sb.Members.Disks[i] = layout.UUID(uuid.New())
		}
	}
	return sb
}

func (o Options) report(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

// Format creates a lockspace on the device at a path, or on the 3 or 5 devices at as many paths. A
// path outside /dev that does not exist becomes a sparse file, which appears complete or not at
// all.
//
// It returns ErrDisks or an OptionError before it opens a device; ErrStride or ErrDeviceSize if a
// device does not fit; ErrOccupied or ErrForeignVersion if one is not empty; ErrHostAlive,
// ErrVerify, the errors of [blockdev.Open], [blockdev.Create] and of IO, or that of the context. If
// Format fails before it destroys contents the devices are unchanged. If it fails later they hold
// no lockspace, and the error says so.
func Format(ctx context.Context, paths []string, o Options) (result *Result, err error) {
	if err := cmp.Or(checkCount(len(paths)), o.Validate()); err != nil {
		return nil, err
	}
	if err := o.checkDifferent(paths); err != nil {
		return nil, err
	}
	f := &formatter{o: o, disks: make([]*disk, len(paths))}
	var missing []int // indices of paths
	for i, path := range paths {
		if isMissing(path) {
			missing = append(missing, i)
			continue
		}
		dev, openErr := o.open(path, blockdev.Options{Exclusive: true})
		if openErr != nil {
			return nil, openErr
		}
		defer func() {
			if closeErr := dev.Close(); closeErr != nil {
				result, err = nil, errors.Join(err, closeErr)
			}
		}()
		f.disks[i] = &disk{dev: dev}
	}
	return f.create(ctx, paths, missing)
}

func checkCount(disks int) error {
	if disks != 1 && disks != 3 && disks != 5 {
		return fmt.Errorf("%w, not %d", ErrDisks, disks)
	}
	return nil
}

// open opens the device at a path. It says how large one that is too small has to be.
func (o Options) open(path string, how blockdev.Options) (blockdev.Device, error) {
	dev, err := blockdev.Open(path, how)
	if err == nil {
		return dev, nil
	}
	if errors.Is(err, blockdev.ErrTooSmall) {
		err = fmt.Errorf("%w: the lockspace needs %v", err, text.Bytes(o.geometry(max(4096, o.Stride)).Size()))
	}
	return nil, err
}

// create creates the files at some of the paths, and formats all disks before the files appear.
func (f *formatter) create(ctx context.Context, paths []string, missing []int) (result *Result, err error) {
	if len(missing) == 0 {
		return f.run(ctx)
	}
	const block = 4096 // the size of the file is a multiple of it
	path, failed := paths[missing[0]], error(nil)
	err = blockdev.Create(path, func(info blockdev.Info) (int64, error) {
		stride, err := f.chooseStride()
		if err == nil {
			var its int
			its, err = chooseStride(info, f.o.Stride)
			stride = max(stride, its)
		}
		return (f.o.geometry(stride).Size() + block - 1) / block * block, err
	}, func(dev blockdev.Device) error {
		f.disks[missing[0]] = &disk{dev: dev, created: true}
		result, failed = f.create(ctx, paths, missing[1:])
		return failed
	})
	if err = cmp.Or(failed, err); err != nil {
		return nil, err
	}
	return result, nil
}

// checkDifferent refuses two paths to one disk. It opens no disk if there is one path.
func (o Options) checkDifferent(paths []string) error {
	if len(paths) == 1 {
		return nil
	}
	first := make(map[string]string) // paths by disk
	for _, path := range paths {
		id, err := o.diskAt(path)
		if err != nil {
			return err
		}
		if other, ok := first[id]; ok && id != "" {
			return fmt.Errorf("%w: %s and %s are the same (%s)", ErrDisks, other, path, id)
		}
		first[id] = path
	}
	return nil
}

// diskAt returns a name of the disk at a path, or of the file that is to be created there.
func (o Options) diskAt(path string) (string, error) {
	if !isMissing(path) {
		dev, err := o.open(path, blockdev.Options{ReadOnly: true})
		if err != nil {
			return "", err
		}
		return dev.Info().Disk(), dev.Close()
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return "", fmt.Errorf("create %s: %w", path, err)
	}
	return "new file " + filepath.Join(dir, filepath.Base(path)), nil
}

// isMissing reports whether a file is to be created at a path.
func isMissing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, os.ErrNotExist) && !underDev(path)
}

func underDev(path string) bool {
	abs, err := filepath.Abs(path)
	return err == nil && strings.HasPrefix(abs, "/dev/")
}

// allocateBlocks writes zeroes where every host writes: up to the slots of the first locks. The
// first write into a hole waits for the journal of the filesystem, and a claim that takes too long
// starts again.
func allocateBlocks(dev blockdev.Device, g layout.Geometry) error {
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

// FormatDevices formats 1, 3 or 5 different devices that are open and exclusively held.
func FormatDevices(ctx context.Context, devs []blockdev.Device, o Options) (*Result, error) {
	if err := checkCount(len(devs)); err != nil {
		return nil, err
	}
	f := &formatter{o: o}
	for _, dev := range devs {
		f.disks = append(f.disks, &disk{dev: dev})
	}
	return f.run(ctx)
}

// chooseStride returns the stride for all disks. Files that are not yet created are nil.
func (f *formatter) chooseStride() (stride int, err error) {
	for _, d := range f.disks {
		if d == nil {
			continue
		}
		its, err := chooseStride(d.dev.Info(), f.o.Stride)
		if err != nil {
			return 0, d.wrap(err)
		}
		stride = max(stride, its)
	}
	return stride, nil
}

// chooseStride returns the stride for a device. If asked is 0 it is the physical block. A regular
// file hides its disk, so that a stride asked for may be smaller than the physical block.
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
			"so a write of one host could damage the records of others",
			lockspace.ErrStride, asked, info.PhysicalBlock)
	}
	return asked, nil
}

// fitting returns in words with how many hosts and locks a lockspace fits into size bytes.
func fitting(g layout.Geometry, size int64) string {
	tooLarge := func(hosts, locks int) bool {
		return layout.Geometry{Stride: g.Stride, Hosts: hosts, Locks: locks}.Size() > size
	}
	var offers []string
	offer := func(hosts, locks int) {
		if hosts > 0 && locks > 0 {
			offers = append(offers, fmt.Sprintf("%d hosts and %d locks", hosts, locks))
		}
	}
	offer(g.Hosts, sort.Search(g.Locks, func(n int) bool { return tooLarge(g.Hosts, n+1) }))
	offer(sort.Search(g.Hosts, func(n int) bool { return tooLarge(n+1, g.Locks) }), g.Locks)
	if len(offers) == 0 {
		n := sort.Search(g.Hosts, func(n int) bool { return tooLarge(n+1, n+1) })
		offer(n, n)
	}
	if len(offers) == 0 {
		return "no lockspace fits"
	}
	return strings.Join(offers, ", or ") + " would fit"
}

package lockspace

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/bakeryd/bakeryd/layout"
)

// finding is what a path leads to.
type finding struct {
	path     string
	disk     string // see blockdev.Info.Disk; "" if unknown
	sb       layout.Superblock
	copyUsed int
	err      error // why there is no superblock
}

func (f finding) describe() string {
	return fmt.Sprintf("%s is member %d of lockspace %s, epoch %d", f.path, f.sb.Position, DescribeSuperblock(f.sb), f.sb.Members.Epoch)
}

// pathReads are those of disks under way. A path that hangs is not read once more at every attempt to join:
// each read occupies a thread.
var pathReads singleflight.Group

// survey reads the superblock at each path, all at the same time. One that does not answer in time is
// given up: the read returns when it can. A path that is being read in reads is not read again.
func survey(reads *singleflight.Group, paths []string, timeout time.Duration, read func(path string) finding) []finding {
	type answer struct {
		i int
		finding
	}
	answers, all := make(chan answer, len(paths)), make([]finding, len(paths))
	over := make(chan struct{})
	defer close(over)
	for i, path := range paths {
		all[i] = finding{path: path, err: fmt.Errorf("%s: no answer within %v", path, timeout)}
		found := reads.DoChan(path, func() (any, error) { return read(path), nil })
		go func() {
			select {
			case f := <-found:
				answers <- answer{i, f.Val.(finding)}
			case <-over:
			}
		}()
	}
	late := time.After(timeout)
	for range paths {
		select {
		case a := <-answers:
			all[a.i] = a.finding
		case <-late:
			return all
		}
	}
	return all
}

// readPath reads the superblock at a path.
func (o DiskOptions) readPath(path string) finding {
	disk, err := o.Open(path, true)
	if err != nil {
		return finding{path: path, err: err}
	}
	f := finding{path: path, disk: disk.Info().Disk()}
	f.sb, f.copyUsed, err = FindSuperblock(disk)
	f.err = errors.Join(err, disk.Close())
	return f
}

// choose returns the member disks of the lockspace of which a majority was found.
func choose(all []finding) (*memberDisks, error) {
	if err := refusePairs(all); err != nil {
		return nil, err
	}
	first := slices.IndexFunc(all, func(f finding) bool { return hasMajority(f, all) })
	if first < 0 {
		return nil, noMajority(all)
	}
	sb := all[first].sb
	n := sb.Members.Positions
	d := &memberDisks{sb: sb, paths: make([][]string, n), names: make([]string, n)}
	// Any position would do. This one does not depend on the order of the paths.
	d.sb.Position = sb.Members.First()
	var missing []string
	for _, f := range all {
		if f.err != nil {
			missing = append(missing, f.path)
			continue
		}
		if f.sb.UUID != sb.UUID {
			return nil, fmt.Errorf("%w: %s, but %s; give the disks of one lockspace", ErrDisks, all[first].describe(), f.describe())
		}
		i := sb.Members.PositionOf(diskOf(f.sb)) - 1
		if i < 0 {
			return nil, fmt.Errorf("%w: %s, but the disk is not a member in epoch %d; omit it", ErrDisks, f.describe(), sb.Members.Epoch)
		}
		d.paths[i], d.names[i] = []string{f.path}, f.path
		d.copyUsed = max(d.copyUsed, f.copyUsed)
	}
	if len(all) > n {
		return nil, describeAll(all, fmt.Errorf("%w: %d paths for the %d member disks of lockspace %s; omit %s",
			ErrDisks, len(all), n, DescribeSuperblock(sb), strings.Join(missing, " or ")))
	}
	absent := n - len(all) + len(missing)
	for i := range n {
		if d.names[i] != "" {
			continue
		}
		switch d.paths[i] = missing; {
		case len(missing) == 0:
			d.names[i] = fmt.Sprintf("member %d", i+1)
		case absent == 1:
			d.names[i] = missing[0]
		default:
			d.names[i] = strings.Join(missing, " or ")
		}
	}
	return d, nil
}

// refusePairs returns an error about two paths to one member, and about a disk that has no other.
func refusePairs(all []finding) error {
	for i, f := range all {
		if f.err == nil && !f.sb.Members.Several() {
			return fmt.Errorf("%w: %s has lockspace %s, which is on this disk alone; give no other disk", ErrDisks, f.path, DescribeSuperblock(f.sb))
		}
		for _, other := range all[:i] {
			switch {
			case f.disk != "" && f.disk == other.disk:
				return fmt.Errorf("%w: %s and %s lead to the same disk, %s; give each disk once", ErrDisks, other.path, f.path, f.disk)
			case f.err == nil && other.err == nil && diskOf(f.sb) == diskOf(other.sb):
				return fmt.Errorf("%w: %s and %s both are member %d of lockspace %s: one is a copy of the other, or both are paths to it; "+
					"give the disk once", ErrDisks, other.path, f.path, f.sb.Position, DescribeSuperblock(f.sb))
			}
		}
	}
	return nil
}

// hasMajority reports whether a majority of the members of a superblock have the same one, and none has
// a later one.
func hasMajority(f finding, all []finding) bool {
	if f.err != nil {
		return false
	}
	same := 0
	for _, other := range all {
		switch {
		case other.err != nil || other.sb.UUID != f.sb.UUID:
		case other.sb.Members.Epoch > f.sb.Members.Epoch:
			return false
		case SameSuperblock(other.sb, f.sb):
			same++
		}
	}
	return same >= f.sb.Members.Majority()
}

// noMajority returns an error with what was found.
func noMajority(all []finding) error {
	var of *layout.Superblock // with the greatest epoch
	for _, f := range all {
		switch {
		case f.err != nil:
		case of != nil && f.sb.UUID != of.UUID:
			return describeAll(all, fmt.Errorf("%w: no lockspace has a majority of its member disks among them; "+
				"give the disks of one lockspace, each with --device or as an argument", ErrDisks))
		case of == nil || f.sb.Members.Epoch > of.Members.Epoch:
			of = &f.sb
		}
	}
	if of == nil {
		return describeAll(all, fmt.Errorf("%w: no lockspace was found", ErrDisks))
	}
	err := tooFew(*of)
	newest := of.Members.Epoch
	if slices.ContainsFunc(all, func(f finding) bool { return f.err == nil && f.sb.Members.Epoch < newest }) {
		err = fmt.Errorf("%w; only those of epoch %d count", err, newest)
	}
	return describeAll(all, err)
}

// tooFew returns the error about fewer disks than a majority.
func tooFew(sb layout.Superblock) error {
	return fmt.Errorf("%w: lockspace %s has %d member disks; give at least %d of them, each with --device or as an argument",
		ErrDisks, DescribeSuperblock(sb), sb.Members.Positions, sb.Members.Majority())
}

// describeAll adds what was found at each path to an error.
func describeAll(all []finding, err error) error {
	for _, f := range all {
		if f.err != nil {
			err = fmt.Errorf("%w; %w", err, f.err)
		} else {
			err = fmt.Errorf("%w; %s", err, f.describe())
		}
	}
	return err
}

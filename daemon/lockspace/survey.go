package lockspace

import (
	"errors"
	"fmt"
	"slices"
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

// pathReads are those of disks under way. A path that hangs is not read once more at every attempt to join or to
// open its disk: each read occupies a thread.
var pathReads singleflight.Group

// survey reads the superblock at each path, all at the same time. One that does not answer in time is
// given up, or in a tenth of that once a majority has answered: the read returns when it can. A path that is being read in reads is not read again.
func survey(reads *singleflight.Group, paths []string, timeout time.Duration, read func(path string) finding) []finding {
	type answer struct {
		i int
		finding
	}
	answers, all := make(chan answer, len(paths)), make([]finding, len(paths))
	over := make(chan struct{})
	defer close(over)
	for i, path := range paths {
		all[i] = finding{path: path, err: fmt.Errorf("%s: %w within %v", path, ErrNoAnswer, timeout)}
		found := reads.DoChan(path, func() (any, error) { return read(path), nil })
		go func() {
			select {
			case f := <-found:
				answers <- answer{i, f.Val.(finding)}
			case <-over:
			}
		}()
	}
	late, enough, end := time.After(timeout), false, time.Now().Add(timeout)
	for range paths {
		select {
		case a := <-answers:
			all[a.i] = a.finding
			if _, err := choose(all); err == nil && !enough {
				late, enough = time.After(min(timeout/10, time.Until(end))), true
			}
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

// choose returns the superblock with the newest list of the lockspace of which a majority of the members was
// found. Its position does not depend on the order of the paths.
func choose(all []finding) (layout.Superblock, error) {
	if err := refusePairs(all); err != nil {
		return layout.Superblock{}, err
	}
	for _, f := range all {
		if f.err != nil {
			continue
		}
		sb := newest(f.sb.UUID, all)
		if countMembers(sb, all) < sb.Members.Majority() {
			continue
		}
		for _, other := range all {
			if other.err == nil && other.sb.UUID != sb.UUID {
				return layout.Superblock{}, fmt.Errorf("%w: %s, but %s; give the disks of one lockspace", ErrDisks, f.describe(), other.describe())
			}
		}
		sb.Position = sb.Members.First()
		return sb, nil
	}
	return layout.Superblock{}, noMajority(all)
}

// newest returns the superblock of a lockspace with the newest list that was found.
func newest(id layout.UUID, all []finding) (sb layout.Superblock) {
	for _, f := range all {
		if f.err == nil && f.sb.UUID == id && f.sb.Members.Epoch > sb.Members.Epoch {
			sb = f.sb
		}
	}
	return sb
}

// countMembers returns the number of members of a list that were found (IDENTITY).
func countMembers(sb layout.Superblock, all []finding) (n int) {
	for _, f := range all {
		if f.err == nil && differs(f.path, f.sb, sb, f.sb.Position) == nil {
			n++
		}
	}
	return n
}

// refusePairs returns an error about two paths to one member, and about a disk that has no other.
func refusePairs(all []finding) error {
	for i, f := range all {
		if f.err == nil && !f.sb.Members.Several() {
			return fmt.Errorf("%w: %s has lockspace %s, which is on this disk alone; give no other disk, or leave out this one",
				ErrDisks, f.path, DescribeSuperblock(f.sb))
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

// noMajority returns an error with what was found.
func noMajority(all []finding) error {
	first := slices.IndexFunc(all, func(f finding) bool { return f.err == nil })
	silent := len(all) > 0 && !slices.ContainsFunc(all, func(f finding) bool { return !errors.Is(f.err, ErrNoAnswer) })
	switch {
	case silent:
		return describeAll(all, ErrSilent)
	case first < 0:
		return describeAll(all, fmt.Errorf("%w: no lockspace was found", ErrDisks))
	}
	sb := newest(all[first].sb.UUID, all)
	err, found, failed := tooFew(sb), countMembers(sb, all), 0
	for _, f := range all {
		if f.err != nil {
			failed++
		}
	}
	if found+failed >= sb.Members.Majority() {
		err = fmt.Errorf("%w: lockspace %s needs %d of %d, found %d", ErrMajority, DescribeSuperblock(sb),
			sb.Members.Majority(), sb.Members.Positions, found)
	}
	for _, f := range all {
		switch {
		case f.err != nil:
		case f.sb.UUID != sb.UUID:
			return describeAll(all, fmt.Errorf("%w: no lockspace has a majority of its member disks among them; "+
				"give the disks of one lockspace, each with --device or as an argument", ErrDisks))
		case !sb.Members.Has(f.sb.Position, diskOf(f.sb)):
			err = fmt.Errorf("%w; %s is not a member in epoch %d", err, f.path, sb.Members.Epoch)
		}
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

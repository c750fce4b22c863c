package lockspace

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/singleflight"

	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/layout"
)

// Disks is the device of a lockspace on several disks: a [mirror.Set] whose members may change.
type Disks struct {
	*mirror.Set
	o       DiskOptions
	reads   *singleflight.Group // see survey
	opened  chan struct{}       // closed when Set is set, or is not going to be
	over    context.Context     // ended by end: no disk is opened any more, and no list followed
	end     context.CancelFunc
	follows singleflight.Group
	used    atomic.Pointer[layout.Superblock] // with the list that Set has
	own     atomic.Pointer[ownRecord]         // nil if none was written

	exchanging sync.Mutex // held while members are exchanged

	mu    sync.Mutex        // guards the fields below
	sb    layout.Superblock // with the list by which members are checked: used, or the next one
	paths []string
	at    map[string]layout.UUID // disk that a path led to when it was read last; none if never to one of the lockspace
	owned sync.WaitGroup         // calls of Follow by notice
}

// Superblock returns the superblock with the list in use.
func (d *Disks) Superblock() layout.Superblock { return *d.used.Load() }

// Follow reads the superblocks at all paths again, and uses the newest list if it is newer than the one in
// use. It blocks no longer than DiskOptions.Timeout. Concurrent calls share one. It returns ErrDisks, and
// changes nothing, if it found fewer members of the newest list than a majority.
func (d *Disks) Follow() (changed bool, err error) {
	found, err, _ := d.follows.Do("", func() (any, error) {
		d.mu.Lock()
		in, paths := d.sb, d.paths
		d.mu.Unlock()
		all := survey(d.reads, paths, d.o.Timeout, d.o.readPath)
		for i, f := range all {
			if f.err == nil && !SameSuperblock(f.sb, in) { // a disk that was replaced may have another use
				all[i].err = differs(f.path, f.sb, in, f.sb.Position)
			}
		}
		newest, err := choose(all)
		if err != nil {
			return false, err
		}
		d.locate(all)
		return d.exchange(newest.Members), nil
	})
	return found.(bool), err
}

// Use uses a newer list. path leads to the disk that fills a position; "" if none does, or if it is not
// known. It is for the host that writes the list; the others Follow.
func (d *Disks) Use(m layout.Members, path string) {
	if path != "" {
		d.mu.Lock()
		if !slices.Contains(d.paths, path) {
			d.paths = append(slices.Clip(d.paths), path)
		}
		for i, id := range m.Disks {
			if d.sb.Members.Disks[i] != id && !id.IsZero() {
				d.at[path] = id
			}
		}
		d.mu.Unlock()
	}
	d.exchange(m)
}

// locate keeps which disks were found at paths.
func (d *Disks) locate(all []finding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range all {
		if f.err == nil {
			d.at[f.path] = diskOf(f.sb)
		}
	}
}

// exchange uses a list, unless it is not newer. When the list is shown as the one in use, nothing of a disk
// that it does not have counts any more.
func (d *Disks) exchange(m layout.Members) (changed bool) {
	d.exchanging.Lock()
	defer d.exchanging.Unlock()
	d.mu.Lock()
	before := d.sb.Members
	if m.Epoch <= before.Epoch {
		d.mu.Unlock()
		return false
	}
	d.sb.Members, d.sb.Position = m, m.First()
	sb := d.sb
	d.mu.Unlock()
	for i := range m.Positions {
		if m.Disks[i] != before.Disks[i] {
			d.Replace(i, d.member(i))
		}
	}
	d.used.Store(&sb)
	if d.o.Changed != nil {
		go d.o.Changed()
	}
	return true
}

// notice follows a newer list that a member has, in a goroutine: a check of a member must not wait for
// others. If that fails, the next check or the caller's Follow repeats it.
func (d *Disks) notice() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over.Err() != nil {
		return
	}
	d.owned.Go(func() {
		if <-d.opened; d.Set != nil {
			_, _ = d.Follow()
		}
	})
}

// Close implements blockdev.Device: see [mirror.Set.Close].
func (d *Disks) Close() error {
	d.mu.Lock()
	d.end()
	d.mu.Unlock()
	d.owned.Wait()
	return d.Set.Close()
}

package main

import (
	"context"
	"path/filepath"

	"github.com/bakeryd/bakeryd/test/fusetest"
)

// disk is a disk of the lockspace.
type disk struct {
	image  string          // file with its contents
	faults fusetest.Faults // of the disk, on all paths to it
	own    *path           // path of the soak itself
}

// path is a path to a disk: another name of its image, below a loop device.
type path struct {
	faults  fusetest.Faults // of this path alone
	file    *fusetest.File
	mounted *mounted
	loop    string
}

// newPath creates a path to a disk. It mounts a filesystem with a name.
func (s *soak) newPath(ctx context.Context, d *disk, name string) (*path, error) {
	p := &path{}
	var err error
	if p.file, err = fusetest.Open(d.image, &p.faults, &d.faults); err != nil {
		return nil, err
	}
	if p.mounted, err = mount(filepath.Join(s.dir, name), "image", p.file); err != nil {
		return nil, err
	}
	p.loop, err = attach(ctx, p.mounted.path, s.sector)
	return p, err
}

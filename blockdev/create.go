package blockdev

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Create makes a sparse file of size bytes, readable and writable only by its owner, for use as a
// device. The fill function, unless nil, writes its first contents.
//
// The file appears at path only when it is complete and durable. No other host or process sees it
// half made, and only one of several processes that create it at the same time succeeds. After a
// failure there is nothing at path. A process that is killed leaves a file ".NAME.*" in the same
// directory.
//
// It returns os.ErrExist (for errors.Is) if path exists, ErrNoDirectIO, ErrAlignment if the size
// is not a multiple of the block, ErrTooSmall, the error of fill, or wraps an errno.
func Create(path string, size int64, fill func(Device) error) error {
	if err := create(path, size, fill); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}

func create(path string, size int64, fill func(Device) error) error {
	if size <= 0 {
		return fmt.Errorf("%w: %d bytes", ErrTooSmall, size)
	}
	// The link below decides; this check only saves work.
	if _, err := os.Lstat(path); err == nil {
		return os.ErrExist
	}
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "." // CreateTemp would use the system's directory for temporary files
	}
	f, err := os.CreateTemp(dir, "."+base+".*")
	if err != nil {
		return cause(err)
	}
	if err := makeFile(f, path, size, fill); err != nil {
		return err
	}
	return syncDir(dir)
}

// makeFile completes an empty temporary file and gives it the name path.
func makeFile(f *os.File, path string, size int64, fill func(Device) error) error {
	defer os.Remove(f.Name())
	defer f.Close() // after success it is synced
	if err := f.Truncate(size); err != nil {
		return cause(err)
	}
	if err := fillFile(f.Name(), path, size, fill); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return cause(err)
	}
	// Unlike rename, link never replaces a file that another process has created at path.
	return cause(os.Link(f.Name(), path))
}

// fillFile fills the file at temp, whose errors name path.
func fillFile(temp, path string, size int64, fill func(Device) error) (err error) {
	dev, err := open(temp, path, Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	if dev.info.Size != size {
		return fmt.Errorf("%w: a size of %d bytes with blocks of %d", ErrAlignment, size, dev.info.LogicalBlock)
	}
	if fill == nil {
		return nil
	}
	return fill(dev)
}

// syncDir makes a new name in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// cause returns the error inside one of package os, without the path of the temporary file.
func cause(err error) error { return cmp.Or(errors.Unwrap(err), err) }

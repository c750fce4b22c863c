package blockdev

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Create makes a sparse file, readable and writable only by its owner, for use as a device. The size
// function returns its size in bytes for the blocks of its filesystem, and fill writes its first
// contents.
//
// The file appears at path only when it is complete and durable. No other host or process sees it
// half made, and only one of several processes that create it at the same time succeeds. After a
// failure there is nothing at path. A process that is killed leaves a file ".NAME.*" in the same
// directory.
//
// It returns os.ErrExist (for errors.Is) if path exists, ErrNoDirectIO, ErrAlignment if the size
// is not a multiple of the block, ErrTooSmall, ErrDirectory, the error of size or fill, or wraps an errno.
func Create(path string, size func(Info) (int64, error), fill func(Device) error) error {
	if err := create(path, size, fill); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}

func create(path string, size func(Info) (int64, error), fill func(Device) error) error {
	// The link below decides; this check only saves work.
	if _, err := os.Lstat(path); err == nil {
		return os.ErrExist
	}
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "." // CreateTemp would use the system's directory for temporary files
	}
	f, err := os.CreateTemp(dir, "."+base+".*")
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", ErrDirectory, cause(err))
	case err != nil:
		return cause(err)
	}
	if err := makeFile(f, path, size, fill); err != nil {
		return err
	}
	return syncDir(dir)
}

// makeFile completes an empty temporary file and gives it the name path.
func makeFile(f *os.File, path string, size func(Info) (int64, error), fill func(Device) error) error {
	defer os.Remove(f.Name())
	defer f.Close() // after success it is synced
	if err := fillFile(f, path, size, fill); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return cause(err)
	}
	// Unlike rename, link never replaces a file that another process has created at path.
	return cause(os.Link(f.Name(), path))
}

// fillFile sets the size of a temporary file and fills it. Its errors name path.
func fillFile(f *os.File, path string, size func(Info) (int64, error), fill func(Device) error) (err error) {
	if err := f.Truncate(maxFilePhysical); err != nil { // an empty file cannot be opened as a device
		return cause(err)
	}
	dev, err := open(f.Name(), path, Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	n, err := size(dev.info)
	if err != nil {
		return err
	}
	if n <= 0 {
		return fmt.Errorf("%w: %d bytes", ErrTooSmall, n)
	}
	if err := f.Truncate(n); err != nil {
		return cause(err)
	}
	if err := dev.inspect(Options{}); err != nil {
		return err
	}
	if dev.info.Size != n {
		return fmt.Errorf("%w: a size of %d bytes with blocks of %d", ErrAlignment, n, dev.info.LogicalBlock)
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

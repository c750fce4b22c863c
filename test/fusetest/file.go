// Package fusetest serves files as disks that can fail like a cut cable, by filesystems of one file
// each. A file leaves requests of the kernel unanswered, for example: the process that made them is
// then in uninterruptible sleep and ignores signals. The server must not make requests to its own
// files. It never knows what is on a disk.
//
// Begin with [File], whose requests pass [Faults]. [Mount] needs root and a kernel with FUSE.
package fusetest

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// File is another name of an image. Each request passes the faults of several places in their
// order, and then reads or writes the image. A write that hung lands, like one in a fabric.
type File struct {
	fs.Inode
	image  *os.File
	faults []*Faults

	mu      sync.Mutex    // guards the fields below
	writing map[int64]int // writes in flight, by offset
	twice   int           // writes that overlapped a write in flight
	late    []lateWrite
	slow    []slowRequest // the last of them
}

// slowRequest is a request that took SlowAfter or longer.
type slowRequest struct {
	began time.Time
	took  time.Duration
}

// SlowAfter is the duration from which a request is slow.
const SlowAfter = 20 * time.Millisecond

// lateWrite is a write of a host that lost its power.
type lateWrite struct {
	data []byte
	off  int64
}

var (
	_ fs.NodeOpener    = (*File)(nil)
	_ fs.NodeGetattrer = (*File)(nil)
	_ fs.NodeReader    = (*File)(nil)
	_ fs.NodeWriter    = (*File)(nil)
	_ fs.NodeFsyncer   = (*File)(nil)
)

// Open opens an image. Faults may be shared by several files.
func Open(image string, faults ...*Faults) (*File, error) {
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	return &File{image: f, faults: faults, writing: map[int64]int{}}, err
}

// Close closes the image.
func (f *File) Close() error { return f.image.Close() }

// Open disables caching, so that a hanging write does not block reads.
func (f *File) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES, 0
}

// Getattr returns the size.
func (f *File) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	info, err := f.image.Stat()
	if err != nil {
		return fs.ToErrno(err)
	}
	out.Mode, out.Size = syscall.S_IFREG|0o600, uint64(info.Size())
	return 0
}

func (f *File) pass(r request) (errno syscall.Errno, lands bool) {
	for _, at := range f.faults {
		if errno, lands = at.pass(r); errno != 0 {
			break
		}
	}
	return errno, lands
}

// Read reads the image.
func (f *File) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	defer f.served(time.Now())
	if errno, _ := f.pass(request{off: off, length: len(dest)}); errno != 0 {
		return nil, errno
	}
	n, err := f.image.ReadAt(dest, off)
	if err != nil && err != io.EOF {
		return nil, fs.ToErrno(err)
	}
	return fuse.ReadResultData(dest[:n]), 0
}

// Write writes to the image.
func (f *File) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	defer f.served(time.Now())
	f.mu.Lock()
	if f.writing[off]++; f.writing[off] > 1 {
		f.twice++
	}
	f.mu.Unlock()
	errno, lands := f.pass(request{write: true, off: off, length: len(data)})
	n := 0
	if errno == 0 {
		var err error
		n, err = f.image.WriteAt(data, off)
		errno = fs.ToErrno(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if lands {
		f.late = append(f.late, lateWrite{append([]byte(nil), data...), off})
	}
	if f.writing[off]--; f.writing[off] == 0 {
		delete(f.writing, off)
	}
	return uint32(max(n, 0)), errno
}

// Fsync flushes the image.
func (f *File) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return fs.ToErrno(f.image.Sync())
}

// Land completes the late writes of a host that lost its power, and returns their number.
func (f *File) Land() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.late)
	for _, w := range f.late {
		if _, err := f.image.WriteAt(w.data, w.off); err != nil {
			return 0, err
		}
	}
	f.late = nil
	return n, nil
}

// served records the end of a request.
func (f *File) served(began time.Time) {
	took := time.Since(began)
	if took < SlowAfter {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slow = append(f.slow, slowRequest{began, took}); len(f.slow) > 20_000 {
		f.slow = slices.Delete(f.slow, 0, 10_000)
	}
}

// Slow returns the number of slow requests that overlap an interval and have ended, and the longest duration.
func (f *File) Slow(from, to time.Time) (n int, most time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.slow {
		if r.began.Before(to) && r.began.Add(r.took).After(from) {
			n, most = n+1, max(most, r.took)
		}
	}
	return n, most
}

// WroteTwice returns how many writes overlapped a write in flight.
func (f *File) WroteTwice() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.twice
}

// dir is a filesystem of one file.
type dir struct {
	fs.Inode
	name string
	file fs.InodeEmbedder
}

// OnAdd creates the file.
func (d *dir) OnAdd(ctx context.Context) {
	d.AddChild(d.name, d.NewPersistentInode(ctx, d.file, fs.StableAttr{Mode: syscall.S_IFREG}), true)
}

// Mount mounts a filesystem of one file on a directory, and returns when it can be used. The server
// runs in this process, and ends with it.
func Mount(on, name string, file fs.InodeEmbedder) error {
	server, err := fs.Mount(on, &dir{name: name, file: file}, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "bakery-test", Name: "bakery-test", MaxBackground: 256,
			ExtraCapabilities: fuse.CAP_ASYNC_DIO}, // otherwise a loop device makes one request at a time
	})
	if err == nil {
		err = server.WaitMount()
	}
	if err != nil {
		return fmt.Errorf("mount %s: %w", on, err)
	}
	return nil
}

// Unmount unmounts it. It is lazy: while a loop device has the file open, the filesystem remains.
func Unmount(on string) error {
	if err := unix.Unmount(on, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", on, err)
	}
	return nil
}

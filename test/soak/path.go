package main

import (
	"context"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// path is one host's path to the image: a filesystem of one file, which is another name of the
// image. Its requests can hang in the kernel, fail, or be late. After a cut all hanging requests
// fail, but their writes may still land, like those of a lost host.
type path struct {
	fs.Inode
	file *os.File

	mu      sync.Mutex // guards the fields below
	change  sync.Cond
	hang    trouble
	fail    trouble
	delay   time.Duration
	cut     bool
	late    []lateWrite
	hung    int           // requests that hang
	writing map[int64]int // writes in flight, by offset
	twice   int           // writes that overlapped a write in flight
}

// trouble selects the requests with a fault.
type trouble struct{ reads, writes bool }

type lateWrite struct {
	data []byte
	off  int64
}

var (
	_ fs.NodeOpener    = (*path)(nil)
	_ fs.NodeGetattrer = (*path)(nil)
	_ fs.NodeReader    = (*path)(nil)
	_ fs.NodeWriter    = (*path)(nil)
	_ fs.NodeFsyncer   = (*path)(nil)
)

func newPath(image string) (*path, error) {
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	p := &path{file: f, writing: map[int64]int{}}
	p.change.L = &p.mu
	return p, err
}

// Open disables caching, and lets reads pass a hanging write.
func (p *path) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES, 0
}

// Getattr returns the size.
func (p *path) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	info, err := p.file.Stat()
	if err != nil {
		return fs.ToErrno(err)
	}
	out.Mode, out.Size = syscall.S_IFREG|0o600, uint64(info.Size())
	return 0
}

// pass blocks while a request hangs or is late, and returns its error. It is called with mu held.
func (p *path) pass(of func(trouble) bool) syscall.Errno {
	for of(p.hang) && !p.cut {
		p.hung++
		p.change.Wait()
		p.hung--
	}
	if p.cut || of(p.fail) {
		return syscall.EIO
	}
	if delay := p.delay; delay > 0 {
		p.mu.Unlock()
		time.Sleep(delay)
		p.mu.Lock()
	}
	return 0
}

// Read reads the image.
func (p *path) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	p.mu.Lock()
	errno := p.pass(func(t trouble) bool { return t.reads })
	p.mu.Unlock()
	if errno != 0 {
		return nil, errno
	}
	n, err := unix.Pread(int(p.file.Fd()), dest, off)
	if err != nil {
		return nil, fs.ToErrno(err)
	}
	return fuse.ReadResultData(dest[:n]), 0
}

// Write writes to the image.
func (p *path) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	p.mu.Lock()
	if p.writing[off]++; p.writing[off] > 1 {
		p.twice++
	}
	errno := p.pass(func(t trouble) bool { return t.writes })
	if errno != 0 && p.cut && p.hang.writes {
		p.late = append(p.late, lateWrite{append([]byte(nil), data...), off})
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.writing[off]--; p.writing[off] == 0 {
			delete(p.writing, off)
		}
	}()
	if errno != 0 {
		return 0, errno
	}
	n, err := unix.Pwrite(int(p.file.Fd()), data, off)
	return uint32(max(n, 0)), fs.ToErrno(err)
}

// Fsync flushes the image.
func (p *path) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return fs.ToErrno(p.file.Sync())
}

// set changes the fault of the path.
func (p *path) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.change.Broadcast()
}

// restore ends all faults. Hanging writes land now.
func (p *path) restore() {
	p.set(func() { p.hang, p.fail, p.delay, p.cut = trouble{}, trouble{}, 0, false })
}

// land completes the writes in flight of a lost host, and returns their number.
func (p *path) land() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.late)
	for _, w := range p.late {
		if _, err := unix.Pwrite(int(p.file.Fd()), w.data, w.off); err != nil {
			return 0, err
		}
	}
	p.late = nil
	return n, nil
}

// wroteTwice returns how many writes overlapped a write in flight.
func (p *path) wroteTwice() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.twice
}

// waiting returns the number of hanging requests.
func (p *path) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hung
}

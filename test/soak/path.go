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

// path is one host's way to the image: a filesystem of one file, which is another name of that. Requests can be
// left without an answer, which has whoever asked sleep in the kernel, be answered with an error, or late. A path that
// was cut answers all that hang with an error, while their writes may land later, as those of a host that is no more.
type path struct {
	fs.Inode
	file *os.File

	mu      sync.Mutex // guards what follows
	change  sync.Cond
	hang    trouble
	fail    trouble
	delay   time.Duration
	cut     bool
	late    []lateWrite
	hung    int           // requests that hang
	writing map[int64]int // writes under way, by offset
	twice   int           // writes that came while one to the same place was under way
}

// trouble is what requests are in trouble.
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

// Open has nothing cached, and a write that hangs not hold up reads.
func (p *path) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES, 0
}

// Getattr tells the size.
func (p *path) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	info, err := p.file.Stat()
	if err != nil {
		return fs.ToErrno(err)
	}
	out.Mode, out.Size = syscall.S_IFREG|0o600, uint64(info.Size())
	return 0
}

// pass returns when a request may go on, or with its error. It is called with mu held.
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

// Fsync writes what is yet to be written.
func (p *path) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return fs.ToErrno(p.file.Sync())
}

// set changes what is wrong with the path.
func (p *path) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.change.Broadcast()
}

// mend ends all trouble. What hung lands now.
func (p *path) mend() {
	p.set(func() { p.hang, p.fail, p.delay, p.cut = trouble{}, trouble{}, 0, false })
}

// land writes what a host had under way that is no more, and returns how many writes that were.
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

// wroteTwice is how often a write came while one to the same place was under way.
func (p *path) wroteTwice() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.twice
}

// waiting is how many requests hang.
func (p *path) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hung
}

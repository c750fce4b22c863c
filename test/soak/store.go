package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/test/fusetest"
)

// storage is the server of the store: a filesystem of one file with a block for each lock. A write
// is a record (record.go) with the writer's section and token; it fails with errRefused if the
// section is over.
type storage struct {
	fs.Inode
	backing *os.File

	mu    sync.Mutex // guards the fields below
	judge *judge
	aims  map[int]*aim  // by host
	awake time.Duration // when tick last ran
	saw   func(record)  // called with accepted records
	found func(violations []string)
}

var (
	_ fs.NodeOpener    = (*storage)(nil)
	_ fs.NodeGetattrer = (*storage)(nil)
	_ fs.NodeReader    = (*storage)(nil)
	_ fs.NodeWriter    = (*storage)(nil)
)

// Open disables caching.
func (s *storage) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES, 0
}

// Getattr returns the size.
func (s *storage) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = syscall.S_IFREG|0o600, uint64(len(locks)*blockSize)
	return 0
}

// Read returns a block.
func (s *storage) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.backing.ReadAt(dest[:min(len(dest), blockSize)], off)
	if n == 0 && err != nil {
		return nil, fs.ToErrno(err)
	}
	return fuse.ReadResultData(trimZeroes(dest[:n])), 0
}

func trimZeroes(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return b
}

// Write processes a record.
func (s *storage) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	var a record
	if err := json.Unmarshal(data, &a); err != nil || blockOf(a.Lock) != off {
		return 0, syscall.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noticeStall()
	accepted := s.judge.take(a)
	if found := s.judge.found; len(found) > 0 {
		s.judge.found = nil
		s.found(found)
	}
	if !accepted {
		return 0, errRefused
	}
	s.saw(a)
	l := s.judge.locks[a.Lock]
	b := block{N: l.n, Token: l.greatest}
	if at := s.aims[a.Host]; at != nil && a.Kind == recordEnter {
		b.Long, b.For = a.Section, at.lasts
		delete(s.aims, a.Host)
		close(at.begun)
	}
	if err := s.keep(off, b); err != nil {
		return 0, fs.ToErrno(err)
	}
	return uint32(len(data)), 0
}

// aim makes the next section of a host last, so that a fault can hit it.
type aim struct {
	lasts time.Duration
	begun chan struct{} // closed when the section has begun
}

// aim makes the next section of a host last, and returns when it has begun, or after a timeout.
func (s *storage) aim(ctx context.Context, host int, lasts, patience time.Duration) error {
	at := &aim{lasts, make(chan struct{})}
	s.with(func(*judge) { s.aims[host] = at })
	defer s.with(func(*judge) {
		if s.aims[host] == at {
			delete(s.aims, host)
		}
	})
	select {
	case <-at.begun:
		return nil
	case <-time.After(patience):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *storage) keep(off int64, b block) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	var whole [512]byte
	copy(whole[:], text)
	_, err = s.backing.WriteAt(whole[:], off)
	return err
}

// tick records that the soak itself runs, and returns for how long it did not.
func (s *storage) tick() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	stall := s.noticeStall()
	s.awake = clock.Boottime.Now()
	return stall
}

// noticeStall reports a pause of the machine to the judge, before later records. mu is held.
func (s *storage) noticeStall() time.Duration {
	now := clock.Boottime.Now()
	if s.awake == 0 {
		return 0
	}
	if stall := now - s.awake; stall >= s.judge.lease/2 {
		s.judge.paused(everyHost, pause{s.awake, now})
	}
	return now - s.awake
}

// with calls f with the judge, under mu.
func (s *storage) with(f func(*judge)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.judge)
}

// mounted is a mounted filesystem.
type mounted struct {
	dir  string
	path string // of the file
}

// mount creates a directory and mounts a file in it. The server runs in this process, and ends with
// it.
func mount(dir, name string, file fs.InodeEmbedder) (*mounted, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	return &mounted{dir, filepath.Join(dir, name)}, fusetest.Mount(dir, name, file)
}

func (m *mounted) unmount() error {
	if err := fusetest.Unmount(m.dir); err != nil {
		return err
	}
	return os.Remove(m.dir)
}

// mountStore mounts the store in its own directory.
func mountStore(dir string, s *storage) (*mounted, error) {
	var err error
	if s.backing, err = os.OpenFile(dir+".img", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return nil, err
	}
	for _, l := range locks {
		if err := s.keep(blockOf(l.name), block{}); err != nil {
			return nil, err
		}
	}
	return mount(dir, "blocks", s)
}

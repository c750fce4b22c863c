package blockdev

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A thread in pread or pwrite is in uninterruptible sleep: until the disk answers, its process cannot
// end, not even by SIGKILL. A thread that waits in io_uring_enter sleeps interruptibly. After the end of
// its process the kernel keeps the disk's file, with its locks, and the ring until the request has returned.

// ring is an io_uring for one request at a time.
type ring struct {
	fd             int
	keeps          *os.File // registered; nil if none
	queues         []byte   // mapping of both queues
	entries        []byte   // mapping of the one entry
	entry          *ringEntry
	tail           *uint32 // of the submission queue
	cqHead, cqTail *uint32
	results        []ringResult
}

// The structures of linux/io_uring.h.
type (
	ringParams struct {
		_        [5]uint32
		features uint32
		_        [4]uint32
		sq, cq   [10]uint32 // offsets of fields in the mapping
	}
	ringEntry struct {
		op, flags uint8
		_         uint16
		fd        int32
		off, addr uint64
		n, rw     uint32
		_         [4]uint64
	}
	ringResult struct {
		_ uint64
		n int32 // negative: an errno
		_ uint32
	}
)

// The constants of linux/io_uring.h.
const (
	sqTail, sqArray, cqHead, cqTail, cqMask, cqResults = 1, 6, 0, 1, 2, 5

	ringOffEntries    = 0x10000000
	ringRead          = 22
	ringWrite         = 23
	ringGetEvents     = 1
	ringRegisterFiles = 2
	ringDropFiles     = 3

	// ringFeatures are one mapping for both queues, and, since Linux 5.12, workers that are threads of
	// the process. Some earlier kernels let the end of a process wait for its requests.
	ringFeatures = 1<<0 | 1<<9
)

// ringsAllowed reports whether this process can use io_uring: the kernel may be too old, and
// kernel.io_uring_disabled or a filter of system calls may forbid it.
var ringsAllowed = sync.OnceValue(func() bool {
	r, err := newRing(nil)
	if err == nil {
		r.close()
	}
	return err == nil
})

// newRing returns a ring. Unless keeps is nil, the kernel keeps that file open until the ring is closed
// and its request has returned.
func newRing(keeps *os.File) (*ring, error) {
	var p ringParams
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, errno
	}
	r := &ring{fd: int(fd)}
	if err := r.open(&p, keeps); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *ring) open(p *ringParams, keeps *os.File) (err error) {
	if p.features&ringFeatures != ringFeatures {
		return unix.ENOSYS
	}
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if r.queues, err = unix.Mmap(r.fd, 0, pageSize, prot, flags); err != nil {
		return err
	}
	if r.entries, err = unix.Mmap(r.fd, ringOffEntries, int(unsafe.Sizeof(*r.entry)), prot, flags); err != nil {
		return err
	}
	r.entry = (*ringEntry)(unsafe.Pointer(&r.entries[0]))
	r.tail, r.cqHead, r.cqTail = r.field(p.sq[sqTail]), r.field(p.cq[cqHead]), r.field(p.cq[cqTail])
	r.results = unsafe.Slice((*ringResult)(unsafe.Pointer(r.field(p.cq[cqResults]))), *r.field(p.cq[cqMask])+1)
	*r.field(p.sq[sqArray]) = 0 // the index of the only entry
	if keeps == nil {
		return nil
	}
	r.keeps = keeps
	fd := int32(keeps.Fd())
	return r.register(ringRegisterFiles, unsafe.Pointer(&fd), 1)
}

// field returns a field of the queues.
func (r *ring) field(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.queues[off])) }

func (r *ring) register(op uintptr, arg unsafe.Pointer, n uintptr) error {
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), op, uintptr(arg), n, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// close closes a ring without a request.
func (r *ring) close() {
	if r.keeps != nil {
		_ = r.register(ringDropFiles, nil, 0) // now, not when the kernel comes to it
	}
	for _, mapping := range [][]byte{r.queues, r.entries} {
		if mapping != nil {
			_ = unix.Munmap(mapping)
		}
	}
	_ = unix.Close(r.fd)
}

// transfer makes a request as pread and pwrite do. If it was not begun, it returns begun false and why:
// then the ring must not be used again.
func (r *ring) transfer(op uint8, fd int, p []byte, off int64) (n int, begun bool, err error) {
	addr := uint64(uintptr(unsafe.Pointer(&p[0])))
	*r.entry = ringEntry{op: op, fd: int32(fd), off: uint64(off), addr: addr, n: uint32(len(p))}
	atomic.AddUint32(r.tail, 1)
	head := *r.cqHead
	for begin := uintptr(1); atomic.LoadUint32(r.cqTail) == head; {
		n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), begin, 1, ringGetEvents, 0, 0)
		switch {
		case errno == 0:
			begin -= n // then a signal ended the wait, if it is not done
		case errno != unix.EINTR && begin != 0:
			return 0, false, errno
		}
	}
	res := r.results[head&uint32(len(r.results)-1)].n
	atomic.StoreUint32(r.cqHead, head+1)
	runtime.KeepAlive(p)
	if res < 0 {
		return 0, true, unix.Errno(-res)
	}
	return int(res), true, nil
}

// maxIdle is how many rings of a disk are kept. Each has a descriptor; a disk that hung leaves many.
const maxIdle = 8

// rings are the rings of a disk.
type rings struct {
	mu    sync.Mutex // guards the fields below
	idle  []*ring
	keeps *os.File // see Disk.Keep; nil if none
}

// transfer makes a request by an idle ring. It returns begun false if there is none and none can be made.
func (rs *rings) transfer(op uint8, fd int, p []byte, off int64) (n int, begun bool, err error) {
	rs.mu.Lock()
	keeps := rs.keeps
	var r *ring
	if last := len(rs.idle) - 1; last >= 0 {
		r, rs.idle = rs.idle[last], rs.idle[:last]
	}
	rs.mu.Unlock()
	if r == nil {
		if r, err = newRing(keeps); err != nil {
			return 0, false, err
		}
	}
	n, begun, err = r.transfer(op, fd, p, off)
	rs.mu.Lock()
	again := begun && r.keeps == rs.keeps && len(rs.idle) < maxIdle
	if again {
		rs.idle = append(rs.idle, r)
	}
	rs.mu.Unlock()
	if !again {
		r.close()
	}
	return n, begun, err
}

// keep closes the idle rings, and makes those of later requests keep a file open.
func (rs *rings) keep(f *os.File) {
	rs.mu.Lock()
	idle := rs.idle
	rs.keeps, rs.idle = f, nil
	rs.mu.Unlock()
	for _, r := range idle {
		r.close()
	}
}

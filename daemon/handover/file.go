// Package handover keeps the handover file, by which the next bakeryd process continues with the
// same incarnation: the term of the lease and the sessions, and with several disks the slots that are
// being written. It knows the files and nothing of clients and locks. Start reading at File.
package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// File is the handover file of this process: the term and the sessions. A reboot ends every hold,
// so that the file is not synced.
//
// The file is mapped into memory: PutTerm, Put, Release and Remove are stores there. When they
// return, the next process would find the change. The file is extended by Reserve, before a session
// needs its cell.
//
// A store does not block on tmpfs. On another file system it waits for a disk if the page is being
// written there. So a caller holds no mutex that is needed by goroutines other than those that change
// the file.
//
// A change that fails makes the file permanently void: with an incomplete file the next process
// would take a granted lock for one that is not. Later changes do nothing.
//
// The lock file of the host id guards the file against other processes
// (hostid.Identity.TakeLockFile).
type File struct {
	Path  string
	slots *Notes // nil with one disk

	growth chan struct{} // taken by the goroutine that extends the file
	void   chan struct{} // closed when err is set and the next process cannot read the file

	mu       sync.Mutex // guards the fields below; no IO is done with it
	file     *os.File   // nil if closed
	mem      []byte     // room for MaxCells; behind the end of the file it cannot be accessed
	notes    []byte     // of slots, in a file of their own; nil if none
	end      int        // number of cells in the file
	err      error      // why the file is void; nil if it is not
	unsealed bool       // it could not be marked as void
	content             // cells has the reserved ones, too
}

// chunk is the number of cells by which the file is extended.
const chunk = 8

// open maps a file into memory.
func open(path string, file *os.File, c content) (*File, error) {
	mem, err := unix.Mmap(int(file.Fd()), 0, MaxCells*cellSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map it into memory: %w", err)
	}
	return &File{Path: path, growth: make(chan struct{}, 1), void: make(chan struct{}), file: file, mem: mem, content: c,
		end: 1 + len(c.cells) + len(c.free)}, nil
}

// Path returns the path of the handover file of a host id.
func Path(dir string, uuid layout.UUID, host int) string {
	return filepath.Join(dir, fmt.Sprintf("%s-%d.state", uuid, host))
}

// Find returns the host ids of a lockspace that have a handover file. It does not validate the
// files.
func Find(dir string, uuid layout.UUID) []int { return Hosts(dir, uuid, ".state") }

// Hosts returns the host ids of a lockspace that have files with a suffix.
func Hosts(dir string, uuid layout.UUID, suffix string) (hosts []int) {
	names, _ := hostid.Files(dir, uuid, suffix) // the later use of the directory reports errors
	for _, name := range names {
		number, _, ofSession := strings.Cut(name, "-")
		host, err := strconv.Atoi(number)
		if err == nil && ofSession == (suffix == ".fifo") && host >= 1 && host <= layout.MaxHosts && strconv.Itoa(host) == number && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// Create creates an empty handover file and removes an existing one. The file reads as void until
// PutTerm.
func Create(dir string, uuid layout.UUID, host int) (*File, error) {
	path := Path(dir, uuid, host)
	if err := remove(path); err != nil {
		return nil, fmt.Errorf("remove old handover file: %w", err)
	}
	j, err := create(path, path)
	if err != nil {
		return nil, fmt.Errorf("create handover file: %w", err)
	}
	return j, nil
}

// create creates an empty file at a place from which the caller renames it to its path.
func create(path, place string) (*File, error) {
	if err := remove(place); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(place, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = extend(f, 0)
	var j *File
	if err == nil {
		j, err = open(path, f, content{cells: make(map[string]int), free: cellsFrom(1, chunk)})
	}
	if err != nil {
		f.Close()
		return nil, errors.Join(err, os.Remove(place))
	}
	return j, nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// extend writes a chunk of free cells at the end of a file. The kernel writes page by page, so that a
// reader after the writer was killed finds whole cells. Written pages exist: without memory or space
// for them the write fails, and no later access does.
func extend(f *os.File, end int) error {
	cells := make([]byte, chunk*cellSize)
	for at := 0; at < len(cells); at += cellSize {
		erase(cells[at:])
	}
	_, err := f.WriteAt(cells, int64(end)*cellSize)
	return err
}

// cellsFrom returns the numbers of cells, of which the first is to be used first.
func cellsFrom(begin, end int) (cells []int) {
	for at := end - 1; at >= begin; at-- {
		cells = append(cells, at)
	}
	return cells
}

// Resume opens the handover file of the previous process to continue it, and returns its sessions
// in the order of their cells. It returns an error for a file that is damaged, of another boot, or
// of another lockspace or host id than its name. It replaces a file of the previous format.
func Resume(dir string, uuid layout.UUID, host int, now time.Duration) (*File, Term, []Session, error) {
	path := Path(dir, uuid, host)
	var j *File
	f, c, err := load(path, Term{UUID: uuid, Boot: hostid.BootID(), HostID: host}, now)
	if err == nil {
		sessions := c.sessions
		if c.term.Format == oldFormat {
			f.Close()
			j, err = c.convert(path)
		} else {
			c.sessions = nil // a File has only their cells
			slices.Reverse(c.free)
			if j, err = open(path, f, *c); err != nil {
				f.Close()
			}
		}
		if err == nil {
			return j, j.term, sessions, nil
		}
	}
	return nil, Term{}, nil, fmt.Errorf("read handover file %s: %w", path, text.WithoutPath(err))
}

func load(path string, want Term, now time.Duration) (*os.File, *content, error) {
	if want.Boot == (BootText{}) {
		return nil, nil, errors.New("the system has no boot id")
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = CheckOwner(info, 0)
	}
	var c *content
	if err == nil {
		c, err = decodeFile(f, info.Size(), want, now)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, c, nil
}

// CheckOwner returns an error unless a file has the given type and only this user can have created
// it.
func CheckOwner(info os.FileInfo, kind os.FileMode) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || info.Mode().Type() != kind:
		return fmt.Errorf("a file of type %v, want %v", info.Mode().Type(), kind)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("a file of user %d, want %d", st.Uid, os.Geteuid())
	case kind == 0 && info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("a file of mode %#o, want 0600", info.Mode().Perm())
	}
	return nil
}

// PutTerm writes the term. The incarnation cannot change while the file has sessions, which belong
// to it.
func (j *File) PutTerm(t Term) {
	j.change("term", func() error {
		t.Format = fileFormat
		if err := t.check(); err != nil {
			return err
		}
		if path := Path(filepath.Dir(j.Path), t.UUID, t.HostID); path != j.Path {
			return fmt.Errorf("of host id %d in lockspace %s", t.HostID, t.UUID)
		}
		if len(j.cells) > 0 && t.Incarnation != j.term.Incarnation {
			return fmt.Errorf("incarnation %v over %d sessions of %v", text.Hex(t.Incarnation), len(j.cells), text.Hex(j.term.Incarnation))
		}
		encoded, err := json.Marshal(t)
		if err != nil {
			return err
		}
		j.term = t
		return store(j.mem, func(to []byte) []byte { return append(to, encoded...) })
	})
}

// Reserve extends the file if it has no cell for a session, and reserves one until Remove. It does IO.
func (j *File) Reserve(id string) {
	if j.reserve(id) {
		return
	}
	j.growth <- struct{}{} // a mutex is not held over IO
	defer func() { <-j.growth }()
	for !j.reserve(id) {
		j.mu.Lock()
		file, end := j.file, j.end
		j.mu.Unlock()
		err := fmt.Errorf("more than %d sessions", MaxCells-1)
		if end+chunk <= MaxCells && file != nil {
			err = extend(file, end)
		}
		j.change("more cells", func() error {
			if err == nil {
				j.end += chunk
				j.free = append(cellsFrom(end, j.end), j.free...)
			}
			return err
		})
	}
}

// reserve reports whether a session has a cell, or needs none because the file is void or closed.
func (j *File) reserve(id string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil || j.err != nil {
		return true
	}
	_, ok := j.cellOf(id)
	return ok
}

// cellOf returns the cell of a session, or takes a free one for it. It returns false if there is none.
// Called with mu held.
func (j *File) cellOf(id string) (at int, ok bool) {
	if at, ok = j.cells[id]; !ok && len(j.free) > 0 {
		last := len(j.free) - 1
		at, ok, j.free = j.free[last], true, j.free[:last]
		j.cells[id] = at
	}
	return at, ok
}

// Put writes the current state of a session, for which Reserve was called. An invalid session makes
// the file void: the caller refuses such a request before.
func (j *File) Put(s Session) {
	j.change("session", func() error {
		if j.term.HostID == 0 {
			return errors.New("no term yet")
		}
		s.Since, s.Command = s.Since.UTC(), layout.TruncateCommand(s.Command)
		if err := s.check(j.term.HostID); err != nil {
			return err
		}
		at, ok := j.cellOf(s.ID)
		if !ok {
			return errors.New("no cell is reserved")
		}
		return store(j.mem[at*cellSize:], s.append)
	})
}

// Release writes that a session has released the lock which the file says it was granted.
func (j *File) Release(id string) {
	j.change("release", func() error {
		if at, ok := j.cells[id]; ok {
			release(j.mem[at*cellSize:])
		}
		return nil
	})
}

// Remove removes a session, if the file has it or a cell for it.
func (j *File) Remove(id string) {
	j.change("removal", func() error {
		if at, ok := j.cells[id]; ok {
			delete(j.cells, id)
			j.free = append(j.free, at)
			erase(j.mem[at*cellSize:])
		}
		return nil
	})
}

// change calls do, with mu held, unless the file is void or closed. If do fails, the file becomes
// void. When change returns, the next process cannot read a file that is void.
func (j *File) change(what string, do func() error) {
	sealed, first := j.try(what, do)
	switch {
	case first && sealed:
		close(j.void)
	case first:
		go func() { // the caller's mutex permits to wait for a disk, but no other IO
			defer close(j.void)
			_ = j.Discard() // repeated by the goroutine that waits for Void, which reports the error
		}()
	}
	if !sealed {
		<-j.void
	}
}

// try returns first if do has failed now, and sealed unless the file is void and could be read.
func (j *File) try(what string, do func() error) (sealed, first bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil || j.err != nil {
		return !j.unsealed, false
	}
	err := guarded(do)
	if err == nil {
		return true, false
	}
	j.err = fmt.Errorf("write %s to handover file %s: %w", what, j.Path, err)
	j.unsealed = guarded(func() error { sealOf(j.mem).Store(voidSeal); return nil }) != nil
	return !j.unsealed, true
}

// guarded calls do. It returns an error if do accesses a page that is not there.
func guarded(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			if _, isFault := fault.(interface{ Addr() uintptr }); !isFault {
				panic(fault)
			}
			err = errors.New("a page cannot be accessed: the file was truncated, or its disk fails")
		}
	}()
	return do()
}

// Void returns a channel that is closed when a change has failed. Err returns why.
func (j *File) Void() <-chan struct{} { return j.void }

// Err returns why the file is void, nil if it is not.
func (j *File) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Intact reports whether the next process can continue from this file.
func (j *File) Intact() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file != nil && j.err == nil && j.term.HostID != 0
}

// Close closes the file and leaves it to the next process.
func (j *File) Close() {
	j.mu.Lock()
	file, mem, notes := j.file, j.mem, j.notes
	j.file, j.mem, j.notes = nil, nil, nil
	j.mu.Unlock()
	if file != nil {
		_ = unix.Munmap(mem) // has no error for what Mmap returned
		file.Close()
	}
	if notes != nil {
		_ = unix.Munmap(notes)
	}
}

// Discard removes the file, also after Close, so that no process can resume.
func (j *File) Discard() error {
	j.Close()
	if err := remove(j.Path); err != nil && os.Truncate(j.Path, 0) != nil {
		return fmt.Errorf("remove the handover file, which the next process would use: %w", err)
	}
	if j.slots != nil {
		return remove(j.notesPath())
	}
	return nil
}

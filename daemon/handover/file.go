// Package handover keeps the handover file, by which the next bakeryd process continues with the
// same incarnation: the term of the lease and the sessions. It knows the file and nothing of
// clients and locks. Start reading at File.
package handover

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
// A write that fails makes the file permanently void: with an incomplete file the next process
// would take a granted lock for one that is not. The failed write returns an error, and later
// writes do nothing.
//
// QueueTerm, QueuePut and QueueRemove do no IO, so that a caller may hold a mutex of its own. Wait
// returns when the file has the change. The changes are written in the order in which they were
// queued.
//
// The lock file of the host id guards the file against other processes
// (hostid.Identity.TakeLockFile).
type File struct {
	Path string

	// owned by the goroutine that writes
	file    *os.File // nil if void or closed
	removed bool     // so that the file is void

	mu      sync.Mutex // guards the fields below; no IO is done with it
	idle    sync.Cond  // is signalled when writing becomes false
	writing bool       // a goroutine writes the queue
	queue   []change
	// memory of the next queue
	spareQueue []change
	queued     uint64 // number of changes so far
	written    uint64 // number of changes that are in the file, or failed
	failed     uint64 // number of the change that failed; 0: none, or Wait has returned err
	err        error
	void       bool
	content    // with the queue
}

func fileOf(path string, file *os.File, c content) *File {
	j := &File{Path: path, file: file, content: c}
	j.idle.L = &j.mu
	return j
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
// QueueTerm.
func Create(dir string, uuid layout.UUID, host int) (*File, error) {
	path := Path(dir, uuid, host)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove old handover file: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create handover file: %w", err)
	}
	return fileOf(path, f, content{cells: make(map[string]int), end: 1}), nil
}

// Resume opens the handover file of the previous process to continue it, and returns its sessions
// in the order of their cells. It returns an error for a file that is damaged, of another boot, or
// of another lockspace or host id than its name.
func Resume(dir string, uuid layout.UUID, host int, now time.Duration) (*File, Term, []Session, error) {
	path := Path(dir, uuid, host)
	f, c, err := load(path, Term{UUID: uuid, Boot: hostid.BootID(), HostID: host}, now)
	if err != nil {
		return nil, Term{}, nil, fmt.Errorf("read handover file %s: %w", path, text.WithoutPath(err))
	}
	sessions := c.sessions
	c.sessions = nil // a File has only their cells
	return fileOf(path, f, *c), c.term, sessions, nil
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

// QueueTerm queues the term, and returns a number for Wait. The incarnation cannot change while the
// file has sessions, which belong to it.
func (j *File) QueueTerm(t Term) uint64 {
	return j.change("term", func(cell []byte) (int, error) {
		t.Format = fileFormat
		if err := t.check(); err != nil {
			return 0, err
		}
		if path := Path(filepath.Dir(j.Path), t.UUID, t.HostID); path != j.Path {
			return 0, fmt.Errorf("of host id %d in lockspace %s", t.HostID, t.UUID)
		}
		if len(j.cells) > 0 && t.Incarnation != j.term.Incarnation {
			return 0, fmt.Errorf("incarnation %016x over %d sessions of %016x", t.Incarnation, len(j.cells), j.term.Incarnation)
		}
		j.term = t
		return 0, encodeCell(cell, t)
	})
}

// QueuePut queues the current state of a session, and returns a number for Wait. An invalid session
// makes the file void: the caller refuses such a request before.
func (j *File) QueuePut(s Session) uint64 {
	return j.change("session", func(cell []byte) (int, error) {
		if j.term.HostID == 0 {
			return 0, errors.New("no term yet")
		}
		s.Since, s.Command = s.Since.UTC(), layout.TruncateCommand(s.Command)
		if err := s.check(j.term.HostID); err != nil {
			return 0, err
		}
		at, known := j.cells[s.ID]
		switch last := len(j.free) - 1; {
		case known:
		case last >= 0:
			at, j.free = j.free[last], j.free[:last]
		case j.end >= MaxCells:
			return 0, fmt.Errorf("more than %d sessions", MaxCells-1)
		default:
			at = j.end
			j.end++
		}
		j.cells[s.ID] = at
		return at, sealCell(cell, s.append(cell[cellText:cellText]))
	})
}

// QueueRemove queues the removal of a session, if the file has it, and returns a number for Wait.
func (j *File) QueueRemove(id string) uint64 {
	return j.change("removal", func([]byte) (int, error) {
		at, ok := j.cells[id]
		if !ok {
			return none, nil
		}
		delete(j.cells, id)
		j.free = append(j.free, at)
		return at, nil
	})
}

// none is no cell.
const none = -1

// spare has the memory of cells that were written.
var spare = sync.Pool{New: func() any { return new([cellSize]byte) }}

// change is a queued one: the writing of a cell, or a function of the goroutine that writes.
type change struct {
	what string
	cell *[cellSize]byte
	at   int
	err  error // makes the file void, instead of a cell
	do   func()
}

// change queues the writing of a cell. prepare fills the empty cell and returns its number, or none
// if there is nothing to write; it is called with mu held. If it returns an error, the file becomes
// void.
func (j *File) change(what string, prepare func(cell []byte) (int, error)) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	cell := spare.Get().(*[cellSize]byte)
	clear(cell[:])
	at, err := prepare(cell[:])
	if at == none {
		return 0
	}
	return j.enqueue(change{what: what, cell: cell, at: at, err: err})
}

// enqueue returns a number for Wait. Called with mu held.
func (j *File) enqueue(c change) uint64 {
	j.queue = append(j.queue, c)
	j.queued++
	return j.queued
}

// Wait blocks until the changes up to number n are written; 0 is no change. If one of them failed,
// the first call returns its error. Wait is called by a goroutine that holds no mutex: the first
// that waits writes for all.
func (j *File) Wait(n uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wait(n)
	if j.failed == 0 || j.failed > n {
		return nil
	}
	j.failed = 0
	return j.err
}

// wait is called with mu held, which it releases meanwhile.
func (j *File) wait(n uint64) {
	for j.written < n {
		if j.writing {
			j.idle.Wait()
		} else {
			j.writeQueue()
		}
	}
}

// writeQueue writes what is queued now. Called with mu held, which it releases meanwhile.
func (j *File) writeQueue() {
	queue, before := j.queue, j.written
	j.queue, j.writing = j.spareQueue[:0], true
	j.mu.Unlock()
	var failed uint64
	var err error
	for i, c := range queue {
		if e := j.write(c); e != nil {
			failed, err = before+uint64(i)+1, e
		}
	}
	clear(queue)
	j.mu.Lock()
	j.written, j.spareQueue = before+uint64(len(queue)), queue
	if failed != 0 {
		j.failed, j.err = failed, err
	}
	j.writing, j.void = false, j.removed
	j.idle.Broadcast()
}

// write carries out a change. Only the first one that fails returns an error.
func (j *File) write(c change) error {
	if c.do != nil {
		c.do()
		return nil
	}
	defer spare.Put(c.cell)
	if j.file == nil {
		return nil // void or closed
	}
	err := c.err
	if err == nil {
		_, err = j.file.WriteAt(c.cell[:], int64(c.at)*cellSize)
	}
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("write %s to handover file %s: %w", c.what, j.Path, err), j.invalidate())
}

// invalidate makes the file void: it removes the file, or truncates it if that fails. Only the
// goroutine that writes calls it.
func (j *File) invalidate() error {
	if j.removed {
		return nil
	}
	j.removed = true
	defer j.closeFile()
	err := os.Remove(j.Path)
	if err != nil && !errors.Is(err, os.ErrNotExist) && os.Truncate(j.Path, 0) != nil {
		return fmt.Errorf("remove the incomplete file, which the next process would use: %w", err)
	}
	return nil
}

func (j *File) closeFile() {
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
}

// Intact reports whether the next process can continue from this file, after all changes so far.
func (j *File) Intact() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wait(j.queued)
	return !j.void && j.term.HostID != 0
}

// Close closes the file and leaves it to the next process.
func (j *File) Close() {
	_ = j.last(func() error { j.closeFile(); return nil })
}

// Discard removes the file, also after Close, so that no process can resume.
func (j *File) Discard() error { return j.last(j.invalidate) }

// last calls f after all changes that are queued now.
func (j *File) last(f func() error) (err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wait(j.enqueue(change{do: func() { err = f() }}))
	return err
}

// Package handover keeps in a file what the next bakeryd process needs to continue with the same incarnation: the term of the
// lease and the sessions. It knows the file and nothing of clients and locks.
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
	"github.com/bakeryd/bakeryd/layout"
)

// File keeps in a file what a successor of this bakeryd needs to go on with
// the same incarnation: the term and the sessions. It need not survive a
// reboot, which ends every hold, so nothing is synced.
//
// A write that fails makes the journal void for good. A half-true journal is
// worse than none: a lock that was granted would be taken for one that was
// not. The write's error tells so, once; later writes do nothing.
//
// The lock file of the host id (identity.claim) guards the file against other
// processes.
type File struct {
	Path string

	mu    sync.Mutex // guards the rest
	file  *os.File   // nil: void or closed
	void  bool
	term  Term
	cells map[string]int // of the sessions
	free  []int          // below the end of the file
	end   int            // cells in the file
	buf   [cellSize]byte
}

// Owner says whose journal a file is.
type Owner struct {
	UUID layout.UUID
	boot [16]byte
	Host int
}

func Path(dir string, uuid layout.UUID, host int) string {
	return filepath.Join(dir, fmt.Sprintf("%s-%d.state", uuid, host))
}

// Find returns the journals of all host ids of a lockspace. They are
// to be read before they are believed.
func Find(dir string, uuid layout.UUID) []string {
	paths, _ := filepath.Glob(filepath.Join(hostid.GlobQuote(dir), uuid.String()+"-*.state"))
	return slices.DeleteFunc(paths, func(path string) bool {
		_, err := OwnerOf(path)
		return err != nil
	})
}

// OwnerOf reads from the name of a journal whose it is.
func OwnerOf(path string) (Owner, error) {
	const uuidLen = 36
	name, ok := strings.CutSuffix(filepath.Base(path), ".state")
	if !ok || len(name) < uuidLen+2 || name[uuidLen] != '-' {
		return Owner{}, errors.New("name is not UUID-ID.state")
	}
	uuid, err := layout.ParseUUID(name[:uuidLen])
	if err != nil {
		return Owner{}, err
	}
	host, err := strconv.Atoi(name[uuidLen+1:])
	if err != nil || host < 1 || host > layout.MaxHosts || strconv.Itoa(host) != name[uuidLen+1:] {
		return Owner{}, fmt.Errorf("host id %q, want 1 to %d", name[uuidLen+1:], layout.MaxHosts)
	}
	if uuid.String() != name[:uuidLen] {
		return Owner{}, fmt.Errorf("uuid %q, want %s", name[:uuidLen], uuid)
	}
	return Owner{UUID: uuid, boot: hostid.BootID(), Host: host}, nil
}

// Create makes an empty journal in place of any that is there. It says
// nothing, and reads as void, until it has a term.
func Create(dir string, uuid layout.UUID, host int) (*File, error) {
	path := Path(dir, uuid, host)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the old journal: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make the journal: %w", err)
	}
	return &File{Path: path, file: f, cells: make(map[string]int), end: 1}, nil
}

// Resume goes on with the journal of a predecessor, in place.
func Resume(dir string, uuid layout.UUID, host int, now time.Duration) (*File, Term, []Session, error) {
	path := Path(dir, uuid, host)
	f, content, err := loadJournal(path, os.O_RDWR, now)
	if err != nil {
		return nil, Term{}, nil, err
	}
	j := &File{Path: path, file: f, term: content.term, cells: content.cells, free: content.free, end: content.end}
	return j, content.term, content.sessions, nil
}

// Read reads what a predecessor kept, the sessions in the order of
// their cells. A file that is damaged, or not of the lockspace and host id in
// its name and of this boot, is void as a whole.
func Read(path string, now time.Duration) (Term, []Session, error) {
	f, content, err := loadJournal(path, os.O_RDONLY, now)
	if err != nil {
		return Term{}, nil, err
	}
	f.Close()
	return content.term, content.sessions, nil
}

func loadJournal(path string, flag int, now time.Duration) (*os.File, *journalContent, error) {
	fail := func(err error) (*os.File, *journalContent, error) {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err // the path is named once
		}
		return nil, nil, fmt.Errorf("read journal %s: %w", path, err)
	}
	want, err := OwnerOf(path)
	if err != nil {
		return fail(err)
	}
	if want.boot == [16]byte{} {
		return fail(errors.New("the system does not tell its boot id"))
	}
	f, err := os.OpenFile(path, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return fail(err)
	}
	content, err := checkedContent(f, want, now)
	if err != nil {
		f.Close()
		return fail(err)
	}
	return f, content, nil
}

func checkedContent(f *os.File, want Owner, now time.Duration) (*journalContent, error) {
	size, err := ownFile(f, 0)
	if err != nil {
		return nil, err
	}
	return decodeJournal(f, size, want, now)
}

// ownFile accepts a file of a kind that only this user can have put there, and
// returns its size.
func ownFile(f *os.File, kind os.FileMode) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if err := IsOwn(info, kind); err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func IsOwn(info os.FileInfo, kind os.FileMode) error {
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

// SetTerm keeps the term. A journal with sessions keeps its incarnation: they
// are of that one.
func (j *File) SetTerm(t Term) error {
	return j.write("term", func() error {
		if err := t.check(); err != nil {
			return err
		}
		if path := Path(filepath.Dir(j.Path), t.UUID, t.HostID); path != j.Path {
			return fmt.Errorf("of host id %d in lockspace %s", t.HostID, t.UUID)
		}
		if len(j.cells) > 0 && t.Incarnation != j.term.Incarnation {
			return fmt.Errorf("incarnation %016x over %d sessions of %016x", t.Incarnation, len(j.cells), j.term.Incarnation)
		}
		if err := j.writeCell(0, termCell{Format: journalFormat, Term: t}); err != nil {
			return err
		}
		j.term = t
		return nil
	})
}

// Put keeps a session as it now is. Who asked for what cannot be kept is to be
// refused before: here it makes the journal void.
func (j *File) Put(s Session) error {
	return j.write("session", func() error {
		if j.term.HostID == 0 {
			return errors.New("no term yet")
		}
		s.Since, s.Command = s.Since.UTC(), layout.TruncateCommand(s.Command)
		if err := s.check(j.term.HostID); err != nil {
			return err
		}
		cell, known := j.cells[s.ID]
		if !known {
			cell = j.spare()
		}
		if cell >= Cells {
			return fmt.Errorf("more than %d sessions", Cells-1)
		}
		if err := sealCell(j.buf[:], s.append(j.buf[cellText:cellText])); err != nil {
			return err
		}
		if err := j.writeBuf(cell); err != nil {
			return err
		}
		if !known {
			j.cells[s.ID] = cell
			j.free = j.free[:max(len(j.free)-1, 0)]
			j.end = max(j.end, cell+1)
		}
		return nil
	})
}

// spare is the cell for one more session: the last free one, or behind the end.
func (j *File) spare() int {
	if n := len(j.free); n > 0 {
		return j.free[n-1]
	}
	return j.end
}

// Remove forgets a session; one that is not there is no error.
func (j *File) Remove(id string) error {
	return j.write("removal", func() error {
		cell, ok := j.cells[id]
		if !ok {
			return nil
		}
		clear(j.buf[:])
		if err := j.writeBuf(cell); err != nil {
			return err
		}
		delete(j.cells, id)
		j.free = append(j.free, cell)
		return nil
	})
}

func (j *File) writeCell(cell int, record any) error {
	if err := encodeCell(j.buf[:], record); err != nil {
		return err
	}
	return j.writeBuf(cell)
}

func (j *File) writeBuf(cell int) error {
	_, err := j.file.WriteAt(j.buf[:], int64(cell)*cellSize)
	return err
}

// write does nothing where the journal is void or closed, and makes it void
// where the work fails.
func (j *File) write(what string, work func() error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	err := work()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("write %s into journal %s: %w", what, j.Path, err)
	return errors.Join(err, j.drop())
}

// drop makes the journal void: what cannot be removed is emptied.
func (j *File) drop() error {
	if j.void {
		return nil
	}
	j.void = true
	err := os.Remove(j.Path)
	if err != nil && !errors.Is(err, os.ErrNotExist) && os.Truncate(j.Path, 0) != nil {
		err = fmt.Errorf("remove it, lest a successor believes it: %w", err)
	} else {
		err = nil
	}
	j.shut()
	return err
}

func (j *File) shut() {
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
}

// Intact tells whether a successor can go on from here.
func (j *File) Intact() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.void && j.term.HostID != 0
}

// Close leaves the journal to a successor.
func (j *File) Close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.shut()
}

// Discard removes the journal, also after close: nothing can be resumed.
func (j *File) Discard() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.drop()
}

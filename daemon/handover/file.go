// Package handover keeps the handover file, by which the next bakeryd process continues with the
// same incarnation: the term of the lease and the sessions. It knows the file and nothing of
// clients and locks. Start reading at File.
package handover

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/layout"
)

// File is the handover file of this process: the term and the sessions. A reboot ends every hold,
// so that the file is not synced.
//
// A write that fails makes the file permanently void: with an incomplete file the next process
// would take a granted lock for one that is not. The failed write returns an error, and later
// writes do nothing.
//
// The lock file of the host id guards the file against other processes
// (hostid.Identity.TakeLockFile).
type File struct {
	Path string

	mu    sync.Mutex // guards the fields below
	file  *os.File   // nil if void or closed
	void  bool
	term  Term
	cells map[string]int // cells of the sessions, by session id
	free  []int          // free cells below end
	end   int            // number of cells in the file
	buf   [cellSize]byte
}

// Owner identifies the host that a handover file belongs to.
type Owner struct {
	UUID layout.UUID
	boot [16]byte
	Host int
}

// Path returns the path of the handover file of a host id.
func Path(dir string, uuid layout.UUID, host int) string {
	return filepath.Join(dir, fmt.Sprintf("%s-%d.state", uuid, host))
}

// Find returns the paths of the handover files of all host ids of a lockspace. It does not validate
// them.
func Find(dir string, uuid layout.UUID) (paths []string) {
	hosts, _ := hostid.Files(dir, uuid, ".state")
	for _, host := range hosts {
		path := filepath.Join(dir, uuid.String()+"-"+host+".state")
		if _, err := ParsePath(path); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// ParsePath returns the owner in the name of a handover file.
func ParsePath(path string) (Owner, error) {
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

// Create creates an empty handover file and removes an existing one. The file reads as void until
// SetTerm.
func Create(dir string, uuid layout.UUID, host int) (*File, error) {
	path := Path(dir, uuid, host)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove old handover file: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create handover file: %w", err)
	}
	return &File{Path: path, file: f, cells: make(map[string]int), end: 1}, nil
}

// Resume opens the handover file of the previous process to continue it.
func Resume(dir string, uuid layout.UUID, host int, now time.Duration) (*File, Term, []Session, error) {
	path := Path(dir, uuid, host)
	f, content, err := load(path, os.O_RDWR, now)
	if err != nil {
		return nil, Term{}, nil, err
	}
	j := &File{Path: path, file: f, term: content.term, cells: content.cells, free: content.free, end: content.end}
	return j, content.term, content.sessions, nil
}

// Read returns the records of the previous process, the sessions in the order of their cells. It
// returns an error for a file that is damaged, of another boot, or of another lockspace or host id
// than its name.
func Read(path string, now time.Duration) (Term, []Session, error) {
	f, content, err := load(path, os.O_RDONLY, now)
	if err != nil {
		return Term{}, nil, err
	}
	f.Close()
	return content.term, content.sessions, nil
}

func load(path string, flag int, now time.Duration) (*os.File, *content, error) {
	fail := func(err error) (*os.File, *content, error) {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err // the message below has the path
		}
		return nil, nil, fmt.Errorf("read handover file %s: %w", path, err)
	}
	want, err := ParsePath(path)
	if err != nil {
		return fail(err)
	}
	if want.boot == [16]byte{} {
		return fail(errors.New("the system has no boot id"))
	}
	f, err := os.OpenFile(path, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return fail(err)
	}
	content, err := decodeOwn(f, want, now)
	if err != nil {
		f.Close()
		return fail(err)
	}
	return f, content, nil
}

func decodeOwn(f *os.File, want Owner, now time.Duration) (*content, error) {
	size, err := checkFile(f, 0)
	if err != nil {
		return nil, err
	}
	return decodeFile(f, size, want, now)
}

// checkFile returns the size of a file, or an error unless CheckOwner accepts it.
func checkFile(f *os.File, kind os.FileMode) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if err := CheckOwner(info, kind); err != nil {
		return 0, err
	}
	return info.Size(), nil
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

// SetTerm writes the term. The incarnation cannot change while the file has sessions, which belong
// to it.
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
		if err := j.writeCell(0, termCell{Format: fileFormat, Term: t}); err != nil {
			return err
		}
		j.term = t
		return nil
	})
}

// Put writes the current state of a session. An invalid session makes the file void: the caller
// refuses such a request before.
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
			cell = j.freeCell()
		}
		if cell >= MaxCells {
			return fmt.Errorf("more than %d sessions", MaxCells-1)
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

// freeCell returns the cell for one more session: the last free one, or the one behind the end.
func (j *File) freeCell() int {
	if n := len(j.free); n > 0 {
		return j.free[n-1]
	}
	return j.end
}

// Remove removes a session. It returns nil if the file has no such session.
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

// write calls work, unless the file is void or closed. If that fails, the file becomes void.
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
	err = fmt.Errorf("write %s to handover file %s: %w", what, j.Path, err)
	return errors.Join(err, j.invalidate())
}

// invalidate makes the file void: it removes the file, or truncates it if that fails.
func (j *File) invalidate() error {
	if j.void {
		return nil
	}
	j.void = true
	err := os.Remove(j.Path)
	if err != nil && !errors.Is(err, os.ErrNotExist) && os.Truncate(j.Path, 0) != nil {
		err = fmt.Errorf("remove the incomplete file, which the next process would use: %w", err)
	} else {
		err = nil
	}
	j.closeFile()
	return err
}

func (j *File) closeFile() {
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
}

// Intact reports whether the next process can continue from this file.
func (j *File) Intact() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.void && j.term.HostID != 0
}

// Close closes the file and leaves it to the next process.
func (j *File) Close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closeFile()
}

// Discard removes the file, also after Close, so that no process can resume.
func (j *File) Discard() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.invalidate()
}

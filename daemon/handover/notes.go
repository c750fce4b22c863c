package handover

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// Notes are the slots that a process is writing, on several disks (NOTE-FIRST in bakery/PROTOCOL.md). A
// write that has begun may be on some of the disks, so the next process completes it. Notes are in
// a file next to the handover file, of the same lifetime and mapped into memory in the same way. If
// a note cannot be stored, the handover file becomes void, so that no process resumes without it.
//
// The file has two places for each lock. A place is a slot as on disk, and empty while its first 8
// bytes are zero, whatever follows. One store of them, which is atomic, makes a note valid or
// removes it. The first disk write is that of version 5, and fails:
//
//	place 0   place 1
//	5         empty     write 5 begins; fails
//	5         empty     the rest of 6 is stored, not yet its first bytes
//	5         6         the greater version counts
//	empty     6         only now write 6 begins
//	empty     empty     after write 6 has returned
//
// Therefore a writer that is killed anywhere leaves whole notes only. Of a note whose store was cut
// off, the write had not begun: the place counts as empty. Any other note that does not decode is
// damage, and the process does not resume. A lesser version never outlives a greater one: if it
// did, it would undo a complete write.
//
// Put and Remove of one lock are called by one goroutine at a time. A nil Notes keeps none.
type Notes struct {
	file *File
	left map[int][]byte
}

// notesOf is the length of both places of a lock.
const notesOf = 2 * layout.RecordSize

func (j *File) notesPath() string { return strings.TrimSuffix(j.Path, ".state") + ".slots" }

// CreateNotes creates an empty file of notes and removes an existing one. It is called before PutTerm.
func (j *File) CreateNotes(locks int) error {
	path := j.notesPath()
	err := remove(path)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	}
	if err == nil {
		defer f.Close()
		err = f.Truncate(notesSize(locks)) // a page that is never stored takes no memory
	}
	if err == nil {
		err = j.mapNotes(f, locks)
	}
	if err != nil {
		return fmt.Errorf("create file of slot notes: %w", err)
	}
	return nil
}

// ResumeNotes opens the notes of the previous process to continue them. Notes of another incarnation are
// removed. It returns an error for a file that is missing or damaged.
func (j *File) ResumeNotes(space layout.Space) error {
	path := j.notesPath()
	if err := j.resumeNotes(path, space); err != nil {
		return fmt.Errorf("read slot notes %s: %w", path, text.WithoutPath(err))
	}
	return nil
}

func (j *File) resumeNotes(path string, space layout.Space) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = CheckOwner(info, 0)
	}
	if want := notesSize(space.Geometry.Locks); err == nil && info.Size() != want {
		err = fmt.Errorf("%v, want %v", text.Bytes(info.Size()), text.Bytes(want))
	}
	var left map[int][]byte
	var old []int64
	if err == nil {
		left, old, err = j.readNotes(f, space)
	}
	if err == nil {
		err = j.mapNotes(f, space.Geometry.Locks)
	}
	if err == nil {
		j.slots.left = left
		err = guarded(func() error {
			for _, at := range old {
				firstOf(j.notes[at:]).Store(0)
			}
			return nil
		})
	}
	return err
}

// readNotes returns the greatest note of each lock, and where the others are. It reads the file, because
// an access to a page that was never stored would allocate it.
func (j *File) readNotes(f *os.File, space layout.Space) (left map[int][]byte, old []int64, err error) {
	left = map[int][]byte{}
	places := make([]byte, notesOf)
	in := bufio.NewReaderSize(f, 64<<10)
	for lock := range space.Geometry.Locks + 1 {
		if _, err := io.ReadFull(in, places); err != nil {
			return nil, nil, err
		}
		var greatest uint64
		var greatestAt int64
		for i := range 2 {
			at := i * layout.RecordSize
			sector := places[at:][:layout.RecordSize]
			if binary.NativeEndian.Uint64(sector) == 0 {
				continue
			}
			s, err := space.DecodeSlot(sector, lock, j.term.HostID)
			if err != nil {
				return nil, nil, err
			}
			switch inFile := int64(lock)*notesOf + int64(at); {
			case s.Incarnation != j.term.Incarnation || s.Sequence < greatest:
				old = append(old, inFile)
			default:
				if left[lock] != nil {
					old = append(old, greatestAt)
				}
				left[lock], greatest, greatestAt = bytes.Clone(sector), s.Sequence, inFile
			}
		}
	}
	return left, old, nil
}

func notesSize(locks int) int64 { return int64(locks+1) * notesOf }

func (j *File) mapNotes(f *os.File, locks int) error {
	mem, err := unix.Mmap(int(f.Fd()), 0, int(notesSize(locks)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map it into memory: %w", err)
	}
	j.notes, j.slots = mem, &Notes{file: j}
	return nil
}

// SlotNotes returns the notes that belong to the file, nil if it has none or there is no file.
func (j *File) SlotNotes() *Notes {
	if j == nil {
		return nil
	}
	return j.slots
}

// Left returns the notes of the previous process by lock: whole slots as on disk. Their writes are to be
// completed, and then removed.
func (n *Notes) Left() map[int][]byte {
	if n == nil {
		return nil
	}
	return n.left
}

// Put notes a slot whose write begins next. It returns an error if the write must not begin, because the
// notes were left to the next process.
func (n *Notes) Put(lock int, sector []byte) error {
	if n == nil {
		return nil
	}
	noted := false
	n.file.change("slot", func() error {
		free, other := n.place(lock, 0), n.place(lock, 1)
		if firstOf(free).Load() != 0 {
			free, other = other, free
		}
		const first = 8
		copy(free[first:], sector[first:])
		firstOf(free).Store(binary.NativeEndian.Uint64(sector))
		firstOf(other).Store(0)
		noted = true
		return nil
	})
	if !noted && n.file.Err() == nil { // if the file is void, no process resumes
		return errors.New("the slot notes were left to the next process")
	}
	return nil
}

// Remove removes the note of a write that has returned without an error.
func (n *Notes) Remove(lock int) {
	if n == nil {
		return
	}
	n.file.change("end of a slot", func() error {
		firstOf(n.place(lock, 0)).Store(0) // the other place is empty, or this one
		firstOf(n.place(lock, 1)).Store(0)
		return nil
	})
}

// place returns a place of a lock. Called with File.mu held, and a file that is open.
func (n *Notes) place(lock, i int) []byte {
	return n.file.notes[lock*notesOf+i*layout.RecordSize:][:layout.RecordSize]
}

// firstOf returns the first bytes of a place, which are zero if it is empty.
func firstOf(place []byte) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&place[:layout.RecordSize][0])) // places are aligned
}

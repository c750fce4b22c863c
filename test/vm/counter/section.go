package counter

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/bakeryd/bakeryd/blockdev"
)

// Disk is the disk with the counter.
type Disk interface {
	Read(p []byte, off int64) error
	Write(p []byte, off int64) error
}

// Replace replaces the sector at the start of the disk.
type Replace func(before, after []byte) error

// Plain writes unconditionally, as most programs do.
func Plain(disk Disk) Replace {
	return func(_, after []byte) error { return disk.Write(after, 0) }
}

// Checked first reads the sector, and returns ErrOvertaken if it differs from before. A program
// cannot do better with a disk that only reads and writes: time may pass between the read and the
// write. A store that compares by itself has no such gap.
func Checked(disk Disk) Replace {
	return func(before, after []byte) error {
		now := blockdev.Alloc(SectorSize)
		if err := disk.Read(now, 0); err != nil {
			return err
		}
		if !bytes.Equal(now, before) {
			return ErrOvertaken
		}
		return disk.Write(after, 0)
	}
}

// ErrOvertaken is returned when another section with a greater token wrote the counter.
var ErrOvertaken = errors.New("the counter has a greater token by now")

// Section is one critical section: it reads the counter, marks it, waits, and writes it,
// incremented by one.
type Section struct {
	Disk    Disk
	Replace Replace
	Host    int
	Token   uint64

	// Wait is the section's work between its mark and its write. It may call look, which returns
	// nil if the section is alone. Any error of Wait, such as ErrOvertaken, ends the section.
	Wait func(found Counter, look func() error) error
}

// Run runs the section. It notes the begin before it changes the counter, and the end afterwards: a
// section that is killed leaves the counter in one of three states, which Check knows.
func (s Section) Run() error {
	place, err := s.end()
	if err != nil {
		return err
	}
	before, after := blockdev.Alloc(SectorSize), blockdev.Alloc(SectorSize)
	if err := s.Disk.Read(before, 0); err != nil {
		return fmt.Errorf("read the counter: %w", err)
	}
	found, err := decodeCounter(before)
	if err != nil {
		return fmt.Errorf("read the counter: %w", err)
	}
	if err := s.note(place, note{token: s.Token, found: found.Token, count: found.Count, host: s.Host}); err != nil {
		return err
	}
	mine := Counter{Token: s.Token, Count: found.Count, Open: true, Host: s.Host}
	mine.encode(after)
	if err := s.Replace(before, after); err != nil {
		return fmt.Errorf("mark the counter: %w", err)
	}
	before, after = after, before
	look := func() error { return s.look(before, place+SectorSize) }
	if err := s.Wait(found, look); err != nil {
		return err
	}
	mine.Count, mine.Open = found.Count+1, false
	mine.encode(after)
	if err := s.Replace(before, after); err != nil {
		return fmt.Errorf("write the counter: %w", err)
	}
	return s.note(place+SectorSize, note{token: s.Token, found: found.Token, count: mine.Count, host: s.Host, kind: ended})
}

// look writes a note if the counter's mark has changed.
func (s Section) look(mark []byte, place int64) error {
	now := blockdev.Alloc(SectorSize)
	if err := s.Disk.Read(now, 0); err != nil {
		return fmt.Errorf("look at the counter: %w", err)
	}
	if bytes.Equal(now, mark) {
		return nil
	}
	found, err := decodeCounter(now)
	if err != nil {
		return fmt.Errorf("look at the counter: %w", err)
	}
	return errors.Join(ErrOvertaken, s.note(place, note{token: s.Token, found: found.Token, count: found.Count, host: s.Host, kind: intruded}))
}

// end returns where the notes of the host end.
func (s Section) end() (off int64, err error) {
	area := int64(s.Host) * NotesSize
	const chunk = 64 << 10 // any disk takes this size in one request
	p := blockdev.Alloc(chunk)
	for off := int64(0); off < NotesSize; off += chunk {
		if err := s.Disk.Read(p, area+off); err != nil {
			return 0, fmt.Errorf("read the notes: %w", err)
		}
		for i := int64(0); i < chunk; i += SectorSize {
			if _, err := decodeNote(p[i : i+SectorSize]); errors.Is(err, errBlank) && off+i <= NotesSize-2*SectorSize {
				return area + off + i, nil
			}
		}
	}
	return 0, fmt.Errorf("no room for the notes of a section: the disk has %d notes of host %d", mostNotes, s.Host)
}

func (s Section) note(off int64, n note) error {
	p := blockdev.Alloc(SectorSize)
	n.encode(p)
	if err := s.Disk.Write(p, off); err != nil {
		return fmt.Errorf("note the section: %w", err)
	}
	return nil
}

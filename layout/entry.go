package layout

import "fmt"

// Entry is a lock's place in the directory: a lock in use, a free place, or one that was never
// used (blank). Any host that holds the internal lock 0 may write it.
//
//	 bytes  | field
//	--------|---------------------------------------------------------------------
//	  0- 39 | header; magic "BKDE"
//	 40- 43 | lock
//	 44- 45 | permits; 0 in a free entry
//	 46- 47 | length of the name; 0 in a free entry
//	 48- 55 | creation, 1 to 2^44
//	 56-183 | name, UTF-8, then zeroes
//	184-511 | reserved, zero
type Entry struct {
	Lock    int
	Name    string // 1 to MaxLockName bytes; empty in a free entry
	Permits int    // 1 to MaxHosts; 0 in a free entry
	// Creation only grows, also over removals. It distinguishes a slot left by a removed lock
	// from a slot of the lock that has the place now.
	Creation uint64
}

const (
	entryLock       = 40
	entryPermits    = 44
	entryNameLength = 46
	entryCreation   = 48
	entryName       = 56
	entryEnd        = entryName + MaxLockName
)

const _ = uint(entryEnd-184) + uint(184-entryEnd) // entryEnd is 184

// Free reports whether the entry names no lock: its lock was removed, or it was never used.
func (e Entry) Free() bool { return e.Name == "" }

// Blank reports whether the entry was never used: the record on disk is all zeroes.
func (e Entry) Blank() bool { return e.Creation == 0 }

func (e *Entry) check(g Geometry) error {
	err := firstError(within("lock", e.Lock, 1, g.Locks), checkNotZero("creation", e.Creation), checkCreation(e.Creation))
	switch {
	case err != nil:
		return err
	case e.Free():
		return within("permits of a free entry", e.Permits, 0, 0)
	}
	return firstError(within("permits", e.Permits, 1, MaxHosts), ValidateLockName(e.Name))
}

// EncodeEntry writes a directory entry into buf, and zeroes into the rest of buf.
func (s Space) EncodeEntry(buf []byte, e Entry) error {
	if err := firstError(checkSize(buf), checkUUID(s.UUID), e.check(s.Geometry)); err != nil {
		return fmt.Errorf("directory entry of lock %d: %w", e.Lock, err)
	}
	clear(buf)
	le.PutUint32(buf[entryLock:], uint32(e.Lock))
	le.PutUint16(buf[entryPermits:], uint16(e.Permits))
	le.PutUint16(buf[entryNameLength:], uint16(len(e.Name)))
	le.PutUint64(buf[entryCreation:], e.Creation)
	copy(buf[entryName:entryEnd], e.Name)
	seal(buf, magicEntry, s.UUID, s.Geometry.Entry(e.Lock))
	return nil
}

// DecodeEntry decodes the directory entry of a lock. All zeroes are a blank entry.
func (s Space) DecodeEntry(buf []byte, lock int) (Entry, error) {
	address := s.Geometry.Entry(lock)
	e, err := s.decodeEntry(buf, lock, address)
	if err != nil {
		return Entry{}, fmt.Errorf("directory entry of lock %d at byte %d: %w", lock, address, err)
	}
	return e, nil
}

func (s Space) decodeEntry(buf []byte, lock int, address int64) (e Entry, err error) {
	e.Lock = lock
	buf, err = s.open(buf, magicEntry, address)
	if err != nil || buf == nil {
		return e, err
	}
	err = firstError(isNumber("lock", int(le.Uint32(buf[entryLock:])), lock), checkReserved(buf, entryEnd))
	if err != nil {
		return e, err
	}
	e.Permits = int(le.Uint16(buf[entryPermits:]))
	e.Creation = le.Uint64(buf[entryCreation:])
	e.Name, err = decodeText("", "lock name", buf[entryName:entryEnd], le.Uint16(buf[entryNameLength:]))
	return e, firstError(err, e.check(s.Geometry))
}

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
//	184-191 | token of lock 0 under which it was written; 0 with one disk
//	192-199 | number of the write under that token; 0 with one disk
//	200-511 | reserved, zero
type Entry struct {
	Lock    int
	Name    string // 1 to MaxLockName bytes; empty in a free entry
	Permits int    // 1 to MaxHosts; 0 in a free entry
	// Creation only grows, also over removals. It distinguishes a slot left by a removed lock
	// from a slot of the lock that has the place now.
	Creation uint64
	// Token and Sequence are the version of the entry on several disks.
	Token    Ticket
	Sequence uint64
}

const _ = uint(184-56-MaxLockName) + uint(56+MaxLockName-184)

func (e *Entry) fields(c *codec, g Geometry) {
	c.zero(headerGeneration, headerAddress)
	number(c, 40, 4, "lock", &e.Lock, 1, g.Locks)
	word(c, 48, &e.Creation)
	c.check(firstError(checkNotZero("creation", e.Creation), checkCreation(e.Creation)))
	if c.text(46, 56, 184, "lock name", &e.Name); e.Free() {
		number(c, 44, 2, "permits of a free entry", &e.Permits, 0, 0)
	} else {
		number(c, 44, 2, "permits", &e.Permits, 1, MaxHosts)
		c.check(ValidateLockName(e.Name))
	}
	if c.several {
		word(c, 184, &e.Token)
		word(c, 192, &e.Sequence)
		c.check(firstError(checkNotZero("token", uint64(e.Token)), e.Token.check("token", g.Hosts)))
	} else {
		c.absent("version", 184, 200, e.Token == 0 && e.Sequence == 0)
	}
	c.zero(200, RecordSize)
}

// Free reports whether the entry names no lock: its lock was removed, or it was never used.
func (e Entry) Free() bool { return e.Name == "" }

// Blank reports whether the entry was never used: the record on disk is all zeroes.
func (e Entry) Blank() bool { return e.Creation == 0 }

// EncodeEntry writes a directory entry into buf, and zeroes into the rest of buf.
func (s Space) EncodeEntry(buf []byte, e Entry) error {
	var err error
	c := writer(s.Several, &err)
	e.fields(&c, s.Geometry)
	if err := firstError(checkSize(buf), checkUUID(s.UUID), err); err != nil {
		return fmt.Errorf("directory entry of lock %d: %w", e.Lock, err)
	}
	c.seal(buf, magicEntry, s.UUID, s.Geometry.Entry(e.Lock))
	return nil
}

// DecodeEntry decodes the directory entry of a lock. All zeroes are a blank entry.
func (s Space) DecodeEntry(buf []byte, lock int) (Entry, error) {
	address := s.Geometry.Entry(lock)
	e := Entry{Lock: lock}
	record, err := open(buf, magicEntry, s.Several)
	if err == nil && record != nil {
		c := reader(record, &err)
		e.fields(&c, s.Geometry)
		err = firstError(s.isOf(record, address), isNumber("lock", e.Lock, lock), err)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("directory entry of lock %d at byte %d: %w", lock, address, err)
	}
	return e, nil
}

// Intent is the entry that a host is about to write into the directory. It is the value of the
// host's slot in the internal lock, from before that write until after it. If the host dies in
// between, the write may land at any time. Until it is cleared, no host may write another entry
// there or create the same name elsewhere.
//
//	 bytes | field
//	-------|--------------------
//	  0- 3 | lock
//	  4- 5 | permits
//	  6- 7 | length of the name
//	  8-15 | creation
//	 16-   | name
//	 then, if it binds: | token and number of the write, 8 bytes each
//
// An intent with a token binds: a host that was restarted writes its entry again under that version,
// whatever the disks show (BINDING in bakery/PROTOCOL.md). Only lockspaces on several disks have it.
type Intent Entry

// An intent is the part of an encoded entry from the first field to the end of the name, and the version.
const (
	intentFrom    = 40
	intentName    = 56 - intentFrom
	intentVersion = 16
)

const _ = uint(MaxValue - intentName - MaxLockName - intentVersion) // an intent fits into a value

// Value returns the intent as the value of a slot.
func (i Intent) Value() []byte {
	var err error
	c := writer(false, &err)
	token, sequence := i.Token, i.Sequence
	i.Token, i.Sequence = 0, 0
	(*Entry)(&i).fields(&c, Geometry{})
	value := c.record[intentFrom:][:intentName+len(i.Name)]
	if token != 0 {
		value = le.AppendUint64(le.AppendUint64(value, uint64(token)), sequence)
	}
	return value
}

// DecodeIntent decodes the result of Value. It returns ErrShort or ErrField.
func (s Space) DecodeIntent(value []byte) (Intent, error) {
	var err error
	c := reader(make([]byte, RecordSize), &err)
	n := copy(c.record[intentFrom:intentFrom+intentName], value)
	name := int(le.Uint16(c.record[intentFrom+6:]))
	version := value[min(intentName+name, len(value)):]
	if n < intentName || len(value) < intentName+name || len(version) != 0 && (len(version) != intentVersion || !s.Several) {
		return Intent{}, fmt.Errorf("intent of %d bytes: %w", len(value), ErrShort)
	}
	copy(c.record[intentFrom:], value[:intentName+name])
	var e Entry
	e.fields(&c, s.Geometry)
	if len(version) != 0 {
		e.Token, e.Sequence = Ticket(le.Uint64(version)), le.Uint64(version[8:])
		err = firstError(err, checkNotZero("token", uint64(e.Token)), e.Token.check("token", s.Geometry.Hosts))
	}
	if err != nil {
		return Intent{}, fmt.Errorf("intent: %w", err)
	}
	return Intent(e), nil
}

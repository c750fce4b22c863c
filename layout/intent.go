package layout

import "fmt"

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
type Intent Entry

// An intent is the part of an encoded entry from the first field to the end of the name.
const (
	intentFrom = 40
	intentName = 56 - intentFrom
)

const _ = uint(MaxValue - intentName - MaxLockName) // an intent fits into a value

// Value returns the intent as the value of a slot.
func (i Intent) Value() []byte {
	var err error
	c := writer(&err)
	(*Entry)(&i).fields(&c, Geometry{})
	return c.record[intentFrom:][:intentName+len(i.Name)]
}

// DecodeIntent decodes the result of Value. It returns ErrShort or ErrField.
func (s Space) DecodeIntent(value []byte) (Intent, error) {
	var err error
	c := reader(make([]byte, RecordSize), &err)
	if n := copy(c.record[intentFrom:], value); n < intentName || len(value) != intentName+int(le.Uint16(value[6:])) {
		return Intent{}, fmt.Errorf("intent of %d bytes: %w", len(value), ErrShort)
	}
	var e Entry
	if e.fields(&c, s.Geometry); err != nil {
		return Intent{}, fmt.Errorf("intent: %w", err)
	}
	return Intent(e), nil
}

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

const (
	intentLock       = 0
	intentPermits    = 4
	intentNameLength = 6
	intentCreation   = 8
	intentName       = 16
)

const _ = uint(MaxValue - intentName - MaxLockName) // an intent fits into a value

// Value returns the intent as the value of a slot.
func (i Intent) Value() []byte {
	v := make([]byte, intentName+len(i.Name))
	le.PutUint32(v[intentLock:], uint32(i.Lock))
	le.PutUint16(v[intentPermits:], uint16(i.Permits))
	le.PutUint16(v[intentNameLength:], uint16(len(i.Name)))
	le.PutUint64(v[intentCreation:], i.Creation)
	copy(v[intentName:], i.Name)
	return v
}

// DecodeIntent decodes the result of Value. It returns ErrShort or ErrField.
func (s Space) DecodeIntent(value []byte) (Intent, error) {
	if len(value) < intentName || len(value) != intentName+int(le.Uint16(value[intentNameLength:])) {
		return Intent{}, fmt.Errorf("intent of %d bytes: %w", len(value), ErrShort)
	}
	i := Intent{
		Lock:     int(le.Uint32(value[intentLock:])),
		Permits:  int(le.Uint16(value[intentPermits:])),
		Creation: le.Uint64(value[intentCreation:]),
		Name:     string(value[intentName:]),
	}
	if err := (*Entry)(&i).check(s.Geometry); err != nil {
		return Intent{}, fmt.Errorf("intent: %w", err)
	}
	return i, nil
}

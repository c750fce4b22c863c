package layout

import (
	"fmt"

	"github.com/google/uuid"
)

// UUID distinguishes one format of one device from every other.
type UUID [16]byte

// ParseUUID parses the canonical form, 36 characters with hyphens.
func ParseUUID(text string) (UUID, error) {
	// The library accepts other forms too. Files and flags should have only one form.
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return UUID{}, fmt.Errorf("uuid %q, want the form 01234567-89ab-cdef-0123-456789abcdef: %w", text, ErrField)
	}
	return UUID(id), nil
}

// String returns the canonical form.
func (u UUID) String() string { return uuid.UUID(u).String() }

// IsZero reports whether u is no uuid.
func (u UUID) IsZero() bool { return u == UUID{} }

// MarshalText returns the canonical form.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText is ParseUUID.
func (u *UUID) UnmarshalText(text []byte) error {
	id, err := ParseUUID(string(text))
	if err == nil {
		*u = id
	}
	return err
}

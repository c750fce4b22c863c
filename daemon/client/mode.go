package client

import "github.com/bakeryd/bakeryd/layout"

// Mode is how a lock is held. In JSON it is "exclusive" or "shared".
type Mode uint8

// The modes.
const (
	// Exclusive excludes all other holders, but for those that the lock's permits allow.
	Exclusive = Mode(layout.Exclusive)

	// Shared excludes exclusive holders.
	Shared = Mode(layout.Shared)
)

// String returns "exclusive" or "shared".
func (m Mode) String() string { return layout.Mode(m).String() }

// MarshalText returns "exclusive" or "shared", and an error for other modes.
func (m Mode) MarshalText() ([]byte, error) { return layout.Mode(m).MarshalText() }

// UnmarshalText parses the result of MarshalText.
func (m *Mode) UnmarshalText(text []byte) error { return (*layout.Mode)(m).UnmarshalText(text) }

// Token is the fencing token of a hold. The token of each exclusive hold is greater than all earlier
// tokens of the lock: a store that remembers the greatest one refuses writes with a smaller one. 0 is
// no token.
type Token uint64

// String returns the token in decimal, as in BAKERY_TOKEN.
func (t Token) String() string { return layout.Ticket(t).String() }

// MarshalText returns the token in decimal. In JSON it is therefore a string: many JSON readers keep
// only 53 bits of a number.
func (t Token) MarshalText() ([]byte, error) { return layout.Ticket(t).MarshalText() }

// UnmarshalText parses the result of MarshalText, and refuses numbers that are no token.
func (t *Token) UnmarshalText(text []byte) error { return (*layout.Ticket)(t).UnmarshalText(text) }

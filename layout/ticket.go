package layout

import (
	"fmt"
	"strconv"
)

const (
	// GrantBits is the width of the grant inside a token, HostBits that of the host id.
	GrantBits = 8
	HostBits  = 11

	// MaxGrants is the number of tokens of one ticket.
	MaxGrants = 1 << GrantBits

	// MaxNumber is the largest number of a ticket. Numbers never wrap: one that would exceed it
	// is refused.
	MaxNumber = 1<<44 - 1

	// MaxCreation is the largest creation id of a lock. The numbers of a lock begin above its
	// creation id. A removal leaves a creation id above all numbers that were drawn on the lock.
	MaxCreation = MaxNumber + 1
)

const numberShift = HostBits + GrantBits

// Ticket is Lamport's pair of a number and the host that drew it, in one 63-bit word: the number
// in the upper 44 bits, the host in the next 11. Comparing tickets compares the pairs. No two
// hosts ever write the same ticket. Zero is no ticket.
//
// Fencing tokens are tickets too. One hold may serve several local grants, each with its own
// token: the lowest 8 bits count them. They are 0 in the ticket of a slot. All tokens of a hold
// are therefore between its ticket and the next larger ticket that any host can draw.
type Ticket uint64

// The largest token fits into 63 bits, so it is safe in a signed word as well.
const _ = int64(MaxNumber<<numberShift | (1<<numberShift - 1))

// Every host id fits.
const _ = uint(1<<HostBits - 1 - MaxHosts)

// MakeTicket returns a ticket. It panics if number exceeds MaxNumber or host is not within
// 1..MaxHosts.
func MakeTicket(number uint64, host int) Ticket {
	if number > MaxNumber {
		panic(fmt.Sprintf("layout: ticket number %d, want at most %d", number, uint64(MaxNumber)))
	}
	mustBeWithin("host of a ticket", host, 1, MaxHosts)
	return Ticket(number<<numberShift | uint64(host)<<GrantBits)
}

// Grant returns the token of the k-th local grant under a slot's ticket. The first grant is the
// 0th; its token is the ticket itself. Grant panics if k is not within 0..MaxGrants-1.
func (t Ticket) Grant(k int) Ticket {
	mustBeWithin("grant of a ticket", k, 0, MaxGrants-1)
	return t + Ticket(k)
}

// Number returns the number that the host drew.
func (t Ticket) Number() uint64 { return uint64(t) >> numberShift }

// Host returns the id of the host that drew the ticket, 0 for no ticket.
func (t Ticket) Host() int { return int(t >> GrantBits & (1<<HostBits - 1)) }

// String returns the word in decimal.
func (t Ticket) String() string { return strconv.FormatUint(uint64(t), 10) }

// MarshalText returns the word in decimal. JSON therefore shows a string: many JSON readers keep
// only 53 bits of a number.
func (t Ticket) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(t), 10), nil }

// UnmarshalText parses the result of MarshalText, and refuses words that MakeTicket and Grant
// cannot make.
func (t *Ticket) UnmarshalText(text []byte) error {
	word, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return fmt.Errorf("ticket %q, want a decimal number below 2^63: %w", text, ErrField)
	}
	if err := Ticket(word).check("ticket", MaxHosts); err != nil {
		return err
	}
	*t = Ticket(word)
	return nil
}

// checkCreation refuses a greater creation id: every later lock would begin where no numbers are
// left.
func checkCreation(creation uint64) error {
	if creation > MaxCreation {
		return fmt.Errorf("creation %d, want at most %d: %w", creation, uint64(MaxCreation), ErrField)
	}
	return nil
}

// checkGrant refuses a token of a later grant than the first.
func (t Ticket) checkGrant(field string) error {
	if grant := uint64(t) % MaxGrants; grant != 0 {
		return fmt.Errorf("%s %v is the token of grant %d, want 0: %w", field, t, grant, ErrField)
	}
	return nil
}

// check accepts no ticket, and any ticket or token of one of the hosts.
func (t Ticket) check(field string, hosts int) error {
	if t.Number() > MaxNumber {
		return fmt.Errorf("%s %d, want a number below 2^63: %w", field, uint64(t), ErrField)
	}
	if t != 0 && (t.Host() < 1 || t.Host() > hosts) {
		return fmt.Errorf("%s %d is of host %d, want 1 to %d: %w", field, uint64(t), t.Host(), hosts, ErrField)
	}
	return nil
}

package layout

import (
	"fmt"
	"strconv"
)

const (
	// HostBits is the width of the host id inside a ticket.
	HostBits = 11

	// MaxNumber is the largest number of a ticket. Numbers never wrap: one that would exceed it is refused.
	MaxNumber = 1<<52 - 1
)

// Ticket is Lamport's pair of a number and the host that drew it, the number in the upper 52 bits of a
// 63-bit word: to compare tickets is to compare the pairs. No two hosts ever write the same ticket. Zero is
// no ticket. Fencing tokens are tickets too.
type Ticket uint64

// The largest pair fits into 63 bits, so a ticket is safe in a signed word as well.
const _ = int64(MaxNumber<<HostBits | (1<<HostBits - 1))

// Every host id fits.
const _ = uint(1<<HostBits - 1 - MaxHosts)

// MakeTicket panics if number exceeds MaxNumber or host is not within 1..MaxHosts.
func MakeTicket(number uint64, host int) Ticket {
	if number > MaxNumber {
		panic(fmt.Sprintf("layout: ticket number %d, want at most %d", number, uint64(MaxNumber)))
	}
	mustBeWithin("host of a ticket", host, 1, MaxHosts)
	return Ticket(number<<HostBits | uint64(host))
}

// Number returns the number that the host drew.
func (t Ticket) Number() uint64 { return uint64(t) >> HostBits }

// Host returns the id of the host that drew the ticket, 0 for no ticket.
func (t Ticket) Host() int { return int(t & (1<<HostBits - 1)) }

// String returns the word in decimal.
func (t Ticket) String() string { return strconv.FormatUint(uint64(t), 10) }

// MarshalText returns the word in decimal. So JSON shows a string: many readers of JSON keep no more than 53
// bits of a number.
func (t Ticket) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(t), 10), nil }

// UnmarshalText reads what MarshalText wrote, and refuses what MakeTicket cannot make.
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

// check accepts no ticket, and any that one of the hosts could have drawn.
func (t Ticket) check(field string, hosts int) error {
	if t.Number() > MaxNumber {
		return fmt.Errorf("%s %d, want a number below 2^63: %w", field, uint64(t), ErrField)
	}
	if t != 0 && (t.Host() < 1 || t.Host() > hosts) {
		return fmt.Errorf("%s %d is of host %d, want 1 to %d: %w", field, uint64(t), t.Host(), hosts, ErrField)
	}
	return nil
}

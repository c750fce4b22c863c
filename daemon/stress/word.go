package stress

import (
	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/layout"
)

// word is a slot in memory: everything that a worker shows, in one register that only it writes.
// The ticket leaves its lowest 8 bits free. Their meaning is:
//
//	bits 0-1  phase
//	bit  2    mode
//	bits 4-5  era modulo 3, or gone
type word uint64

const (
	modeShift = 2
	eraShift  = 4
	spareBits = layout.MaxGrants - 1

	eras = 3 // distinguishes behind, the same, ahead
	gone = 3 // instead of an era: the worker has left
)

const goneWord = word(gone << eraShift)

func makeWord(s bakery.Slot, era uint64) word {
	return word(uint64(s.Ticket) | uint64(s.Phase) | uint64(s.Mode)<<modeShift | era%eras<<eraShift)
}

func (w word) phase() layout.Phase   { return layout.Phase(w & 3) }
func (w word) ticket() layout.Ticket { return layout.Ticket(w &^ spareBits) }
func (w word) number() uint64        { return w.ticket().Number() }
func (w word) era() uint64           { return uint64(w >> eraShift & 3) }
func (w word) gone() bool            { return w.era() == gone }

// view returns the word as a View of the protocol's machine. The incarnation of a worker is its
// number.
func (w word) view(host int) bakery.View {
	return bakery.View{Readable: true, Slot: bakery.Slot{
		Incarnation: uint64(host),
		Ticket:      w.ticket(),
		Phase:       w.phase(),
		Mode:        layout.Mode(w >> modeShift & 1),
	}}
}

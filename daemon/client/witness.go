package client

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Witness returns the path of the liveness FIFO that Inherit opens, empty if none.
func (h *Hold) Witness() string { return h.granted.Witness }

// Descriptor is an open file descriptor that commands inherit.
type Descriptor int

// Inherit returns a descriptor that every command inherits that is started before it is closed, and
// that holds the lock, too. Its number is at least 10. It is the write end of the liveness FIFO; do
// not write to it. This process keeps no other one: bakeryd stops every process that still has one
// when a lease ends unobserved.
//
// If bakeryd has just ended and the FIFO has no reader, Inherit waits until it restarts, at most
// until Warned. Without a FIFO, or if it cannot be opened (in a container that only has the socket,
// for example), the descriptor is a duplicate of the connection. That must not be made blocking,
// and holds the lock only until the connection breaks.
func (h *Hold) Inherit() (Descriptor, error) {
	d, err := openWitness(h.granted.Witness)
	for errors.Is(err, syscall.ENXIO) {
		select {
		case <-h.Warned():
			return -1, fmt.Errorf("open the witness of the hold: %w: %w", ErrUnreachable, err)
		case <-time.After(firstPause):
			d, err = openWitness(h.granted.Witness)
		}
	}
	if err != nil {
		d, err = h.inheritConnection()
	}
	if err != nil {
		return -1, fmt.Errorf("duplicate what the lock is held by: %w", err)
	}
	return d, nil
}

func (h *Hold) inheritConnection() (Descriptor, error) {
	h.mu.Lock()
	if h.closed { // the link may hold another lock
		h.mu.Unlock()
		return -1, errors.New("the hold was let go")
	}
	h.inherited = true // the link cannot be reused
	conn := h.link.conn
	h.mu.Unlock()
	var d Descriptor
	var dupErr error
	err := conn.Control(func(fd uintptr) { d, dupErr = Inheritable(int(fd)) })
	return d, errors.Join(err, dupErr)
}

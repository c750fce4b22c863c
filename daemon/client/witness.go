package client

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// firstInherited is above the descriptors that a shell lets scripts choose: one that opens 3 for itself
// must not close by that what the lock is held by.
const firstInherited = 10

// Witness returns the path of the FIFO that Inherit opens, empty if there is none.
func (h *Hold) Witness() string { return h.witness }

// Descriptor is an open file descriptor that commands inherit.
type Descriptor int

// Close closes the descriptor in this process.
func (d Descriptor) Close() error { return unix.Close(int(d)) }

// Inherit returns a descriptor that every command started before it is closed inherits, and so holds the lock
// too. Its number is at least 10. It is the write end of the witness, which nobody is to write into. This process
// keeps none itself: whoever has one is stopped at the end of a lease that nobody else sees the end of.
//
// If bakeryd has just ended and nobody reads the witness, it waits for the one that goes on, until the holder is
// to stop. Without a witness, or one that cannot be opened from here (in a container that has no more than the
// socket, say), it is a duplicate of the connection, which must not be made blocking: then the command holds the
// lock no longer than until that breaks.
func (h *Hold) Inherit() (Descriptor, error) {
	d, err := h.inheritWitness()
	for errors.Is(err, unix.ENXIO) {
		select {
		case <-h.Warned():
			return -1, fmt.Errorf("open the witness of the hold: %w: %w", ErrUnreachable, err)
		case <-time.After(firstPause):
			d, err = h.inheritWitness()
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

func (h *Hold) inheritWitness() (Descriptor, error) {
	fd, err := unix.Open(h.witness, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(fd) }() // its duplicate is what is inherited
	return Inheritable(fd)
}

func (h *Hold) inheritConnection() (Descriptor, error) {
	h.mu.Lock()
	if h.closed { // another lock may be held by the link
		h.mu.Unlock()
		return -1, errors.New("the hold was let go")
	}
	h.inherited = true // so the link is good for no other lock
	conn := h.link.conn
	h.mu.Unlock()
	var d Descriptor
	var dupErr error
	err := conn.Control(func(fd uintptr) { d, dupErr = Inheritable(int(fd)) })
	return d, errors.Join(err, dupErr)
}

// Inheritable returns a duplicate of a descriptor that commands inherit. Its number is at least 10.
func Inheritable(fd int) (Descriptor, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, firstInherited)
	return Descriptor(dup), err
}

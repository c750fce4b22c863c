package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/layout"
)

// blockSize is how far apart the blocks of the store are, one for each lock.
const blockSize = 4096

// What a section tells the store, in the order in which it does.
const (
	actEnter  = "enter"  // the lock is held since Granted, asked for at Asked
	actBeat   = "beat"   // it still works under the lock
	actWrite  = "write"  // the counter is to be N, one more than was read
	actMode   = "mode"   // the hold has another Mode, since Granted; before it is asked for if that is shared
	actValued = "valued" // bakeryd has acknowledged the value that was set
	actValue  = "value"  // the value of the lock was read: it is that of ValueToken
	actLeave  = "leave"  // the last thing done under the lock: it is let go after this
	actWrong  = "wrong"  // the client itself has seen what must not be: Text
)

// act is what a section does at the store: one write of a block. The store refuses it if the section is over.
type act struct {
	Kind    string        `json:"kind"`
	Lock    string        `json:"lock"`
	Section string        `json:"section"` // no two have one name
	Host    int           `json:"host"`
	Mode    layout.Mode   `json:"mode"`
	Token   layout.Ticket `json:"token"`
	At      time.Duration `json:"at"` // when it was about to be done, on CLOCK_BOOTTIME

	Asked   time.Duration `json:"asked,omitzero"`   // of enter, and of mode
	Granted time.Duration `json:"granted,omitzero"` // likewise: not before the grant, and not after anything was done under it

	// Deadline is the end of the lease as far as the holder has been told; 0: it is a command under bakeryctl, which
	// is stopped at the deadline rather than told of it.
	Deadline time.Duration `json:"deadline,omitzero"`

	N          uint64        `json:"n,omitzero"`
	ValueToken layout.Ticket `json:"value_token,omitzero"`
	Text       string        `json:"text,omitzero"`
}

// String names the section and what it does.
func (a act) String() string {
	return fmt.Sprintf("%s of %s (host %d, %s %q, token %d) at %v", a.Kind, a.Section, a.Host, a.Mode, a.Lock, a.Token, a.At)
}

// block is what a read of the store returns.
type block struct {
	N     uint64        `json:"n"`     // the counter
	Token layout.Ticket `json:"token"` // the greatest of an exclusive section

	Long string        `json:"long,omitempty"` // the section that is to work for so long, for it is about to be disturbed
	For  time.Duration `json:"for,omitzero"`
}

// store is the store's file, as a client has it.
type store struct{ file *os.File }

func openStore(path string) (store, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	return store{f}, err
}

// do is one act. It is an errRefused if the store turns it away.
func (s store) do(a act) error {
	a.At = clock.Boottime.Now()
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if len(b) > blockSize {
		return fmt.Errorf("an act of %d bytes", len(b))
	}
	_, err = unix.Pwrite(int(s.file.Fd()), b, blockOf(a.Lock))
	return err
}

// errRefused is what the store says to a section that is over.
const errRefused = unix.ESTALE

func (s store) read(lock string) (b block, err error) {
	var buf [blockSize]byte
	n, err := unix.Pread(int(s.file.Fd()), buf[:], blockOf(lock))
	if err != nil {
		return b, err
	}
	return b, json.Unmarshal(buf[:n], &b)
}

// blockOf is where the block of a lock is.
func blockOf(lock string) int64 {
	for i, l := range locks {
		if l.name == lock {
			return int64(i) * blockSize
		}
	}
	panic("no lock " + lock)
}

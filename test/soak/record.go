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

// blockSize is the distance of the store's blocks; each lock has one.
const blockSize = 4096

// The kinds of record that a section writes to the store, in order.
const (
	recordEnter  = "enter"  // the lock is held since Granted, and was requested at Asked
	recordBeat   = "beat"   // it still works under the lock
	recordWrite  = "write"  // the counter becomes N, one more than was read
	recordMode   = "mode"   // the hold has Mode since Granted; for shared, written before the change is requested
	recordValued = "valued" // bakeryd has acknowledged the value
	recordValue  = "value"  // the lock's value was read: it is that of ValueToken
	recordLeave  = "leave"  // its last record under the lock, before the unlock
	recordWrong  = "wrong"  // the client received a wrong answer: Text
)

// record is a record that a section writes to the store's block of the lock. The store refuses it
// if the section is over.
type record struct {
	Kind    string        `json:"kind"`
	Lock    string        `json:"lock"`
	Section string        `json:"section"` // unique
	Host    int           `json:"host"`
	Mode    layout.Mode   `json:"mode"`
	Token   layout.Ticket `json:"token"`
	At      time.Duration `json:"at"` // just before the write, on CLOCK_BOOTTIME

	Asked   time.Duration `json:"asked,omitzero"`   // in enter and mode
	Granted time.Duration `json:"granted,omitzero"` // likewise: not before the grant, and not after any record under it

	// Deadline is the end of the lease as the holder knows it; 0 for a command under bakeryctl,
	// which is stopped at the deadline but does not know it.
	Deadline time.Duration `json:"deadline,omitzero"`

	N          uint64        `json:"n,omitzero"`
	ValueToken layout.Ticket `json:"value_token,omitzero"`
	Text       string        `json:"text,omitzero"`
}

// String returns the section and the record's kind.
func (a record) String() string {
	return fmt.Sprintf("%s of %s (host %d, %s %q, token %d) at %v", a.Kind, a.Section, a.Host, a.Mode, a.Lock, a.Token, a.At)
}

// block is the result of a read of the store.
type block struct {
	N     uint64        `json:"n"`     // the counter
	Token layout.Ticket `json:"token"` // greatest token of an exclusive section

	Long string        `json:"long,omitempty"` // section that is to work for this time, because a fault is about to hit it
	For  time.Duration `json:"for,omitzero"`
}

// store is a client's handle of the store's file.
type store struct{ file *os.File }

func openStore(path string) (store, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	return store{f}, err
}

// do writes one record. It returns errRefused if the store refuses it.
func (s store) do(a record) error {
	a.At = clock.Boottime.Now()
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if len(b) > blockSize {
		return fmt.Errorf("a record of %d bytes", len(b))
	}
	_, err = unix.Pwrite(int(s.file.Fd()), b, blockOf(a.Lock))
	return err
}

// errRefused is the store's error for a section that is over.
const errRefused = unix.ESTALE

func (s store) read(lock string) (b block, err error) {
	var buf [blockSize]byte
	n, err := unix.Pread(int(s.file.Fd()), buf[:], blockOf(lock))
	if err != nil {
		return b, err
	}
	return b, json.Unmarshal(buf[:n], &b)
}

// blockOf returns the offset of a lock's block.
func blockOf(lock string) int64 {
	for i, l := range locks {
		if l.name == lock {
			return int64(i) * blockSize
		}
	}
	panic("no lock " + lock)
}

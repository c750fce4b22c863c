// Package statefile keeps a state in a small file, which a next process reads: several changes at the same time are one
// write. It never knows the state.
package statefile

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// Writer writes a state file. It is safe for concurrent use.
type Writer struct {
	snapshot func() (path string, text []byte)
	ended    <-chan struct{}
	log      *slog.Logger
	saves    chan chan<- error
}

// New returns a writer, until ended is closed. snapshot returns what the file must have: no file without a text, and
// nothing is done without a path.
func New(snapshot func() (path string, text []byte), ended <-chan struct{}, log *slog.Logger) *Writer {
	w := &Writer{snapshot: snapshot, ended: ended, log: log, saves: make(chan chan<- error)}
	go w.run()
	return w
}

// ErrEnded is returned once the writer has ended.
var ErrEnded = errors.New("bakeryd ends")

// Save returns once the file has what snapshot returned after the call. If it cannot be written, Save returns an error,
// and it is written later.
func (w *Writer) Save() error {
	select {
	case <-w.ended:
		return ErrEnded
	default:
	}
	done := make(chan error, 1)
	select {
	case w.saves <- done:
		return <-done
	case <-w.ended:
		return ErrEnded
	}
}

// again is the pause before the file is written again, after an error.
const again = time.Second

func (w *Writer) run() {
	var retry <-chan time.Time
	for {
		var waiting []chan<- error
		select {
		case first := <-w.saves:
			waiting = append(waiting, first)
		case <-retry:
		case <-w.ended:
			return
		}
		for more := true; more; {
			select {
			case next := <-w.saves:
				waiting = append(waiting, next)
			default:
				more = false
			}
		}
		path, text := w.snapshot()
		err := write(path, text)
		if retry = nil; err != nil {
			retry = time.After(again)
		}
		for _, done := range waiting {
			done <- err
		}
		if err != nil {
			w.log.Error("writing the state of the sanlock socket failed: a restart of bakeryd may lose what its clients have", "err", err)
		}
	}
}

// write replaces the file; without a text it removes it.
func write(path string, text []byte) error {
	switch {
	case path == "":
		return nil
	case text == nil:
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
		return nil
	}
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

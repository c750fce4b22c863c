package events

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/text"
)

const (
	batchPause = 20 * time.Millisecond // collects simultaneous events, so that a grant does not wake a processor
	batchSize  = 256                   // maximum of events in one write
	syncEvery  = time.Second           // maximum age of events that a power failure may lose
	retryPause = time.Second           // after an error of the file
	warnEvery  = time.Minute
)

// keeper writes the events of a log to its file. If the disk is too slow it leaves events out,
// and writes a gap.
type keeper struct {
	log    *Log
	logger *slog.Logger
	wake   chan struct{}
	limit  int64                                   // maxFile, except in tests
	write  func(f *os.File, p []byte) (int, error) // replaced by tests, to simulate slow disks

	// Held during rotation and while files are opened for reading, so that a reader gets each
	// event once.
	opening sync.Mutex

	// Owned by the goroutine.
	file     *file // nil: to be opened
	path     string
	n        uint64 // number of the next event to write
	kept     uint64 // Seq of the last written event
	batch    []Event
	buf      bytes.Buffer
	retryAt  time.Time // zero: no error
	failing  bool
	syncAt   time.Time // zero: all is synced
	warnedAt time.Time
}

// run writes until the log is closed.
func (k *keeper) run() {
	defer close(k.log.finished)
	k.batch = make([]Event, batchSize)
	for {
		var due <-chan time.Time
		if at := k.due(); !at.IsZero() {
			due = time.After(time.Until(at))
		}
		select {
		case <-k.wake:
			select {
			case <-time.After(batchPause):
			case <-k.log.open.Done():
			}
		case <-due:
		case <-k.log.open.Done():
			k.retryAt = time.Time{}
			k.flush()
			if k.file != nil {
				k.end()
			}
			return
		}
		if time.Now().Before(k.retryAt) {
			continue
		}
		k.flush()
		if !k.syncAt.IsZero() && !time.Now().Before(k.syncAt) {
			k.sync()
		}
	}
}

// due returns when to act without a new event.
func (k *keeper) due() time.Time {
	if !k.retryAt.IsZero() {
		return k.retryAt
	}
	return k.syncAt
}

// flush writes all events that were added.
func (k *keeper) flush() {
	if err := k.open(k.log.where()); err != nil {
		k.fail(err)
		return
	}
	for {
		got, next, missed := k.log.take(k.n, k.batch)
		if len(got) == 0 {
			return
		}
		if err := k.append(got, missed); err != nil {
			k.fail(err)
			return
		}
		k.n, k.kept = next, got[len(got)-1].Seq
	}
}

// open opens the file unless it is open.
func (k *keeper) open(path string) error {
	if k.file != nil && path != k.path {
		k.end()
	}
	if k.file != nil {
		return nil
	}
	f, err := openFile(path)
	if err != nil {
		return err
	}
	switch {
	case path != k.path: // the file may be of an earlier run
		k.log.raise(f.last)
	case f.last > k.kept: // a failed write has landed in part
		if n, lost := k.log.after(f.last); !lost {
			k.n = n
		}
	}
	k.file, k.path, k.retryAt = f, path, time.Time{}
	return nil
}

func (k *keeper) append(batch []Event, missed uint64) error {
	if missed > 0 {
		first := &batch[0]
		gap := Event{Seq: first.Seq - 1, At: first.At, UptimeMS: first.UptimeMS, Kind: Gap, Missed: missed,
			Host: first.Host, HostName: first.HostName, Reason: "the disk of the journal was too slow, or failed"}
		batch = slices.Concat([]Event{gap}, batch)
	}
	k.buf.Reset()
	enc := NewEncoder(&k.buf)
	for i := range batch {
		if err := enc.Encode(&batch[i]); err != nil {
			return err
		}
	}
	if k.file.size > 0 && k.file.size+int64(k.buf.Len()) > k.limit {
		if err := k.rotate(); err != nil {
			return err
		}
	}
	n, err := k.write(k.file.f, k.buf.Bytes())
	k.file.size += int64(n)
	if k.syncAt.IsZero() {
		k.syncAt = time.Now().Add(syncEvery)
	}
	if err == nil && k.failing {
		k.failing = false
		k.logger.Info("events are kept again", "path", k.path)
	}
	return err
}

// rotate renames the file, replacing the one rotated before, and creates another.
func (k *keeper) rotate() (err error) {
	k.end()
	k.opening.Lock()
	defer k.opening.Unlock()
	if err = os.Rename(k.path, k.path+aside); err == nil {
		k.file, err = openFile(k.path)
	}
	return err
}

// sync makes written events durable, and detects that another process has removed the file.
func (k *keeper) sync() {
	k.syncAt = time.Time{}
	if k.file == nil {
		return
	}
	if err := k.file.f.Sync(); err != nil {
		k.fail(err)
	} else if !k.file.stillAt(k.path) {
		k.end()
	}
}

// end closes the file. Its error could not be reported.
func (k *keeper) end() {
	_ = k.file.f.Sync()
	k.file.f.Close()
	k.file, k.syncAt = nil, time.Time{}
}

// fail closes the file, to be opened again later.
func (k *keeper) fail(err error) {
	if k.file != nil {
		k.file.f.Close()
		k.file = nil
	}
	k.syncAt, k.retryAt, k.failing = time.Time{}, time.Now().Add(retryPause), true
	if time.Since(k.warnedAt) >= warnEvery {
		k.warnedAt = time.Now()
		k.logger.Warn("keeping the events failed, retrying", "err", fmt.Errorf("keep events in %s: %w", k.log.where(), text.WithoutPath(err)))
	}
}

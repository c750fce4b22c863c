package events

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/retry"
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
	limit  int64                                   // maxFile, except in tests
	write  func(f *os.File, p []byte) (int, error) // replaced by tests, to simulate slow disks

	// Owned by the goroutine.
	file     *file // nil: to be opened
	path     string
	n        uint64 // number of the next event to write
	kept     uint64 // Seq of the last written event
	batch    [batchSize]Event
	lines    []byte
	failing  bool
	due      time.Time // when to sync the file, or to try again to open it; zero: nothing to do
	warnedAt time.Time
}

// run writes until the log is closed.
func (k *keeper) run() {
	defer close(k.log.finished)
	for k.log.open.Err() == nil {
		added := k.log.next()
		if k.file != nil || !time.Now().Before(k.due) {
			k.flush()
		}
		if k.file != nil && !k.due.IsZero() && !time.Now().Before(k.due) {
			k.sync()
		}
		var due <-chan time.Time
		if !k.due.IsZero() {
			due = time.After(time.Until(k.due))
		}
		select {
		case <-added:
			_ = retry.Pause(k.log.open, batchPause) // or until it is closed
		case <-due:
		case <-k.log.open.Done():
		}
	}
	k.flush()
	k.end()
}

// flush writes all events that were added.
func (k *keeper) flush() {
	err := k.open(k.log.where())
	for err == nil {
		batch, n, _ := k.log.after(k.kept, k.batch[:])
		if len(batch) == 0 {
			return
		}
		if err = k.append(batch, n-k.n); err == nil {
			k.n, k.kept = n+uint64(len(batch)), batch[len(batch)-1].Seq
		}
	}
	k.fail(err)
}

// open opens the file unless it is open.
func (k *keeper) open(path string) error {
	if k.file != nil && path == k.path {
		return nil
	}
	k.end()
	f, err := openFile(path)
	if err != nil {
		return err
	}
	switch {
	case path != k.path: // the file may be of an earlier run
		k.kept += k.log.raise(f.last)
	case f.last > k.kept: // a failed write has landed in part, or the file was replaced
		k.kept = f.last
		k.log.goOnAbove(f.last)
		if _, n, gone := k.log.after(f.last, nil); gone <= f.last {
			k.n = n
		}
	}
	k.file, k.path, k.due = f, path, time.Time{}
	return nil
}

func (k *keeper) append(batch []Event, missed uint64) error {
	if missed > 0 {
		first := &batch[0]
		gap := Event{Seq: first.Seq - 1, At: first.At, UptimeMS: first.UptimeMS, Kind: Gap, Missed: missed,
			Host: first.Host, HostName: first.HostName, Reason: "the disk of the journal was too slow, or failed"}
		batch = slices.Concat([]Event{gap}, batch)
	}
	k.lines = k.lines[:0]
	for i := range batch {
		k.lines = batch[i].AppendLine(k.lines)
	}
	if k.file.size > 0 && k.file.size+int64(len(k.lines)) > k.limit {
		if err := k.rotate(); err != nil {
			return err
		}
	}
	n, err := k.write(k.file.f, k.lines)
	k.file.size += int64(n)
	if k.due.IsZero() {
		k.due = time.Now().Add(syncEvery)
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
	if err = os.Rename(k.path, k.path+aside); err == nil {
		k.file, err = openFile(k.path)
	}
	return err
}

// sync makes written events durable, and detects that another process has removed the file.
func (k *keeper) sync() {
	k.due = time.Time{}
	if err := k.file.f.Sync(); err != nil {
		k.fail(err)
	} else if !k.file.stillAt(k.path) {
		k.end()
	}
}

// end closes the file if it is open. Its error could not be reported.
func (k *keeper) end() {
	if k.file != nil {
		_ = k.file.f.Sync()
		k.file.f.Close()
		k.file, k.due = nil, time.Time{}
	}
}

// fail closes the file, to be opened again later.
func (k *keeper) fail(err error) {
	k.end()
	k.due, k.failing = time.Now().Add(retryPause), true
	if time.Since(k.warnedAt) >= warnEvery {
		k.warnedAt = time.Now()
		k.logger.Warn("keeping the events failed, retrying", "err", fmt.Errorf("keep events in %s: %w", k.log.where(), text.WithoutPath(err)))
	}
}

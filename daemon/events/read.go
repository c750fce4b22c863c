package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/text"
)

// ErrClosed is returned by Follow when the log was closed.
var ErrClosed = errors.New("the journal is closed")

// Query selects events. The zero value selects all.
type Query struct {
	Since uint64    // events above this Seq
	Lock  string    // events of this lock, and of hosts, which concern all locks; empty: of all locks
	From  time.Time // events at this time or later; zero: no limit
	Until time.Time // events before this time; zero: no limit
}

func (q *Query) wants(e *Event) bool {
	return (q.Lock == "" || e.Lock == "" || e.Lock == q.Lock) &&
		(q.From.IsZero() || !e.At.Before(q.From)) && (q.Until.IsZero() || e.At.Before(q.Until))
}

// reader passes events to a function, in order and in batches. A batch is valid until the next
// one.
type reader struct {
	q    Query
	fn   func([]Event) error
	last uint64 // Seq of the last event seen
	out  []Event
	take []Event
}

func newReader(q Query, fn func([]Event) error) *reader {
	return &reader{q: q, fn: fn, last: q.Since, take: make([]Event, batchSize)}
}

func (r *reader) see(e Event) error {
	r.last = max(r.last, e.Seq)
	if !r.q.wants(&e) {
		return nil
	}
	if r.out = append(r.out, e); len(r.out) < batchSize {
		return nil
	}
	return r.flush()
}

func (r *reader) flush() error {
	if len(r.out) == 0 {
		return nil
	}
	err := r.fn(r.out)
	r.out = r.out[:0]
	return err
}

// Read calls fn with the selected events, in order. It returns the first error of fn, or of the
// files, whose events are then missing.
func (l *Log) Read(q Query, fn func([]Event) error) error {
	if l == nil {
		return nil
	}
	return l.read(newReader(q, fn), true)
}

// read passes on the events after r.last. With files, or if memory has lost some of them, it
// reads the files first, then memory.
func (l *Log) read(r *reader, files bool) error {
	for {
		n, lost := l.after(r.last)
		for files || lost {
			before := r.last
			if path := l.where(); path != "" {
				if err := r.readFiles(path, &l.keeper.opening); err != nil {
					return err
				}
			}
			files = false
			if n, lost = l.after(r.last); lost && r.last == before {
				if err := r.see(Event{Seq: r.last, At: time.Now().UTC(), Kind: Gap, Reason: "events that were in no file are lost"}); err != nil {
					return err
				}
				break
			}
		}
		for {
			got, next, missed := l.take(n, r.take)
			if missed > 0 {
				break // this reader was too slow: the file has them
			}
			if len(got) == 0 {
				return r.flush()
			}
			for i := range got {
				if err := r.see(got[i]); err != nil {
					return err
				}
			}
			n = next
		}
	}
}

// readFiles reads the rotated file of a journal, then the one in use. opening is held while they are
// opened.
func (r *reader) readFiles(path string, opening sync.Locker) error {
	files, err := openFiles(path, opening)
	for _, f := range files {
		defer f.Close()
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		for e, err := range scan(f, r.last) {
			if err != nil {
				return fmt.Errorf("read the journal %s: %w", f.Name(), text.WithoutPath(err))
			}
			if err := r.see(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// openFiles opens those files of a journal that exist, in order.
func openFiles(path string, opening sync.Locker) (files []*os.File, err error) {
	opening.Lock()
	defer opening.Unlock()
	for _, p := range []string{path + aside, path} {
		f, err := openToRead(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return files, fmt.Errorf("read the journal %s: %w", p, text.WithoutPath(err))
		default:
			files = append(files, f)
		}
	}
	return files, nil
}

// ErrNotJournal is returned when a file is not a log's.
var ErrNotJournal = errors.New("not a journal of events")

// ReadFile calls fn with the selected events of a log's file, and of the file rotated before it.
// It returns ErrNotJournal, an error of the file, or the first of fn.
func ReadFile(path string, q Query, fn func([]Event) error) error {
	if err := isJournal(path); err != nil {
		return fmt.Errorf("read the journal %s: %w", path, text.WithoutPath(err))
	}
	r := newReader(q, fn)
	if err := r.readFiles(path, &sync.Mutex{}); err != nil {
		return err
	}
	return r.flush()
}

// Follow calls fn with the selected events of all that are kept, then with new ones, until ctx is
// done or the log closed. A slow reader blocks nothing: events that memory has lost are read from
// the file. It returns the first error of fn, one of the files, ErrClosed, or the cause of ctx's
// end.
func (l *Log) Follow(ctx context.Context, q Query, fn func([]Event) error) error {
	if l == nil {
		return ErrClosed
	}
	woken := make(chan struct{}, 1)
	defer l.subscribe(woken)()
	r := newReader(q, fn)
	for files := true; ; files = false {
		closed := l.open.Err() != nil // then this batch is the last
		if err := l.read(r, files); err != nil {
			return err
		}
		if closed {
			return ErrClosed
		}
		select {
		case <-woken:
		case <-l.open.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// isJournal returns an error if the beginning of a file is not that of a journal, which may be
// empty or damaged.
func isJournal(path string) error {
	f, err := openToRead(path)
	if err != nil {
		return err
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, 4*maxLine))
	if err != nil || len(head) == 0 {
		return err
	}
	for line := range bytes.Lines(head) {
		if _, ok := seqOf(bytes.TrimSuffix(line, []byte("\n"))); ok {
			return nil
		}
	}
	return ErrNotJournal
}

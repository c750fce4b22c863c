package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// ErrClosed is returned when a log that is followed was closed.
var ErrClosed = errors.New("the journal is closed")

// Query says which events are wanted. The zero value is all.
type Query struct {
	Since uint64    // those above this Seq
	Lock  string    // those of this lock, and those of hosts, which concern them all; empty: of all locks
	From  time.Time // not before; zero: whenever
	Until time.Time // before; zero: whenever
}

func (q *Query) wants(e *Event) bool {
	return (q.Lock == "" || e.Lock == "" || e.Lock == q.Lock) &&
		(q.From.IsZero() || !e.At.Before(q.From)) && (q.Until.IsZero() || e.At.Before(q.Until))
}

// reader hands events over, in order, some at a time. What it hands over is
// good until the next time.
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

// Read hands over what is wanted of all that is kept, in order. It returns the
// first error of fn, or of the files, whose events are then missing.
func (l *Log) Read(q Query, fn func([]Event) error) error {
	if l == nil {
		return nil
	}
	return l.read(newReader(q, fn), true)
}

// read hands over what there is after r.last: that of the files, if it is told
// to or they have what memory no longer has, then that of memory.
func (l *Log) read(r *reader, files bool) error {
	for {
		n, lost := l.after(r.last)
		for files || lost {
			before := r.last
			if err := l.readFiles(r); err != nil {
				return err
			}
			files = false
			if n, lost = l.after(r.last); lost && r.last == before {
				if err := r.see(Event{Seq: r.last, At: time.Now().UTC(), Kind: Gap, Reason: "events that are in no file are forgotten"}); err != nil {
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

// readFiles reads the file that was put aside, then the one in use.
func (l *Log) readFiles(r *reader) error {
	path := l.where()
	if path == "" {
		return nil
	}
	l.keeper.opening.Lock()
	files, err := openFiles(path)
	l.keeper.opening.Unlock()
	if err != nil {
		return err
	}
	return r.scanFiles(files)
}

// openFiles opens what there is of a journal, in order.
func openFiles(path string) (files []*os.File, err error) {
	for _, p := range []string{path + aside, path} {
		f, err := openToRead(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("read the journal %s: %w", p, bare(err))
		}
		files = append(files, f)
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func (r *reader) scanFiles(files []*os.File) error {
	defer closeAll(files)
	for _, f := range files {
		var failed error // of fn, as it is
		err := scan(f, r.last, func(e Event) error {
			failed = r.see(e)
			return failed
		})
		if failed != nil {
			return failed
		}
		if err != nil {
			return fmt.Errorf("read the journal %s: %w", f.Name(), bare(err))
		}
	}
	return nil
}

// bare takes the path off an error that is about to get it.
func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) && err == error(pe) {
		return pe.Err
	}
	return err
}

// ErrNotJournal is returned when a file is to be read that no log was kept in.
var ErrNotJournal = errors.New("not a journal of events")

// ReadFile hands over what is wanted of a file that a log was kept in, and of
// the one that was put aside before it. It returns ErrNotJournal, an error of
// the file, or the first of fn.
func ReadFile(path string, q Query, fn func([]Event) error) error {
	if err := isJournal(path); err != nil {
		return fmt.Errorf("read the journal %s: %w", path, bare(err))
	}
	files, err := openFiles(path)
	if err != nil {
		return err
	}
	r := newReader(q, fn)
	if err := r.scanFiles(files); err != nil {
		return err
	}
	return r.flush()
}

// Follow hands over what is wanted of all that is kept, then of what comes,
// until ctx is done or the log closed. Who is slow holds nobody up: what is no
// longer in memory by then is read from the file. It returns the first error
// of fn, one of the files, ErrClosed, or the cause of ctx's end.
func (l *Log) Follow(ctx context.Context, q Query, fn func([]Event) error) error {
	if l == nil {
		return ErrClosed
	}
	woken := make(chan struct{}, 1)
	defer l.subscribe(woken)()
	r := newReader(q, fn)
	for files := true; ; files = false {
		closed := l.isClosed() // then this is the last that there is
		if err := l.read(r, files); err != nil {
			return err
		}
		if closed {
			return ErrClosed
		}
		select {
		case <-woken:
		case <-l.closing:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (l *Log) isClosed() bool {
	select {
	case <-l.closing:
		return true
	default:
		return false
	}
}

// isJournal tells a journal, which may be empty or damaged, from another file
// by its beginning.
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

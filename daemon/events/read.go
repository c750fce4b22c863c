package events

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
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

	// Turn is called before events are read of files, and again after at most batchSize of them. It may
	// block, to limit the load, and its error ends the read. end is called after each turn, and before the
	// function of the caller, which may block. nil: files are read without a limit.
	Turn func() (end func(), err error)
}

func (q *Query) wants(e *Event) bool {
	return (q.Lock == "" || e.Lock == "" || e.Lock == q.Lock) &&
		(q.From.IsZero() || !e.At.Before(q.From)) && (q.Until.IsZero() || e.At.Before(q.Until))
}

// reader passes the events that it selects to fn, in order and in batches. A batch is valid until
// the next one.
type reader struct {
	Query // Since is the Seq of the last event seen
	fn    func([]Event) error
	batch []Event
	got   []Event // room for the events of memory
	end   func()  // of the turn; nil if there is none
}

// resume begins a turn, unless there is one.
func (r *reader) resume() (err error) {
	if r.Turn != nil && r.end == nil {
		r.end, err = r.Turn()
	}
	return err
}

// pause ends the turn, if there is one.
func (r *reader) pause() {
	if r.end != nil {
		r.end()
		r.end = nil
	}
}

func (r *reader) see(e Event) error {
	r.Since = max(r.Since, e.Seq)
	if r.wants(&e) {
		r.batch = append(r.batch, e)
	}
	if len(r.batch) < batchSize {
		return nil
	}
	return r.flush()
}

func (r *reader) flush() error {
	if len(r.batch) == 0 {
		return nil
	}
	r.pause()
	err := r.fn(r.batch)
	r.batch = r.batch[:0]
	return err
}

// Read calls fn with the selected events, in order. It returns the first error of fn, or of the
// files, whose events are then missing.
func (l *Log) Read(q Query, fn func([]Event) error) error {
	if l == nil {
		return nil
	}
	return l.read(&reader{Query: q, fn: fn}, true)
}

// read passes on the events after r.Since. With files, or if memory has lost some of them, it
// reads the files first, then memory.
func (l *Log) read(r *reader, files bool) error {
	if r.got == nil {
		r.got = make([]Event, batchSize)
	}
	for {
		got, _, gone := l.after(r.Since, r.got)
		if lost := gone > r.Since; files || lost {
			before := r.Since
			if path := l.where(); path != "" {
				if err := r.readFiles(path); err != nil {
					return err
				}
			}
			if files = false; lost && r.Since == before {
				if err := r.see(Event{Seq: before, At: time.Now().UTC(), Kind: Gap, Reason: "events that were in no file are lost"}); err != nil {
					return err
				}
				r.Since = gone
			}
			continue
		}
		if len(got) == 0 {
			return r.flush()
		}
		for _, e := range got {
			if err := r.see(e); err != nil {
				return err
			}
		}
	}
}

// readFiles reads the rotated file of a journal, then the one in use.
func (r *reader) readFiles(path string) error {
	defer r.pause()
	if err := r.resume(); err != nil {
		return err
	}
	files, err := openFiles(path)
	for _, f := range files {
		defer f.Close()
	}
	if err != nil {
		return err
	}
	read := 0
	for _, f := range files {
		for e, err := range scan(f, r.Since) {
			if err != nil {
				return fmt.Errorf("read the journal %s: %w", f.Name(), text.WithoutPath(err))
			}
			if err := r.see(e); err != nil {
				return err
			}
			if read++; read%batchSize == 0 {
				r.pause()
			}
			if err := r.resume(); err != nil {
				return err
			}
		}
	}
	return nil
}

// openFiles opens those files of a journal that exist, in order. It opens them again if the journal was
// rotated meanwhile: else the file that was in use until then would be missing.
func openFiles(path string) (files []*os.File, err error) {
	for {
		var put os.FileInfo // the file that was put aside; nil if there is none
		for _, p := range []string{path + aside, path} {
			f, err := openToRead(p)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				continue
			case err == nil:
				files = append(files, f)
				if p != path {
					put, err = f.Stat()
				}
			}
			if err != nil {
				return files, fmt.Errorf("read the journal %s: %w", p, text.WithoutPath(err))
			}
		}
		now, _ := os.Stat(path + aside)
		if put == nil && now == nil || os.SameFile(put, now) {
			return files, nil
		}
		for _, f := range files {
			f.Close()
		}
		files = nil
	}
}

// ErrNotJournal is returned when a file is not a log's.
var ErrNotJournal = errors.New("not a journal of events")

// ReadFile calls fn with the selected events of a log's file, and of the file rotated before it.
// It returns ErrNotJournal, an error of the file, or the first of fn.
func ReadFile(path string, q Query, fn func([]Event) error) error {
	f, err := openToRead(path)
	if err == nil {
		var head []byte
		head, err = io.ReadAll(io.LimitReader(f, maxTail))
		f.Close()
		if err == nil && len(head) > 0 && lastSeq(append(head, '\n')) == 0 { // it may be damaged, but not all of it
			err = ErrNotJournal
		}
	}
	if err != nil {
		return fmt.Errorf("read the journal %s: %w", path, text.WithoutPath(err))
	}
	r := reader{Query: q, fn: fn}
	if err := r.readFiles(path); err != nil {
		return err
	}
	return r.flush()
}

// followPause is the minimum interval of the batches of one Follow. Otherwise each event would wake
// every follower, and a lock that passes quickly between clients would wait for them.
const followPause = 20 * time.Millisecond

// Follow calls fn with the selected events of all that are kept, then with new ones, until ctx is
// done or the log closed. A slow reader blocks nothing: events that memory has lost are read from
// the file. It returns the first error of fn, one of the files, ErrClosed, or the cause of ctx's
// end.
func (l *Log) Follow(ctx context.Context, q Query, fn func([]Event) error) error {
	if l == nil {
		return ErrClosed
	}
	r := reader{Query: q, fn: fn}
	for files := true; ; files = false {
		added, closed, pause := l.next(), l.open.Err() != nil, make(chan struct{}) // closed: this is the last round
		time.AfterFunc(followPause, func() { close(pause) })
		if err := l.read(&r, files); err != nil {
			return err
		}
		if closed {
			return ErrClosed
		}
		for _, next := range []<-chan struct{}{added, pause} {
			select {
			case <-next:
			case <-l.open.Done():
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

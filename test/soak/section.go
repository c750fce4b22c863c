package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/layout"
)

// section is a client's work under a lock.
type section struct {
	store      store
	sectionLog *sectionLog
	random     *rand.Rand
	lock       lock
	name       string
	host       int
	mode       layout.Mode
	token      layout.Ticket
	asked      time.Duration // request for the lock
	since      time.Duration // grant
	lasts      time.Duration // time that it is to work

	hold   *client.Hold   // nil for a command under bakeryctl
	client *client.Client // likewise
	piece  entry          // next entry of the log
	n      uint64         // counter, as last read
}

// errStopped is returned when the holder must stop before its work is done.
var errStopped = errors.New("told to stop")

// How a section ends.
const (
	endWell    = "well"
	endStopped = "stopped" // its lease was about to end
	endRefused = "refused" // by the store
	endFailed  = "failed"
)

// run works until the work is done or ctx ends. Nothing is done under the lock after it returns.
func (s *section) run(ctx context.Context) string {
	err := s.work(ctx)
	if err == nil || errors.Is(err, errStopped) {
		if e := s.leave(); e != nil {
			err = e
		}
	}
	how := endWell
	switch {
	case errors.Is(err, errStopped):
		how = endStopped
	case errors.Is(err, errRefused):
		how = endRefused
		_ = s.record(record{Kind: recordBeat}) // begun now: if the client still runs, the judge sees it
	case err != nil:
		how = endFailed
	}
	s.finish(how)
	return how
}

func (s *section) work(ctx context.Context) error {
	s.begin(s.asked, s.since)
	if err := s.record(record{Kind: recordEnter, Asked: s.asked, Granted: s.since}); err != nil {
		return err
	}
	if err := s.read(); err != nil {
		return err
	}
	if s.lock.value && s.hold != nil {
		if err := s.values(ctx); err != nil {
			return err
		}
	}
	if err := s.stay(ctx, s.lasts); err != nil {
		return err
	}
	if err := s.count(ctx); err != nil {
		return err
	}
	if s.lock.change && s.hold != nil && s.random.IntN(2) == 0 {
		return s.changes(ctx)
	}
	return nil
}

// record writes a record with the section's common fields.
func (s *section) record(a record) error {
	a.Lock, a.Section, a.Host, a.Mode, a.Token = s.lock.name, s.name, s.host, s.mode, s.token
	if s.hold != nil {
		a.Deadline = clock.Boottime.Now() + time.Until(s.hold.Deadline())
	}
	return s.store.do(a)
}

func (s *section) read() error {
	b, err := s.store.read(s.lock.name)
	if err != nil {
		return err
	}
	s.n, s.piece.Entered = b.N, true
	if b.Long == s.name {
		s.lasts = max(s.lasts, b.For)
	}
	return s.sectionLog.write(s.piece)
}

// pulse is the interval of a section's beats.
const pulse = 5 * time.Millisecond

// stay works for a drawn time.
func (s *section) stay(ctx context.Context, lasts time.Duration) error {
	every := max(pulse, lasts/50)
	for end := clock.Boottime.Now() + lasts; ; {
		left := end - clock.Boottime.Now()
		select {
		case <-ctx.Done():
			return errStopped
		case <-time.After(min(max(left, 0), every)):
		}
		if err := s.beat(recordBeat); err != nil {
			return err
		}
		if left <= every {
			return nil
		}
	}
}

// beat records that the section is inside; a shared one also records the counter.
func (s *section) beat(kind string) error {
	a := record{Kind: kind}
	if s.mode == layout.Shared {
		b, err := s.store.read(s.lock.name)
		if err != nil {
			return err
		}
		a.N = b.N
	}
	return s.record(a)
}

// count increments the counter, if the section is exclusive and has time left.
func (s *section) count(ctx context.Context) error {
	if s.mode == layout.Shared || s.lock.permits > 1 {
		return nil
	}
	if ctx.Err() != nil {
		return errStopped
	}
	return s.record(record{Kind: recordWrite, N: s.n + 1})
}

func (s *section) leave() error { return s.beat(recordLeave) }

// changes shares the lock, or makes the hold exclusive, for some time.
func (s *section) changes(ctx context.Context) error {
	for range 1 + s.random.IntN(3) {
		if s.mode == layout.Exclusive {
			s.finish(endWell)
			s.mode = layout.Shared
			s.begin(s.piece.End, clock.Boottime.Now()) // the request may already let others in
			if err := s.record(record{Kind: recordMode}); err != nil {
				return err
			}
			if err := s.setMode(ctx, layout.Shared); err != nil {
				return err
			}
		} else {
			asked := clock.Boottime.Now()
			err := s.setMode(ctx, layout.Exclusive)
			if errors.Is(err, client.ErrUpgrade) {
				continue
			}
			if err != nil {
				return err
			}
			s.finish(endWell)
			s.mode = layout.Exclusive
			s.begin(asked, clock.Boottime.Now())
			if err := s.record(record{Kind: recordMode, Asked: asked, Granted: s.piece.Since}); err != nil {
				return err
			}
		}
		if err := s.read(); err != nil {
			return err
		}
		if err := s.stay(ctx, s.lasts/4); err != nil {
			return err
		}
		if err := s.count(ctx); err != nil {
			return err
		}
	}
	return nil
}

// setMode returns an error that ends the section if the hold ends or bakeryd does not come back.
func (s *section) setMode(ctx context.Context, mode layout.Mode) error {
	err := s.hold.SetMode(ctx, client.Mode(mode))
	if err == nil || errors.Is(err, client.ErrUpgrade) {
		return err
	}
	if wrong := s.complain(err); wrong != nil {
		return wrong
	}
	return errStopped
}

// complain records an answer that must never occur.
func (s *section) complain(err error) error {
	var refusal *client.Error
	switch {
	case errors.Is(err, client.ErrProtocol):
	case errors.As(err, &refusal) && (refusal.Code == api.CodeInvalid || refusal.Code == api.CodeForbidden):
	default:
		return nil
	}
	_ = s.record(record{Kind: recordWrong, Text: err.Error()})
	return err
}

// values reads the lock's value, and sets it in an exclusive section.
func (s *section) values(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	v, err := s.client.Value(within, s.lock.name)
	if err == nil {
		token := layout.Ticket(v.Token)
		if want := valueOf(s.lock.name, token); v.Token != 0 && string(v.Value) != want {
			_ = s.record(record{Kind: recordWrong, Text: fmt.Sprintf("the value set with token %d is %q", v.Token, v.Value)})
		}
		if err := s.record(record{Kind: recordValue, ValueToken: token}); err != nil {
			return err
		}
	} else if wrong := s.complain(err); wrong != nil {
		return wrong
	}
	if s.mode == layout.Shared {
		return nil
	}
	if err := s.hold.SetValue(within, []byte(valueOf(s.lock.name, s.token))); err != nil {
		return s.complain(err)
	}
	return s.record(record{Kind: recordValued})
}

func valueOf(lock string, token layout.Ticket) string { return fmt.Sprintf("%s %d", lock, token) }

// begin and finish log the section's part with one mode.
func (s *section) begin(asked, since time.Duration) {
	s.piece = entry{Section: s.name, Lock: s.lock.name, Host: s.host, Mode: s.mode, Token: s.token, Asked: asked, Since: since}
	_ = s.sectionLog.write(s.piece) // if the log cannot be written, the next write fails, too
}

func (s *section) finish(how string) {
	s.piece.End, s.piece.How = clock.Boottime.Now(), how
	if s.hold != nil {
		s.piece.Deadline = clock.Boottime.Now() + time.Until(s.hold.Deadline())
	}
	_ = s.sectionLog.write(s.piece)
}

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

// section is what a client does under a lock.
type section struct {
	store  store
	diary  *diary
	random *rand.Rand
	lock   lock
	name   string
	host   int
	mode   layout.Mode
	token  layout.Ticket
	asked  time.Duration // for the lock
	since  time.Duration // granted
	lasts  time.Duration // for how long it is to work

	hold   *client.Hold   // nil: it is a command under bakeryctl
	client *client.Client // nil: likewise
	piece  entry          // what is written down next
	n      uint64         // the counter, as read last
}

// errStopped is returned when the holder is to stop before its work is done.
var errStopped = errors.New("told to stop")

// How a section ends.
const (
	endWell    = "well"
	endStopped = "stopped" // its lease was about to be lost
	endRefused = "refused" // by the store
	endFailed  = "failed"
)

// run does the work until it is done or ctx says that it is to stop. Nothing is done under the lock when it returns.
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
		_ = s.act(act{Kind: actBeat}) // what was begun in time and came late is not begun again
	case err != nil:
		how = endFailed
	}
	s.finish(how)
	return how
}

func (s *section) work(ctx context.Context) error {
	s.begin(s.asked, s.since)
	if err := s.act(act{Kind: actEnter, Asked: s.asked, Granted: s.since}); err != nil {
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

// act tells the store, with what is the same for all of this section.
func (s *section) act(a act) error {
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
	return s.diary.write(s.piece)
}

// pulse is how often a section says that it is inside.
const pulse = 5 * time.Millisecond

// stay is inside for a while.
func (s *section) stay(ctx context.Context, lasts time.Duration) error {
	every := max(pulse, lasts/50)
	for end := clock.Boottime.Now() + lasts; ; {
		left := end - clock.Boottime.Now()
		select {
		case <-ctx.Done():
			return errStopped
		case <-time.After(min(max(left, 0), every)):
		}
		if err := s.beat(actBeat); err != nil {
			return err
		}
		if left <= every {
			return nil
		}
	}
}

// beat says that the section is inside; who shares the lock also what the counter is.
func (s *section) beat(kind string) error {
	a := act{Kind: kind}
	if s.mode == layout.Shared {
		b, err := s.store.read(s.lock.name)
		if err != nil {
			return err
		}
		a.N = b.N
	}
	return s.act(a)
}

// count has the counter be one more, if nobody else is inside and there is time left.
func (s *section) count(ctx context.Context) error {
	if s.mode == layout.Shared || s.lock.permits > 1 {
		return nil
	}
	if ctx.Err() != nil {
		return errStopped
	}
	return s.act(act{Kind: actWrite, N: s.n + 1})
}

func (s *section) leave() error { return s.beat(actLeave) }

// changes shares the lock, or has it alone, for a while.
func (s *section) changes(ctx context.Context) error {
	for range 1 + s.random.IntN(3) {
		if s.mode == layout.Exclusive {
			s.finish(endWell)
			s.mode = layout.Shared
			s.begin(s.piece.End, clock.Boottime.Now()) // others may be let in as soon as it is asked for
			if err := s.act(act{Kind: actMode}); err != nil {
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
			if err := s.act(act{Kind: actMode, Asked: asked, Granted: s.piece.Since}); err != nil {
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

// setMode takes any end of the hold, and a bakeryd that does not come back, for a reason to stop.
func (s *section) setMode(ctx context.Context, mode layout.Mode) error {
	err := s.hold.SetMode(ctx, mode)
	if err == nil || errors.Is(err, client.ErrUpgrade) {
		return err
	}
	if wrong := s.complain(err); wrong != nil {
		return wrong
	}
	return errStopped
}

// complain has the store know of an answer that should never be given.
func (s *section) complain(err error) error {
	var refusal *client.Error
	switch {
	case errors.Is(err, client.ErrProtocol):
	case errors.As(err, &refusal) && (refusal.Code == api.CodeInvalid || refusal.Code == api.CodeForbidden):
	default:
		return nil
	}
	_ = s.act(act{Kind: actWrong, Text: err.Error()})
	return err
}

// values reads the value of the lock, and sets it if the section is alone.
func (s *section) values(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	v, err := s.client.Value(within, s.lock.name)
	if err == nil {
		if want := valueOf(s.lock.name, v.Token); v.Token != 0 && string(v.Value) != want {
			_ = s.act(act{Kind: actWrong, Text: fmt.Sprintf("the value set with token %d is %q", v.Token, v.Value)})
		}
		if err := s.act(act{Kind: actValue, ValueToken: v.Token}); err != nil {
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
	return s.act(act{Kind: actValued})
}

func valueOf(lock string, token layout.Ticket) string { return fmt.Sprintf("%s %d", lock, token) }

// begin and finish write down a part of the section that has one mode.
func (s *section) begin(asked, since time.Duration) {
	s.piece = entry{Section: s.name, Lock: s.lock.name, Host: s.host, Mode: s.mode, Token: s.token, Asked: asked, Since: since}
	_ = s.diary.write(s.piece) // a diary that cannot be written has the next one fail as well
}

func (s *section) finish(how string) {
	s.piece.End, s.piece.How = clock.Boottime.Now(), how
	if s.hold != nil {
		s.piece.Deadline = clock.Boottime.Now() + time.Until(s.hold.Deadline())
	}
	_ = s.diary.write(s.piece)
}

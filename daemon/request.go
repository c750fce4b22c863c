package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/layout"
)

// Requests: somebody wants a lock that others hold, and tells them so by the
// disk. The host that is asked to writes a request into its own slot of the
// lock, where the hosts that hold it look now and then, as long as one of
// their clients wants to know. Nobody has to do anything about it.
//
// A request names the highest ticket of the holders, and is for every hold by
// that or a lower one: so it means nothing to those that come later, and stays
// where it is until the next takes its place.

// Requested tells a holder that its lock is wanted.
type Requested struct {
	Host     int    // where it is wanted
	HostName string // empty if it is not known
	Message  string // at most layout.MaxRequest bytes of text without control characters; may be empty
}

// Asked is a holder of a lock that was asked for it.
type Asked struct {
	Host     int           `json:"host"`
	HostName string        `json:"host_name"`
	Token    layout.Ticket `json:"token"` // of a client of this host; of others the ticket that their tokens are of
}

// maxUnread is how many requests are kept for a client that has yet to read them.
const maxUnread = 4

// unsettledFor is how long a slot is read again that may be about to show a
// hold: it does when the hold has lasted a while.
const unsettledFor = 10 * settleAfter

// lookForRequests is how often a holder's host looks for them.
func lookForRequests(lease time.Duration) time.Duration { return min(time.Second, lease/6) }

// Request asks those who hold a lock for it. The message is for them: at most
// layout.MaxRequest bytes of UTF-8 without control characters. It returns whom
// it has asked when that is durable: one of another host hears of it within a
// second or a sixth of the lease, if it wants to know.
//
// It returns ErrInvalid, ErrNoLock, ErrFree, ErrUnavailable, ErrDamaged, an
// error of the device, or the cause of ctx's end.
func (d *Daemon) Request(ctx context.Context, name, message string) ([]Asked, error) {
	if err := errors.Join(layout.ValidateLockName(name), layout.ValidateRequest(message)); err != nil {
		return nil, fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	return patiently(ctx, d, func() ([]Asked, error) { return d.request(ctx, name, message) })
}

func (d *Daemon) request(ctx context.Context, name, message string) ([]Asked, error) {
	for {
		e, err := d.lookupNow(ctx, name)
		if err != nil {
			return nil, err
		}
		asked, err := d.holding(ctx, e)
		if err != nil {
			return nil, err
		}
		if len(asked) == 0 {
			return nil, fmt.Errorf("%w: %q", api.ErrFree, name)
		}
		lk, err := d.attach(e)
		if err == nil {
			err = lk.ask(asked, message)
		}
		if err == nil {
			return asked, nil
		}
		if !errors.Is(err, errSuperseded) {
			return nil, err
		}
		d.dir.forget(e)
		if err := retry.Pause(ctx, d.retry()); err != nil {
			return nil, err
		}
	}
}

// lastMoment is before the last time that a request can have: one of then is no host's.
var lastMoment = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// ask writes a request into the own slot, whatever that shows.
func (lk *lock) ask(asked []Asked, message string) error {
	var ticket layout.Ticket
	for _, a := range asked {
		ticket = max(ticket, layout.MakeTicket(a.Token.Number(), a.Token.Host()))
	}
	err := lk.do(func() error {
		err := lk.publish(func(own *layout.Slot) {
			at := time.Now().UTC().Truncate(time.Microsecond)
			if before := own.Request.At; !at.After(before) && before.Before(lastMoment) { // by its time it is told from the one before
				at = before.Add(time.Microsecond)
			}
			own.Request = layout.Request{Ticket: ticket, At: at, Message: message}
		})
		lk.lookout.next = time.Now() // clients of this host hear of it at once
		return err
	})
	if err == nil {
		lk.d.note(events.Event{Kind: events.Wanted, Lock: lk.entry.Name, Token: ticket, ByHost: lk.d.mem.id(), ByHostName: lk.d.mem.ids.Name, Reason: message})
		lk.d.log.Info("asked for a lock", "lock", lk.entry.Name, "token", ticket, "holders", len(asked), "message", message)
	}
	return err
}

// holding returns who holds a lock: other hosts by what their slots show, the
// clients of this one.
func (d *Daemon) holding(ctx context.Context, e layout.Entry) ([]Asked, error) {
	for give := time.Now().Add(unsettledFor); ; {
		asked, unsettled, err := d.holdingNow(e)
		if err != nil || !unsettled || time.Now().After(give) {
			return asked, err
		}
		if err := retry.Pause(ctx, settleAfter/2); err != nil {
			return nil, err
		}
	}
}

// holdingNow judges one read of the slots. It is unsettled while somebody may
// be inside who does not show it yet: by the fast path as choosing, by a turn
// that has just come as waiting. A slot that is being written cannot be read.
func (d *Daemon) holdingNow(e layout.Entry) (asked []Asked, unsettled bool, err error) {
	slots, bad, err := d.readSlots(d.dev, e.Lock)
	if err != nil {
		return nil, false, err
	}
	current, _, err := d.mem.readHosts() // after the slots, of which it tells those that are void
	if err != nil {
		return nil, false, err
	}
	hosts, _ := d.mem.known()
	choosing, waiting, unreadable := false, false, false
	for i, s := range slots {
		unreadable = unreadable || bad[i] != nil
		h := current[i]
		void := h.Readable && (h.Gone || h.Incarnation != s.Incarnation)
		if bad[i] != nil {
			d.mem.heldUp(layout.Complaint{Host: i + 1, Lock: e.Lock}, false)
		}
		switch {
		case bad[i] != nil || s.Blank() || s.Host == d.mem.id() || s.Creation != e.Creation || void:
		case s.Phase == layout.Held:
			asked = append(asked, Asked{Host: s.Host, HostName: hosts[s.Host-1].Name, Token: s.Ticket})
		case s.Phase == layout.Choosing:
			choosing = true
		case s.Phase == layout.Waiting:
			waiting = true
		}
	}
	d.mu.Lock()
	lk := d.locks[e.Lock]
	d.mu.Unlock()
	if lk != nil && lk.entry == e {
		for _, h := range lk.inside() {
			asked = append(asked, Asked{Host: d.mem.id(), HostName: d.mem.ids.Name, Token: h.token})
		}
	}
	return asked, unreadable || choosing || waiting && len(asked) == 0, nil
}

// lookout looks for requests during one hold of the lock on the disk.
type lookout struct {
	next  time.Time
	heard map[int]layout.Request // by host: the last one that clients were told of
}

// nextLook is when the slots are to be looked at for requests: never, if
// nobody wants to know.
func (lk *lock) nextLook() (due <-chan time.Time, stop func()) {
	if !lk.listening() {
		return nil, func() {}
	}
	t := time.NewTimer(time.Until(lk.lookout.next))
	return t.C, func() { t.Stop() }
}

// look tells the clients inside of the requests that their ticket has not
// heard of. A host that is dead by now has asked all the same. Whoever is let
// in afterwards by the same ticket is not told again what its predecessor was.
func (lk *lock) look() {
	lk.lookout.next = time.Now().Add(lookForRequests(lk.d.sb.Lease))
	slots, bad, err := lk.d.readSlots(lk.dev, lk.entry.Lock)
	if err != nil {
		if lk.warn.Allow() {
			lk.d.log.Warn("looking for requests failed, retrying", "lock", lk.entry.Name, "err", err)
		}
		return
	}
	hosts, _ := lk.d.mem.known()
	for i, s := range slots {
		r := s.Request
		if bad[i] != nil || r.Ticket == 0 || r.Ticket < lk.m.Token() || s.Creation < lk.entry.Creation || lk.lookout.heard[s.Host] == r {
			continue
		}
		told := Requested{Host: s.Host, Message: r.Message}
		if h := hosts[s.Host-1]; h.Incarnation == s.Incarnation {
			told.HostName = h.Name
		}
		if lk.requested(told) {
			if lk.lookout.heard == nil {
				lk.lookout.heard = map[int]layout.Request{}
			}
			lk.lookout.heard[s.Host] = r
			if s.Host != lk.d.mem.id() { // else it was noted as it was asked
				lk.d.note(events.Event{Kind: events.Wanted, Lock: lk.entry.Name, Token: lk.m.Token(),
					ByHost: told.Host, ByHostName: told.HostName, Reason: told.Message})
			}
			lk.d.log.Info("lock wanted, its holder is told", "lock", lk.entry.Name, "token", lk.m.Token(),
				"by_host_id", told.Host, "by_host_name", told.HostName, "message", told.Message)
		}
	}
}

// listening tells whether a client inside wants to know of requests.
func (lk *lock) listening() bool {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	return slices.ContainsFunc(lk.holds, func(h *Hold) bool { return h.req.listening() })
}

func (r *Request) listening() bool {
	return r.OnRequest != nil && (r.session == nil || r.session.listening())
}

// requested tells every client inside that wants to know; false if none does
// any more.
func (lk *lock) requested(r Requested) (told bool) {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	for _, h := range lk.holds {
		if h.req.listening() {
			h.req.OnRequest(r)
			told = true
		}
	}
	return told
}

// listening tells whether the client wants to know of requests, and is there.
func (s *session) listening() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listens && s.follower != nil
}

// listen notes whether a client that has come back wants to know of requests.
// The journal does not keep that.
func (s *session) listen(want bool) {
	s.mu.Lock()
	s.listens = want
	s.mu.Unlock()
	if s.decided() && s.hold != nil {
		s.hold.lk.signal() // the driver is to look
	}
}

// requested keeps a request for the client, in place of the oldest if it reads
// none. It does not block.
func (s *session) requested(r Requested) {
	for {
		select {
		case s.requests <- r:
			s.mu.Lock()
			if s.linked() {
				s.tellSoon()
			}
			s.mu.Unlock()
			return
		default:
		}
		select {
		case <-s.requests:
		default:
		}
	}
}

// requestRequest is the body of POST /v1/request.
type requestRequest struct {
	Name    string `json:"name"`
	Message string `json:"message"`
}

func (r *requestRequest) lockName() string { return r.Name }

// requestAnswer tells who was asked.
type requestAnswer struct {
	Asked []Asked `json:"asked"`
}

// askPatience is how long a request may take to be written.
const askPatience = 30 * time.Second

func (s *Server) request(d *Daemon, w http.ResponseWriter, r *http.Request) {
	var body requestRequest
	err := decode(r, &body)
	var answer requestAnswer
	if err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), askPatience)
		defer cancel()
		answer.Asked, err = d.Request(ctx, body.Name, body.Message)
	}
	if err != nil {
		e := api.ErrorOf(err)
		writeError(w, e.Status(), e)
		return
	}
	writeJSON(w, answer)
}

package server

import (
	"bytes"
	"context"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Every process of this machine may be a client of an address, and a reverse proxy may serve a network.
// Many or fast clients must not load the disk or the processor. Therefore they share answers, and all
// together ask at a limited rate: a client that asks sooner waits.
const (
	askEvery = 5 * time.Millisecond // interval of connections and requests
	askBurst = 2 * time.Second      // worth of requests that come at once

	leastShared = 500 * time.Millisecond // how long an answer is shared at least
	workShare   = 10                     // answers are made at most 1/workShare of the time
	mostShared  = 2 * time.Second        // how long an answer is shared at most; it takes priority
	listShared  = time.Minute            // the same for the list of locks, which is read from the disk

	longestRest = 5 * time.Second // after a turn at the journal, also if a stalled disk prolonged that
)

// pace limits how often clients ask together. The zero value is ready for use.
type pace struct {
	mu   sync.Mutex // guards free
	free time.Time  // when all that was charged is paid
}

// charge charges askEvery. It blocks until at most askBurst is owed, or ctx is done.
func (p *pace) charge(ctx context.Context) {
	p.mu.Lock()
	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(askEvery)
	owed := p.free.Sub(now)
	p.mu.Unlock()
	if owed <= askBurst {
		return
	}
	select {
	case <-time.After(owed - askBurst):
	case <-ctx.Done():
	}
}

// paced charges for each request.
func (p *pace) paced(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.charge(r.Context()); r.Context().Err() == nil {
			h.ServeHTTP(w, r)
		}
	})
}

// pacedListener charges for each connection.
type pacedListener struct {
	net.Listener
	pace *pace
	ctx  context.Context
}

// Accept implements net.Listener.
func (l pacedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.pace.charge(l.ctx)
	}
	return conn, err
}

// turns lets clients work one at a time, together at most 1/workShare of the time. It is a channel with
// room for one: the turn, and the rest after it.
type turns chan struct{}

// begin blocks until it is the turn of the caller, or returns an error if ctx is done. end ends the turn.
func (t turns) begin(ctx context.Context) (end func(), err error) {
	if ctx.Err() == nil {
		select {
		case t <- struct{}{}:
			began := time.Now()
			return func() {
				time.AfterFunc(min((workShare-1)*time.Since(began), longestRest), func() { <-t })
			}, nil
		case <-ctx.Done():
		}
	}
	return nil, context.Cause(ctx)
}

// shared answers all requests with one answer, and makes a new one if that is too old, or if the term
// has ended or begun since: it is then of another host.
type shared struct {
	of     http.Handler
	most   time.Duration // how long an answer is shared at most
	joined func() (Host, error)

	mu     sync.Mutex    // guards the fields below
	host   Host          // that the other fields are of; nil if none had joined
	last   *answer       // nil if none yet
	making chan struct{} // closed when the next answer is made; nil if none is
}

// share returns a handler whose answers are shared, if it compresses one with compression and one
// without. They depend on nothing else of a request.
func (s *Server) share(h http.HandlerFunc, most time.Duration, compresses bool) http.Handler {
	plain := &shared{of: h, most: most, joined: s.cfg.Host}
	compressed := &shared{of: h, most: most, joined: s.cfg.Host}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header, of := http.Header{}, plain
		if compresses && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			header.Set("Accept-Encoding", "gzip")
			of = compressed
		}
		a := of.current(&http.Request{Method: http.MethodGet, Host: r.Host, URL: r.URL, Header: header, Pattern: r.Pattern}, r.Context())
		if a == nil {
			return // the client is gone
		}
		setWriteDeadline(w, answerPatience)
		maps.Copy(w.Header(), a.sent)
		w.WriteHeader(a.status)
		if code := a.header.Get(refusedAs); code != "" {
			w.Header().Set(refusedAs, code) // counts for each client
		}
		_, _ = w.Write(a.body.Bytes())
	})
}

// current returns the current answer, and makes it if necessary; nil if ctx is done first.
func (s *shared) current(r *http.Request, ctx context.Context) *answer {
	for ctx.Err() == nil {
		host, _ := s.joined()
		s.mu.Lock()
		if s.host != host {
			s.host, s.last, s.making = host, nil, nil
		}
		last, making := s.last, s.making
		if last != nil && time.Now().Before(last.until) {
			s.mu.Unlock()
			return last
		}
		if making == nil {
			making = make(chan struct{})
			s.making = making
			s.mu.Unlock()
			return s.answer(r, making)
		}
		s.mu.Unlock()
		select {
		case <-making:
		case <-ctx.Done():
		}
	}
	return nil
}

// answer makes an answer, also if the client that asked for it goes. Errors are shared for leastShared
// only, because they may be over soon.
func (s *shared) answer(r *http.Request, making chan struct{}) *answer {
	a, began := &answer{header: http.Header{}}, time.Now()
	defer func() { // also after a panic
		s.mu.Lock()
		defer s.mu.Unlock()
		if close(making); s.making == making {
			s.making = nil
		}
	}()
	s.of.ServeHTTP(a, r)
	a.WriteHeader(http.StatusOK)
	now := time.Now()
	a.until = now.Add(leastShared)
	if a.status == http.StatusOK {
		a.until = now.Add(min(max(leastShared, (workShare-1)*now.Sub(began)), s.most))
	}
	s.mu.Lock()
	if s.making == making { // else the term is another
		s.last = a
	}
	s.mu.Unlock()
	return a
}

// answer is an http.ResponseWriter that keeps what is written. It does not change once it is shared.
type answer struct {
	header http.Header
	sent   http.Header // as of WriteHeader
	status int
	body   bytes.Buffer
	until  time.Time
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.sent == nil {
		a.status, a.sent = status, a.header.Clone()
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

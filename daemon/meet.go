package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/bakeryd/bakeryd/blockdev/probe"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
)

// Two hosts meet on the disk to find out whether each sees what the other writes, at once. Each has two slots for it,
// x and y, its own ones in two locks made for the two hosts. In round n:
//
//	host A                          host B
//	---------------------------     --------------------------------------
//	writes x = n, which returns     reads y of A, again and again
//	writes y = n ------------------> sees y = n
//	                                reads x of A: begun after x = n was
//	                                acknowledged, so that it must show n
//	reads y of B, again and again   writes x = n, which returns
//	sees y = n <-------------------- writes y = n
//	reads x of B: must show n
//
// No clock has a part in that: an older x is a stale read, whatever the time. So is any slot that goes back to a
// sequence below one that was seen of the same incarnation. What a cache of host B would serve for x it has
// from the round before; dwell is for caches that forget.

// MeetOptions say whom to meet.
type MeetOptions struct {
	Host    int           // the other one's id
	Rounds  int           // the lesser one of the two hosts' counts
	Timeout time.Duration // for how long to wait for the other one to come
}

// MeetOutcome is how a meeting has ended.
type MeetOutcome string

// How a meeting can end.
const (
	MeetFresh   MeetOutcome = "fresh"   // every read showed what had been written before it
	MeetStale   MeetOutcome = "stale"   // one did not
	MeetAbsent  MeetOutcome = "absent"  // the other host was not met in time
	MeetStalled MeetOutcome = "stalled" // it was met, but nothing more was seen of it
	MeetEnded   MeetOutcome = "ended"   // the other host gave up, or began anew
)

// MeetReport is what a host has seen of another one, the answer to POST /v1/meet. The nonces tell who has seen whom:
// each host draws one for the meeting.
type MeetReport struct {
	Host      int           `json:"host"`
	HostName  string        `json:"host_name"`
	Peer      int           `json:"peer"`
	Device    string        `json:"device"`
	Outcome   MeetOutcome   `json:"outcome"`
	Rounds    int           `json:"rounds"` // completed
	ElapsedMS int64         `json:"elapsed_ms"`
	RoundTrip probe.Latency `json:"round_trip"`
	Stale     int           `json:"stale"`  // reads
	Detail    string        `json:"detail"` // of the first stale read, or of the end
	Nonce     uint64        `json:"nonce,string"`
	PeerNonce uint64        `json:"peer_nonce,string"` // as seen last; 0: none
	Locks     []string      `json:"locks"`             // whose slots were written; they stay
}

const (
	maxRounds   = 1_000_000
	maxMeetWait = time.Hour
)

func (o MeetOptions) validate(d *Daemon) error {
	switch hosts := d.sb.Geometry.Hosts; {
	case o.Host < 1 || o.Host > hosts:
		return fmt.Errorf("%w: host %d, want 1 to %d", api.ErrInvalid, o.Host, hosts)
	case o.Host == d.mem.id():
		return fmt.Errorf("%w: host %d is this host, want another one", api.ErrInvalid, o.Host)
	case o.Rounds < 1 || o.Rounds > maxRounds:
		return fmt.Errorf("%w: rounds %d, want 1 to %d", api.ErrInvalid, o.Rounds, maxRounds)
	case o.Timeout <= 0 || o.Timeout > maxMeetWait:
		return fmt.Errorf("%w: time-out %v, want more than 0, and %v at most", api.ErrInvalid, o.Timeout, maxMeetWait)
	}
	return nil
}

// Meet takes part in a meeting with another host, whose bakeryd must do the same at the same time. The two locks are
// created on first use and stay; the values are cleared. It returns ErrInvalid, ErrMeeting, the errors of Acquire,
// those of reading, or the cause of ctx's end.
func (d *Daemon) Meet(ctx context.Context, o MeetOptions) (*MeetReport, error) {
	if err := o.validate(d); err != nil {
		return nil, err
	}
	if !d.meeting.CompareAndSwap(false, true) {
		return nil, api.ErrMeeting
	}
	type result struct {
		r   *MeetReport
		err error
	}
	out := make(chan result, 1)
	go func() { // what is left behind ends with its IO, for which closing the device waits
		r, err := d.meet(ctx, o)
		d.meeting.Store(false) // before Meet returns: the caller may call it again
		out <- result{r, err}
	}()
	select {
	case r := <-out:
		return r.r, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-d.mem.lost:
		return nil, fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
	}
}

// meetLocks names the locks of two hosts.
func meetLocks(a, b int) [2]string {
	pair := fmt.Sprintf("probe %d-%d ", min(a, b), max(a, b))
	return [2]string{pair + "a", pair + "b"}
}

func (d *Daemon) meet(ctx context.Context, o MeetOptions) (*MeetReport, error) {
	m := &meeting{ctx: ctx, d: d, o: o, nonce: lockspace.Nonce(), rounds: o.Rounds}
	names := meetLocks(d.mem.id(), o.Host)
	for i, name := range names {
		lk, err := d.find(ctx, Request{Name: name})
		if err != nil {
			return nil, fmt.Errorf("lock %q: %w", name, err)
		}
		m.locks[i] = lk
	}
	begun := time.Now()
	err := m.run()
	r := &MeetReport{
		Host: d.mem.id(), HostName: d.mem.ids.Name, Peer: o.Host, Device: d.dev.Info().Path, Locks: names[:],
		Rounds: m.done, ElapsedMS: time.Since(begun).Milliseconds(), RoundTrip: m.trips.Latency(),
		Stale: m.stale, Detail: m.detail, Nonce: m.nonce, PeerNonce: m.theirs,
	}
	var end meetEnd
	switch {
	case m.stale > 0:
		r.Outcome = MeetStale
	case errors.As(err, &end):
		r.Outcome, r.Detail = end.outcome, end.why
	case err != nil:
		return nil, fmt.Errorf("meet host %d: %w", o.Host, err)
	default:
		r.Outcome = MeetFresh
	}
	d.log.Info("met another host on the disk", "met_host_id", o.Host, "outcome", r.Outcome, "rounds", r.Rounds, "stale", r.Stale)
	return r, nil
}

// meetRequest is the body of POST /v1/meet.
type meetRequest struct {
	Host      int   `json:"host"`
	Rounds    int   `json:"rounds"`
	TimeoutMS int64 `json:"timeout_ms"`
}

func (s *Server) meet(d *Daemon, w http.ResponseWriter, r *http.Request) {
	var body meetRequest
	err := decode(r, &body)
	var report *MeetReport
	if err == nil {
		wait := time.Duration(min(body.TimeoutMS, maxTimeout.Milliseconds())) * time.Millisecond
		report, err = d.Meet(r.Context(), MeetOptions{Host: body.Host, Rounds: body.Rounds, Timeout: wait})
	}
	if err != nil {
		e := api.ErrorOf(err)
		writeError(w, e.Status(), e)
		return
	}
	writeJSON(w, report)
}

package measuring

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bakeryd/bakeryd/blockdev/latency"
	"github.com/bakeryd/bakeryd/daemon/api"
)

// Two hosts run a coherence check on the disk: does each immediately see what the other writes?
// Each uses two slots, x and y, its own ones in two locks created for the two hosts. In round n:
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
// The check uses no clock: an older x is a stale read at any time. So is a slot with a lower
// sequence than one read before of the same incarnation. A cache of host B holds x of the round
// before; the dwell (hear) is for caches that expire.

// MeetOptions are the options of a coherence check.
type MeetOptions struct {
	Host    int           // id of the other host
	Rounds  int           // the lower one of the two hosts' counts applies
	Timeout time.Duration // how long to wait for the other host
}

// MeetOutcome is the outcome of a coherence check.
type MeetOutcome string

// The outcomes of a coherence check.
const (
	MeetFresh  MeetOutcome = "fresh"  // every read showed what had been written before it
	MeetStale  MeetOutcome = "stale"  // a read did not
	MeetAbsent MeetOutcome = "absent" // the other host did not take part in time
	// the other host took part, then nothing more was seen of it
	MeetStalled MeetOutcome = "stalled"
	MeetEnded   MeetOutcome = "ended" // the other host gave up, or started again
)

// MeetReport is what a host has seen of another one, the answer to POST /v1/meet. Each host draws a
// nonce for the check; the nonces show which host has seen which.
type MeetReport struct {
	Host      int             `json:"host"`
	HostName  string          `json:"host_name"`
	Peer      int             `json:"peer"` // id of the other host
	Device    string          `json:"device"`
	Outcome   MeetOutcome     `json:"outcome"`
	Rounds    int             `json:"rounds"` // completed
	ElapsedMS int64           `json:"elapsed_ms"`
	RoundTrip latency.Summary `json:"round_trip"`        // from a write until the answer to it was read
	Stale     int             `json:"stale"`             // number of stale reads
	Detail    string          `json:"detail"`            // of the first stale read, or of the end
	Nonce     uint64          `json:"nonce,string"`      // of this host
	PeerNonce uint64          `json:"peer_nonce,string"` // as last seen; 0 if none
	Locks     []string        `json:"locks"`             // whose slots were written; the host that created them removes them
}

const (
	maxRounds   = 1_000_000
	maxMeetWait = time.Hour
)

func (o MeetOptions) validate(m *Meter) error {
	switch hosts := m.disk.SB.Geometry.Hosts; {
	case o.Host < 1 || o.Host > hosts:
		return fmt.Errorf("%w: host %d, want 1 to %d", api.ErrInvalid, o.Host, hosts)
	case o.Host == m.mem.ID():
		return fmt.Errorf("%w: host %d is this host, want another one", api.ErrInvalid, o.Host)
	case o.Rounds < 1 || o.Rounds > maxRounds:
		return fmt.Errorf("%w: rounds %d, want 1 to %d", api.ErrInvalid, o.Rounds, maxRounds)
	case o.Timeout <= 0 || o.Timeout > maxMeetWait:
		return fmt.Errorf("%w: time-out %v, want more than 0, and %v at most", api.ErrInvalid, o.Timeout, maxMeetWait)
	}
	return nil
}

// Meet takes part in a coherence check with another host, whose bakeryd must do the same at the
// same time. One of the hosts creates the two locks, and removes them at the end. Meet clears the values. It
// returns ErrInvalid, ErrCoherenceCheck, the errors of Acquire and of reading, or the cause of ctx's end.
func (m *Meter) Meet(ctx context.Context, o MeetOptions) (*MeetReport, error) {
	if err := o.validate(m); err != nil {
		return nil, err
	}
	if !m.meeting.CompareAndSwap(false, true) {
		return nil, api.ErrCoherenceCheck
	}
	return detached(ctx, m, func(ctx context.Context) (*MeetReport, error) {
		defer m.meeting.Store(false)
		return m.meet(ctx, o)
	})
}

// meetLocks returns the names of the two hosts' locks.
func meetLocks(a, b int) [2]string {
	pair := fmt.Sprintf("probe %d-%d ", min(a, b), max(a, b))
	return [2]string{pair + "a", pair + "b"}
}

func (m *Meter) meet(ctx context.Context, o MeetOptions) (*MeetReport, error) {
	names := meetLocks(m.mem.ID(), o.Host)
	c := &coherenceCheck{ctx: ctx, meter: m, o: o, ours: map[string]bool{}, r: MeetReport{Host: m.mem.ID(), HostName: m.name, Peer: o.Host,
		Device: m.disk.Dev.Info().Path, Locks: names[:], Outcome: MeetFresh, Nonce: rand.Uint64()}}
	defer c.remove()
	if err := c.find(); err != nil {
		return nil, err
	}
	begun := time.Now()
	err := c.run()
	r := &c.r
	r.ElapsedMS, r.RoundTrip = time.Since(begun).Milliseconds(), c.trips.Summary()
	switch {
	case r.Stale > 0:
		r.Outcome = MeetStale
	case err != nil && !errors.Is(err, errEnded):
		return nil, fmt.Errorf("meet host %d: %w", o.Host, err)
	}
	m.log.Info("coherence check with another host ended", "host", o.Host, "outcome", r.Outcome, "rounds", r.Rounds, "stale", r.Stale)
	return r, nil
}

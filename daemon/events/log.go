package events

import (
	"context"
	"log/slog"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// ringSize is the number of events kept in memory: the most that the disk may be behind.
const ringSize = 4096

// closeTimeout bounds the wait for a hanging disk in Close.
const closeTimeout = time.Second

// maxReason bounds the text of an error in an event, in bytes.
const maxReason = 512

// Log is the journal of one host. It is safe for concurrent use, and Add never waits for a disk
// or a reader. A nil Log keeps nothing.
type Log struct {
	keeper   keeper
	clock    clock.Clock
	created  time.Time
	open     context.Context // ended by Close, with mu held
	close    context.CancelFunc
	finished chan struct{} // closed when the keeper has ended

	mu     sync.Mutex    // guards the fields below; held only briefly
	ring   []Event       // event n is at n % ringSize
	end    uint64        // number of the next event
	last   uint64        // the highest Seq
	gone   uint64        // highest Seq that the ring has lost; 0: none
	clocks reading       // when the clock was read last
	latest time.Duration // the last result of uptime
	self   Self
	path   string        // path of the file; empty: not known yet, and no keeper runs
	added  chan struct{} // closed by the next Add or Keep; nil if nothing waits for that
}

// New returns an empty log, which is in memory only until [Log.Keep]. It does no IO.
func New(c clock.Clock, logger *slog.Logger) *Log {
	l := &Log{clock: c, created: time.Now(), finished: make(chan struct{})}
	l.open, l.close = context.WithCancel(context.Background())
	l.keeper = keeper{log: l, logger: logger, limit: maxFile, write: (*os.File).Write}
	return l
}

// Keep sets the host that adds events, and the file that keeps them. It returns immediately. An
// existing file is continued.
func (l *Log) Keep(path string, self Self) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open.Err() != nil {
		return
	}
	for i := range l.ring { // events added before Keep
		if e := &l.ring[i]; e.Host == 0 {
			e.Host, e.HostName = self.Host, self.Name
		}
	}
	if l.path == "" {
		go l.keeper.run()
	}
	l.self, l.path = self, path
	l.wake()
}

// Add adds an event with the present time, and returns its number; 0 if nothing is kept.
func (l *Log) Add(e Event) uint64 {
	if l == nil {
		return 0
	}
	e.Reason = text.Shorten(e.Reason, maxReason)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open.Err() != nil {
		return 0
	}
	// Under the mutex, so that events are in the order of their times.
	now := time.Now()
	e.At = time.UnixMicro(now.UnixMicro()).UTC()
	e.UptimeMS = l.uptime(time.Duration(now.UnixNano()), now.Sub(l.created)).Milliseconds()
	e.Seq = max(l.last+1, uint64(e.At.UnixMicro()))
	if e.Kind == Request {
		e.Request = e.Seq
	}
	if e.Host == 0 {
		e.Host, e.HostName, e.Incarnation = l.self.Host, l.self.Name, l.self.Incarnation
	}
	l.last = e.Seq
	if len(l.ring) < ringSize {
		l.ring = append(l.ring, e)
	} else {
		at := l.end % ringSize
		l.gone, l.ring[at] = l.ring[at].Seq, e
	}
	l.end++
	l.wake()
	return e.Seq
}

// reading is what the clocks showed at one moment.
type reading struct{ wall, monotonic, boot time.Duration }

// uptime returns the time since the boot. It reads the clock of the host, which is a system call, if a
// second has passed since it did, or if the wall clock and the monotonic one have moved apart, as after
// a sleep of the machine. A thread that was not scheduled before that call has read too late a time.
// Later results are then not below it. The caller holds mu.
func (l *Log) uptime(wall, monotonic time.Duration) time.Duration {
	since := monotonic - l.clocks.monotonic
	if apart := wall - l.clocks.wall - since; since > time.Second || apart.Abs() > time.Millisecond {
		l.clocks, since = reading{wall, monotonic, l.clock.Now()}, 0
	}
	l.latest = max(l.latest, l.clocks.boot+since)
	return l.latest
}

// wake wakes what waits for an event. The caller holds mu.
func (l *Log) wake() {
	if l.added != nil {
		close(l.added)
		l.added = nil
	}
}

// next returns a channel that the next Add or Keep closes.
func (l *Log) next() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.added == nil {
		l.added = make(chan struct{})
	}
	return l.added
}

// after copies the events above a Seq, as many as there is room for. n is the number of the first of
// them, and gone the highest Seq that the ring has lost.
func (l *Log) after(seq uint64, into []Event) (got []Event, n, gone uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	begin := l.end - uint64(len(l.ring))
	n = begin + uint64(sort.Search(len(l.ring), func(i int) bool { return l.ring[(begin+uint64(i))%ringSize].Seq > seq }))
	got = into[:min(uint64(len(into)), l.end-n)]
	for i := range got {
		got[i] = l.ring[(n+uint64(i))%ringSize]
	}
	return got, n, l.gone
}

// raise renumbers the ring above the Seq found in a file: the clock is behind that of an earlier
// run. It returns by how much.
func (l *Log) raise(seq uint64) (by uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := uint64(len(l.ring)); n > 0 {
		first := l.ring[(l.end-n)%ringSize].Seq
		by = max(first, seq+1) - first
	}
	for i := range l.ring {
		e := &l.ring[i]
		e.Seq += by
		if e.Request != 0 {
			e.Request += by
		}
	}
	l.last = max(l.last+by, seq)
	if l.gone != 0 {
		l.gone += by
	}
	return by
}

// goOnAbove makes the events that follow have numbers above a Seq: the keeper writes no others.
func (l *Log) goOnAbove(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = max(l.last, seq)
}

// where returns the path of the file.
func (l *Log) where() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.path
}

// Close refuses further events and ends every [Log.Follow]. It returns when all events are
// written, or after closeTimeout.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.close()
	kept := l.path != ""
	l.mu.Unlock()
	if !kept {
		return
	}
	select {
	case <-l.finished:
	case <-time.After(closeTimeout):
	}
}

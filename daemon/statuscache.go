package daemon

import (
	"compress/gzip"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/page"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

// The status page asks continuously, in every window, on every host, and a report reads all slots
// of all locks. Therefore the pages of a host share what was read, at an interval that depends on
// the size of the lockspace. The host knows its lease, the renewals of other hosts and its clients
// without reading. These are current in every answer.
const (
	// minimum interval of reading the locks that are held or waited for
	glanceEvery = 2 * time.Second
	glanceHot   = 1 << 20 // bytes read of these each time, and of the host table
	glanceRate  = 2 << 20 // bytes a second read of all others
	glanceShare = 10      // the device is read at most 1/glanceShare of the time

	glancePatience = time.Second     // how long a page waits for a read
	glanceFirst    = 5 * time.Second // how long it waits for the first one
)

// Glance is the answer to GET /page/status. Without a report it has an error. With a report, the
// error says why what was read is old.
type Glance struct {
	At     time.Time      `json:"at"`
	Report *report.Report `json:"report,omitempty"`
	Read   GlanceRead     `json:"read"`
	Error  *api.Error     `json:"error,omitempty"`
}

// GlanceRead describes the reads behind a Glance.
type GlanceRead struct {
	AgoMS   int64 `json:"ago_ms"`
	TookMS  int64 `json:"took_ms"`
	Bytes   int64 `json:"bytes"`
	EveryMS int64 `json:"every_ms"` // interval at which the whole lockspace is read
}

// statusCaches is the state that the pages of a server share.
type statusCaches struct {
	mu  sync.Mutex // guards now
	now *statusCache
}

// of returns the state for a host. There is a new host for each term of membership.
func (g *statusCaches) of(host *Host) *statusCache {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now == nil || g.now.host != host {
		g.now = &statusCache{host: host}
	}
	return g.now
}

// statusCache is what was read of the disk for pages.
type statusCache struct {
	host *Host

	mu      sync.Mutex // guards the rest
	reading chan struct{}
	kept    *lockspace.Snapshot // nil if none yet
	err     error               // of the last read
	tried   time.Duration       // when that ended
	read    time.Duration       // when kept was last read, in part
	all     time.Duration       // when it was last read as a whole
	pause   time.Duration       // after which it is read again as a whole
	took    time.Duration       // duration of the last read
	bytes   int64
	turn    int // index at which the next read of hot locks begins if there are too many
}

// answer returns the current answer for a page.
func (g *statusCache) answer() Glance {
	g.refresh()
	g.mu.Lock()
	defer g.mu.Unlock()
	a := Glance{At: time.Now().UTC()}
	if g.err != nil {
		a = a.because(api.ErrorOf(g.err))
	} else if g.kept == nil {
		a = a.because(&api.Error{Code: "device", Message: "the lockspace is still being read", Hint: "Is the device slow? See dmesg, and multipath -ll."})
	}
	if g.kept != nil {
		a.Report = g.host.tell(g.kept)
		a.Read = GlanceRead{AgoMS: (g.host.clock.Now() - g.read).Milliseconds(), TookMS: g.took.Milliseconds(), Bytes: g.bytes,
			EveryMS: max(g.pause, glanceEvery).Milliseconds()}
		if a.Error != nil {
			a.Report.AddReadError(a.Error.Message, a.Error.Hint, g.host.clock.Now()-g.read)
		}
	}
	return a
}

func (a Glance) because(e *api.Error) Glance {
	a.Error = e
	return a
}

// refresh starts a read if one is due, and waits for it up to glancePatience, for the first one up
// to glanceFirst.
func (g *statusCache) refresh() {
	g.mu.Lock()
	began := g.host.clock.Now()
	if g.reading == nil && (g.tried == 0 || began >= g.tried+max(glanceEvery, glanceShare*g.took)) {
		g.reading = make(chan struct{})
		whole, read := true, lockspace.Inspect
		if g.kept != nil && began < g.all+g.pause {
			whole, read = false, g.again(g.kept)
		}
		go g.run(whole, read, began)
	}
	under, patience := g.reading, glancePatience
	if g.kept == nil {
		patience = glanceFirst
	}
	g.mu.Unlock()
	if under == nil {
		return
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-under:
	case <-t.C:
	}
}

// run ends with its inspection, which a hung device does not block.
func (g *statusCache) run(whole bool, read func(blockdev.Device) (*lockspace.Snapshot, error), began time.Duration) {
	var n atomic.Int64
	s, err := g.host.inspectBy(func(dev blockdev.Device) (*lockspace.Snapshot, error) { return read(counted{dev, &n}) })
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.reading)
	g.reading = nil
	g.err, g.tried = err, g.host.clock.Now()
	if err == nil {
		g.kept, g.read, g.took, g.bytes = s, began, g.tried-began, n.Load()
		if whole {
			g.all, g.pause = began, time.Duration(g.bytes)*time.Second/glanceRate
		}
	}
}

// again returns a function that reads the locks of a snapshot that are held or waited for, up to
// glanceHot bytes.
func (g *statusCache) again(s *lockspace.Snapshot) func(blockdev.Device) (*lockspace.Snapshot, error) {
	hot := map[int]bool{}
	for _, slot := range s.Slots {
		hot[slot.Lock] = hot[slot.Lock] || slot.Phase != layout.Idle
	}
	for _, number := range g.host.InUse() {
		hot[number] = true
	}
	var locks []int
	for _, number := range s.UsedLocks() {
		if hot[number] {
			locks = append(locks, number)
		}
	}
	geometry, highest := s.Superblock.Geometry, max(s.HighestHost(), g.host.mem.Highest())
	room := glanceHot
	hosts := geometry.Hosts*geometry.Stride <= room/2
	if hosts {
		room -= geometry.Hosts * geometry.Stride
	}
	if most := max(1, room/(highest*geometry.Stride)); len(locks) > most {
		g.turn = (g.turn + most) % len(locks)
		locks = slices.Concat(locks[g.turn:], locks[:g.turn])[:most]
	}
	return func(dev blockdev.Device) (*lockspace.Snapshot, error) { return s.Reread(dev, locks, highest, hosts) }
}

// counted counts the bytes that are read.
type counted struct {
	blockdev.Device
	n *atomic.Int64
}

func (c counted) Read(p []byte, off int64) error {
	c.n.Add(int64(len(p)))
	return c.Device.Read(p, off)
}

// glance serves GET /page/status. A missing report is no HTTP error: a browser would report that
// only in its console, which a user of the page does not see.
func (s *Server) glance(w http.ResponseWriter, r *http.Request) {
	a := Glance{At: time.Now().UTC()}
	if host, err := s.joined(); err != nil {
		a = a.because(&api.Error{Code: "unavailable", Message: err.Error(), Hint: "The log of bakeryd says more; " +
			"bakeryctl status --device reads the disk without it."})
	} else {
		a = s.glances.of(host).answer()
	}
	writeGlance(w, r.Header.Get("Accept-Encoding"), a)
}

func writeGlance(w http.ResponseWriter, accepts string, a Glance) {
	text, err := json.Marshal(a)
	if err != nil {
		writeError(w, http.StatusInternalServerError, api.ErrorOf(err))
		return
	}
	setWriteDeadline(w, answerPatience)
	page.Guard(w.Header())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Vary", "Accept-Encoding")
	// the connection may be an ssh tunnel
	if len(text) > 16<<10 && strings.Contains(accepts, "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // BestSpeed is a valid level
		_, _ = z.Write(text)
		_ = z.Close()
		return
	}
	_, _ = w.Write(text)
}

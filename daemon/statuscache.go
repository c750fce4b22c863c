package daemon

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
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

// statusCache is what was read of the disk for pages.
type statusCache struct {
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

// Glance returns the current answer for a page.
func (h *Host) Glance() *report.Glance {
	g := &h.pages
	h.refresh(g)
	g.mu.Lock()
	defer g.mu.Unlock()
	a := &report.Glance{At: time.Now().UTC()}
	if g.err != nil {
		a.Error = api.ErrorOf(g.err)
	} else if g.kept == nil {
		a.Error = &api.Error{Code: "device", Message: "the lockspace is still being read", Hint: "Is the device slow? See dmesg, and multipath -ll."}
	}
	if g.kept != nil {
		a.Report = h.tell(g.kept)
		a.Read = report.GlanceRead{AgoMS: (h.clock.Now() - g.read).Milliseconds(), TookMS: g.took.Milliseconds(), Bytes: g.bytes,
			EveryMS: max(g.pause, glanceEvery).Milliseconds()}
		if a.Error != nil {
			a.Report.AddReadError(a.Error.Message, a.Error.Hint, h.clock.Now()-g.read)
		}
	}
	return a
}

// refresh starts a read if one is due, and waits for it up to glancePatience, for the first one up
// to glanceFirst.
func (h *Host) refresh(g *statusCache) {
	g.mu.Lock()
	began := h.clock.Now()
	if g.reading == nil && (g.tried == 0 || began >= g.tried+max(glanceEvery, glanceShare*g.took)) {
		g.reading = make(chan struct{})
		whole, read := true, lockspace.Inspect
		if g.kept != nil && began < g.all+g.pause {
			whole, read = false, h.again(g, g.kept)
		}
		go h.runRead(g, whole, read, began)
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
func (h *Host) runRead(g *statusCache, whole bool, read func(blockdev.Device) (*lockspace.Snapshot, error), began time.Duration) {
	var n atomic.Int64
	s, err := h.inspectBy(func(dev blockdev.Device) (*lockspace.Snapshot, error) { return read(counted{dev, &n}) })
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.reading)
	g.reading = nil
	g.err, g.tried = err, h.clock.Now()
	if err == nil {
		g.kept, g.read, g.took, g.bytes = s, began, g.tried-began, n.Load()
		if whole {
			g.all, g.pause = began, time.Duration(g.bytes)*time.Second/glanceRate
		}
	}
}

// again returns a function that reads the locks of a snapshot that are held or waited for, up to
// glanceHot bytes.
func (h *Host) again(g *statusCache, s *lockspace.Snapshot) func(blockdev.Device) (*lockspace.Snapshot, error) {
	hot := map[int]bool{}
	for _, slot := range s.Slots {
		hot[slot.Lock] = hot[slot.Lock] || slot.Phase != layout.Idle
	}
	for _, number := range h.InUse() {
		hot[number] = true
	}
	var locks []int
	for _, number := range s.UsedLocks() {
		if hot[number] {
			locks = append(locks, number)
		}
	}
	geometry, highest := s.Superblock.Geometry, max(s.HighestHost(), h.mem.Highest())
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

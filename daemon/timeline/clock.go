package timeline

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/bakeryd/bakeryd/daemon/events"
)

// The hosts' wall clocks date the events. They may be wrong and may jump, and a hand-over takes
// less time than clocks differ. Each clock may have been off by an unknown amount. It is bounded
// by events that must be in this order:
//
//	the end of a hold        before the next grant, by the tokens
//	a claim, a number        before another host sees it ahead
//	a host's joining         before another host sees it live
//	a verdict                before another host reads it
//
// A clock here is that of one boot of one machine, from one step to the next, in a window of
// time, because clocks drift. A contradiction that no amounts resolve is not due to clocks.
const (
	stepAt = 20 * 1000 // us that a clock may move against the uptime between two events without a step
	drift  = 500e-6    // of two clocks against each other: more than NTP slews

	// noticed bounds how much later an event may be recorded than others could see it. A write
	// had landed, and its answer came only when a hung device or a stalled host continued. It is
	// two leases of the usual length.
	noticed = 60 * 1000 * 1000

	maxSteps = 200 // of a clock that is corrected by the uptime
	maxNodes = 160
	minSpan  = 60 * 1000 * 1000
	fineSlip = 1000 // us, between two clocks
)

// clock is a clock between two steps.
type clock struct {
	boot      string // empty: unknown
	low, high int64  // bounds of its lead over the uptime, in us
	records   []*record
}

// clocks holds all clocks, and the bounds of their differences.
type clocks struct {
	*journals
	all     []*clock
	weight  []int     // number of events, by node
	atLeast [][]int64 // by two nodes: minimum by which the second's offset exceeds the first's
	offset  []int64   // added to the times of a node
	slip    int64     // maximum difference of two clocks within a window

	excused []int64 // us by which pairs are in the wrong order: a violation if the clocks were right
	failed  map[order]bool
}

// order states that an event came before another.
type order struct{ before, after *record }

// excess is by how much the events are in the wrong order, by their own clocks.
func (o order) excess() int64 { return int64(o.before.raw - o.after.raw) }

const unknown = math.MinInt64 / 4

// readClocks assigns events to clocks.
func readClocks(j *journals, one bool) *clocks {
	c := &clocks{journals: j, failed: map[order]bool{}}
	if one {
		c.all = []*clock{{records: j.records}}
	} else {
		for _, k := range j.keepers {
			c.readHost(k)
		}
	}
	c.makeNodes()
	return c
}

// readHost splits the events of a host where its clock was stepped, or the host booted.
func (c *clocks) readHost(k identity) {
	all, name := c.of[k], c.shown[c.host(k.id, k.name, 0)]
	hasUptime := slices.ContainsFunc(all, func(r *record) bool { return r.UptimeMS != 0 })
	runs := splitRuns(all, hasUptime)
	if len(runs) > maxSteps {
		c.notes = append(c.notes, fmt.Sprintf("the clock of %s was stepped %d times, or is unrelated to its uptime: its times are not corrected",
			name, len(runs)-1))
		runs = splitRuns(all, false)
	}
	for i, run := range runs {
		if i > 0 && run.boot == runs[i-1].boot && run.boot != "" {
			if by := run.low - runs[i-1].high; abs(by) >= 100_000 {
				c.notes = append(c.notes, fmt.Sprintf("the clock of %s was stepped by %+.3f s before %s", name,
					float64(by)/1e6, run.records[0].raw.Time().Format("2006-01-02 15:04:05.000 UTC")))
			}
		}
		c.addRun(run)
	}
}

// splitRuns returns the clocks of the events of one host, in order.
func splitRuns(all []*record, uptime bool) (runs []*clock) {
	var cur *clock
	for _, r := range all {
		boot := ""
		if r.Lock == "" && r.ByHost == 0 {
			boot = r.Boot
		}
		base := int64(0)
		if uptime {
			base = int64(r.raw - lasted(r.UptimeMS))
		}
		if cur == nil || base < cur.low-stepAt || base > cur.high+stepAt || boot != "" && cur.boot != "" && boot != cur.boot {
			was := ""
			if cur != nil && uptime && r.UptimeMS >= cur.records[len(cur.records)-1].UptimeMS {
				was = cur.boot // until an event names another one
			}
			cur = &clock{boot: was, low: base, high: base}
			runs = append(runs, cur)
		}
		cur.boot = cmp.Or(boot, cur.boot)
		// If it is slewed, its bounds move along.
		cur.low, cur.high = max(min(cur.low, base), base-stepAt), min(max(cur.high, base), base+stepAt)
		cur.records = append(cur.records, r)
	}
	return runs
}

// addRun adds a clock, or its events to the clock of the same boot of another host on the same
// machine.
func (c *clocks) addRun(r *clock) {
	for _, k := range c.all {
		if r.boot != "" && k.boot == r.boot && r.low <= k.high+stepAt && r.high >= k.low-stepAt {
			k.low, k.high = min(k.low, r.low), max(k.high, r.high)
			k.records = append(k.records, r.records...)
			return
		}
	}
	c.all = append(c.all, r)
}

// makeNodes divides the clocks into windows.
func (c *clocks) makeNodes() {
	c.records = nil
	span := Moment(0)
	for _, k := range c.all {
		slices.SortStableFunc(k.records, func(a, b *record) int { return cmp.Compare(a.raw, b.raw) })
		span += k.records[len(k.records)-1].raw - k.records[0].raw + 1
	}
	window := max(minSpan, span/(maxNodes/2)+1)
	for _, k := range c.all {
		first, begin := len(c.weight), k.records[0].raw
		for _, r := range k.records {
			r.clock = k
			if len(c.all) > 1 {
				r.node = first + int((r.raw-begin)/window)
			}
			for len(c.weight) <= r.node {
				c.weight = append(c.weight, 0)
			}
			c.weight[r.node]++
		}
		c.records = append(c.records, k.records...)
	}
	c.slip = max(fineSlip, int64(float64(window)*drift))
	c.atLeast = make([][]int64, len(c.weight))
	for i := range c.atLeast {
		c.atLeast[i] = slices.Repeat([]int64{unknown}, len(c.weight))
		c.atLeast[i][i] = 0
	}
	for _, k := range c.all {
		for i := 1; i < len(k.records); i++ {
			a, b := k.records[i-1], k.records[i]
			if a.node != b.node {
				c.add(a.node, b.node, int64(a.raw-b.raw)) // windows stay in order
			}
			for n := a.node; n < b.node; n++ { // and drift
				c.add(n, n+1, -c.slip)
				c.add(n+1, n, -c.slip)
			}
		}
	}
	for _, k := range c.keepers { // events of one host stay in order, and those of one boot as far apart as they were
		all := c.of[k]
		for i := 1; i < len(all); i++ {
			a, b := all[i-1], all[i]
			apart := int64(0)
			if b.UptimeMS >= a.UptimeMS && a.clock.boot == b.clock.boot { // else another machine may have its id and name now
				apart = b.UptimeMS - a.UptimeMS
			}
			if a.clock != b.clock {
				c.add(a.node, b.node, int64(a.raw-b.raw)+int64(lasted(apart-1)))
			}
		}
	}
}

// add requires that node b's offset exceeds node a's by at least this. It returns false if that
// is impossible.
func (c *clocks) add(a, b int, by int64) bool {
	if by <= c.atLeast[a][b] {
		return true
	}
	if a == b || by+c.atLeast[b][a] > 0 {
		return by <= 0
	}
	for _, row := range c.atLeast {
		if row[a] == unknown {
			continue
		}
		for k, more := range c.atLeast[b] {
			if more != unknown {
				row[k] = max(row[k], row[a]+by+more)
			}
		}
	}
	return true
}

// require states that an event came before another, or at most slack after it. Clocks that drift
// may violate it slightly.
func (c *clocks) require(o order, slack int64) bool {
	a, b, by := o.before, o.after, o.excess()-slack
	if a.clock == b.clock {
		return by <= 0
	}
	if c.add(a.node, b.node, by) {
		return true
	}
	if by+c.atLeast[b.node][a.node] > c.slip {
		return false
	}
	return c.add(a.node, b.node, -c.atLeast[b.node][a.node])
}

// possible reports whether a time after an event can be before another event.
func (c *clocks) possible(a *record, after int64, b *record) bool {
	by := int64(a.raw-b.raw) + after
	if a.clock == b.clock {
		return by <= 0
	}
	return by+c.atLeast[b.node][a.node] <= c.slip // also if that is unknown
}

// solve chooses the offset of each clock: as small as the order allows.
func (c *clocks) solve() {
	up, down := make([]int64, len(c.weight)), make([]int64, len(c.weight))
	for i, row := range c.atLeast {
		for k, by := range row {
			up[k] = max(up[k], by)
			down[i] = min(down[i], -by)
		}
	}
	c.offset = up
	if most := c.centre(up); c.centre(down) < most {
		c.offset = down
	}
}

// centre shifts the offsets so that most events keep their times, and returns the sum of the others'
// corrections.
func (c *clocks) centre(offsets []int64) (sum float64) {
	var each []int64 // of the events
	for i, n := range c.weight {
		each = append(each, slices.Repeat([]int64{offsets[i]}, n)...)
	}
	slices.Sort(each)
	for i, middle := 0, each[(len(each)-1)/2]; i < len(offsets); i++ {
		offsets[i] -= middle
		sum += float64(abs(offsets[i])) * float64(c.weight[i])
	}
	return sum
}

func abs(n int64) int64 { return max(n, -n) }

// selfJoined reports whether a host records that it is live itself.
func (r *record) selfJoined() bool {
	return r.Kind == events.Joined && r.Lock == "" && (r.ByHost == 0 || r.ByHost == r.Host)
}

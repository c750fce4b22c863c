package mirror

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// scenario bounds the worlds of an exploration: three members, one record, one writer, and one
// reader that reads any number of times.
type scenario struct {
	writes   int  // number of writes, each begun at any time
	failures int  // number of requests that fail
	drops    int  // number of calls of drop
	unread   int  // number of reads of a member that fail
	replaced int  // number of members that are replaced
	restarts int  // number of ends of the process; the next one is of the same host
	leaves   int  // number of ends of the host, by LEFT; the next one has the same record
	flicker  bool // a copy in flight may read as garbage
}

// damaged is the content of a copy that is no record.
const damaged = -1

// world is the state of the members, the machine of the writer and that of the reader.
type world struct {
	scenario
	mutation
	reg     *register
	waiters []*waiter // that have not returned
	disks   [3]disk
	floor   int   // greatest version whose write returned nil
	dropped bool  // since the last write
	begun   int   // greatest version that was ever written
	older   uint8 // versions of earlier processes, if mutation.outlives

	poll  *poll // nil if no read is under way
	since int   // floor when the read began
	fault string
}

// disk is the copy of one member.
type disk struct {
	content  int
	requests []request
	lost     uint8 // versions whose requests failed, and may land
	part     part
}

// part is what a disk is in the set.
type part uint8

const (
	voting part = iota // a member
	vacant             // none: the position is vacant
	copied             // none yet: it has what a majority has
)

// request is a request in flight.
type request struct {
	content int
	version Version // as which the machine began it
	landed  bool
	from    origin
}

// origin is the process that began a request. A host that joins again in one process is the next one, too.
type origin uint8

const (
	current origin = iota + 1
	earlier        // an earlier one of the same host
	former         // one of a host that has left: the next host does not know of it
)

// mutation leaves out a rule, to show that its loss is noticed.
type mutation struct {
	begin    func(c *copyState) bool // replaces register.ready
	write    func(before, after []copyState)
	returned func(before copyState, after *copyState, err error)
	waiters  func(ws []*waiter, position int)
	failsNot bool   // a request that failed counts as acknowledged
	acks     int    // number of acknowledgements that suffice; 0: decided by the machine
	copies   int    // number of valid copies that suffice; 0: decided by the machine
	invalid  bool   // a damaged copy counts as one of the oldest version
	repeats  bool   // drop does not keep a request in flight from being repeated
	keeps    bool   // the acknowledgements of a replaced member count
	forgets  bool   // a new member does not get what another lacks
	shares   bool   // a process uses a member to which an earlier one has a request in flight
	outlives bool   // a request of an earlier process that failed lands after a later one returned
	ignores  origin // a host leaves with such requests in flight; 0: with none
}

var errIO = errors.New("input/output error")

func content(v int) []byte { return []byte{byte(v)} }

func newWorld(sc scenario, m mutation) *world {
	return &world{scenario: sc, mutation: m, reg: newRegister(0, 3)}
}

func (w *world) clone() *world {
	c := *w
	reg := *w.reg
	reg.copies, reg.waiting = slices.Clone(reg.copies), nil
	c.reg, c.waiters = &reg, nil
	for _, old := range w.waiters {
		waits := *old
		c.waiters = append(c.waiters, &waits)
		reg.waiting = append(reg.waiting, &waits)
	}
	for i := range c.disks {
		c.disks[i].requests = slices.Clone(c.disks[i].requests)
	}
	if w.poll != nil {
		q := *w.poll
		q.records = slices.Clone(q.records)
		c.poll = &q
	}
	return &c
}

// key returns the state without the names of the members.
func (w *world) key() string {
	var members [3][]byte
	for i, c := range w.reg.copies {
		d := &w.disks[i]
		k := append([]byte{byte(d.content), d.lost, byte(d.part), byte(len(d.requests))}, c.next...)
		k = append(k, byte(len(c.next)), byte(c.version.Counter), byte(c.acked.Counter), bit(c.inFlight != nil), bit(c.paused), bit(c.once))
		for _, r := range d.requests {
			k = append(k, byte(r.content), byte(r.version.Counter), bit(r.landed), byte(r.from))
		}
		for _, waits := range w.waiters {
			k = append(k, bit(waits.acked.Has(i)), bit(waits.errs[i] != nil))
		}
		if w.poll != nil {
			k = append(k, bit(w.poll.answered.Has(i)), bit(w.poll.failed.Has(i)))
		}
		members[i] = k
	}
	slices.SortFunc(members[:], bytes.Compare)
	k := bytes.Join(members[:], []byte{0xff})
	k = append(k, byte(w.reg.newest.Counter), byte(w.floor), bit(w.dropped), byte(w.writes), byte(w.failures), byte(w.drops), byte(w.unread), byte(w.replaced),
		byte(w.begun), w.older, byte(w.restarts), byte(w.leaves))
	for _, waits := range w.waiters {
		k = append(k, byte(waits.version.Counter))
	}
	if w.poll != nil {
		k = append(k, byte(w.poll.records[0].valid), byte(w.poll.records[0].best.Counter), byte(w.since))
	}
	return string(k) + w.fault
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// next returns the worlds after each event.
func (w *world) next() map[string]*world {
	out := map[string]*world{}
	event := func(name string, do func(*world)) {
		c := w.clone()
		do(c)
		c.settle()
		out[name] = c
	}
	if w.writes > 0 {
		event("write", (*world).write)
	}
	if w.reg.newest == (Version{}) && w.begun > 0 {
		event("write again", func(w *world) { w.submit(w.begun) }) // NOTE-FIRST of bakery/PROTOCOL.md
	}
	if w.drops > 0 {
		event("drop", (*world).drop)
	}
	if w.restarts > 0 {
		event("restart", (*world).restart)
	}
	if w.leaves > 0 && !w.mayLand() {
		event("leave", (*world).leave)
	}
	if w.poll == nil {
		event("read", func(w *world) { w.poll, w.since = newPoll(3, 1), w.floor })
	}
	for i := range w.disks {
		w.memberEvents(i, func(name string, do func(*world)) { event(fmt.Sprintf("member %d %s", i, name), do) })
	}
	return out
}

func (w *world) memberEvents(i int, event func(string, func(*world))) {
	c, d := &w.reg.copies[i], &w.disks[i]
	if d.part != voting {
		w.vacantEvents(i, event)
		return
	}
	if w.replaced > 0 && !slices.ContainsFunc(w.disks[:], func(d disk) bool { return d.part != voting }) {
		event("is vacant", func(w *world) { w.vacate(i) })
	}
	ready := w.reg.ready(i)
	if w.mutation.begin != nil {
		ready = w.mutation.begin(c)
	}
	if ready && (w.shares || !d.has(earlier)) {
		event("begins", func(w *world) { w.begin(i) })
	}
	if c.paused {
		event("retries", func(w *world) { w.reg.copies[i].paused = false })
	}
	if c.next != nil && w.failures > 0 {
		event("is down", func(w *world) {
			w.failures--
			w.reg.unavailable(i, errIO)
		})
	}
	for n, r := range d.requests {
		if !r.landed {
			event(fmt.Sprintf("lands %d", r.content), func(w *world) { w.land(i, n) })
		}
		event(fmt.Sprintf("acknowledges %d", r.content), func(w *world) { w.acknowledge(i, n) })
		if w.failures > 0 {
			event(fmt.Sprintf("fails %d", r.content), func(w *world) { w.fail(i, n, false) })
			event(fmt.Sprintf("tears %d", r.content), func(w *world) { w.fail(i, n, true) })
		}
	}
	for v := 1; v < 8; v++ {
		if d.lost&(1<<v) != 0 {
			event(fmt.Sprintf("lands %d late", v), func(w *world) {
				w.disks[i].content = v
				w.disks[i].lost &^= 1 << v
			})
		}
	}
	if w.poll == nil || w.poll.answered.Has(i) || w.poll.failed.Has(i) {
		return
	}
	event("shows its copy", func(w *world) { w.show(i, w.disks[i].content) })
	if w.flicker && len(d.requests) > 0 {
		event("shows garbage", func(w *world) { w.show(i, damaged) })
	}
	if w.unread > 0 {
		event("cannot be read", func(w *world) {
			w.unread--
			w.poll.answer(i, errIO)
		})
	}
}

// vacantEvents are those of a vacant position.
func (w *world) vacantEvents(i int, event func(string, func(*world))) {
	event("is down", func(w *world) { w.reg.unavailable(i, errIO) })
	if w.poll != nil && !w.poll.failed.Has(i) {
		event("cannot be read", func(w *world) { w.poll.answer(i, errIO) })
	}
	if w.disks[i].part == vacant {
		event("is copied", func(w *world) { w.copyOthers(i) })
		return
	}
	event("is a member", func(w *world) {
		w.disks[i].part = voting
		w.replace(i)
	})
}

func (w *world) vacate(i int) {
	w.replaced--
	w.disks[i] = disk{content: damaged, part: vacant}
	w.replace(i)
}

// copyOthers gives the new disk at a vacant position what a read returns.
func (w *world) copyOthers(i int) {
	d := &w.disks[i]
	d.part = copied
	for j, other := range w.disks {
		if j != i && other.content == damaged {
			d.content = damaged
			return
		}
		d.content = max(d.content, other.content)
	}
}

// replace makes another disk the member, and repeats a read.
func (w *world) replace(i int) {
	var acked []Positions
	for _, waits := range w.waiters {
		acked = append(acked, waits.acked)
	}
	w.reg.replace(i, w.reg.lacked(), errIO)
	if w.forgets {
		w.reg.copies[i].next = nil
	}
	for n, waits := range w.waiters {
		if w.keeps {
			waits.acked = acked[n]
		}
	}
	if w.poll != nil {
		w.poll = newPoll(3, 1)
	}
}

func (w *world) write() {
	w.writes--
	w.submit(w.begun + 1)
}

func (w *world) submit(v int) {
	w.begun = v
	before := slices.Clone(w.reg.copies)
	waits := &waiter{}
	if err := w.reg.write(Version{Counter: uint64(v)}, [][]byte{content(v), content(v), content(v)}, waits); err != nil {
		w.fault = err.Error()
	}
	if w.mutation.write != nil {
		w.mutation.write(before, w.reg.copies)
	}
	w.waiters, w.dropped = append(w.waiters, waits), false
}

func (w *world) drop() {
	w.drops--
	w.reg.drop()
	w.dropped = true
	if w.repeats {
		for i := range w.reg.copies {
			w.reg.copies[i].once = false
		}
	}
}

// restart ends the process. The next one knows nothing of what was written, only which members have a
// request in flight.
func (w *world) restart() {
	w.restarts--
	w.succeed(earlier)
}

// leave ends the last process of the host.
func (w *world) leave() {
	w.leaves--
	w.succeed(former)
}

func (w *world) succeed(from origin) {
	for i := range w.disks {
		for n := range w.disks[i].requests {
			r := &w.disks[i].requests[n]
			r.from = max(r.from, from)
		}
	}
	w.reg, w.waiters, w.dropped = newRegister(0, 3), nil, false
	if w.outlives {
		w.older = 2<<w.begun - 1
	}
}

// mayLand reports whether the host knows of a request in flight.
func (w *world) mayLand() bool {
	return slices.ContainsFunc(w.disks[:], func(d disk) bool {
		return d.has(current) && w.ignores != current || d.has(earlier) && w.ignores != earlier
	})
}

func (d *disk) has(from origin) bool {
	return slices.ContainsFunc(d.requests, func(r request) bool { return r.from == from })
}

func (w *world) begin(i int) {
	if w.dropped {
		w.fault = "DROP: a copy is begun after it was dropped"
	}
	body := w.reg.begin(i)
	w.disks[i].requests = append(w.disks[i].requests, request{int(body[0]), w.reg.copies[i].version, false, current})
}

func (w *world) land(i, n int) {
	d := &w.disks[i]
	if v := d.requests[n].content; v < d.content {
		w.fault = fmt.Sprintf("BACK: member %d goes back from version %d to %d", i, d.content, v)
	}
	d.requests[n].landed = true
	d.content = d.requests[n].content
}

// acknowledge makes a request succeed. Those that failed before it on this member have landed
// before it, or never will.
func (w *world) acknowledge(i, n int) {
	d := &w.disks[i]
	if r := d.requests[n]; !r.landed || d.content < r.content {
		w.land(i, n)
	}
	d.lost &= w.older
	w.returned(i, n, nil)
}

// fail makes a request fail that did not land, or damaged the copy. If it landed, this follows from
// the event before.
func (w *world) fail(i, n int, torn bool) {
	w.failures--
	d := &w.disks[i]
	d.lost |= 1 << d.requests[n].content
	if torn {
		d.content = damaged
	}
	w.returned(i, n, errIO)
}

func (w *world) returned(i, n int, err error) {
	d, c := &w.disks[i], &w.reg.copies[i]
	r := d.requests[n]
	d.requests = slices.Delete(d.requests, n, n+1)
	if r.from != current {
		return
	}
	c.inFlight, c.version = content(r.content), r.version
	before := *c
	if w.failsNot {
		err = nil
	}
	w.reg.returned(i, err)
	if w.mutation.returned != nil {
		w.mutation.returned(before, c, err)
	}
	if w.mutation.waiters != nil && err == nil {
		w.mutation.waiters(w.waiters, i)
	}
	if n := slices.IndexFunc(d.requests, func(r request) bool { return r.from == current }); n >= 0 {
		c.inFlight = content(d.requests[n].content)
	}
}

// show counts the copy of a member.
func (w *world) show(i, v int) {
	w.poll.answer(i, nil)
	if v == damaged && w.invalid {
		v = 0
	}
	if v != damaged {
		w.poll.count(0, Version{Counter: uint64(v)})
	}
}

// settle lets writes and the read return, and checks what they return.
func (w *world) settle() {
	for _, d := range w.reg.decide() {
		if d.acked.Count() > 1 {
			w.floor = max(w.floor, int(d.version.Counter))
		}
		w.waiters = slices.DeleteFunc(w.waiters, func(waits *waiter) bool { return waits == d })
	}
	for _, waits := range w.waiters {
		if w.acks > 0 && waits.acked.Count() >= w.acks {
			w.floor = max(w.floor, int(waits.version.Counter))
		}
	}
	// decide changes the order of the others.
	slices.SortFunc(w.reg.waiting, func(a, b *waiter) int { return int(a.version.Counter) - int(b.version.Counter) })
	if w.poll == nil {
		return
	}
	r := w.poll.records[0]
	if w.poll.state() == pollSettled || w.copies > 0 && r.valid >= w.copies {
		if v := int(r.best.Counter); v < w.since || v > w.begun {
			w.fault = fmt.Sprintf("REGULAR: a read returns version %d after the write of %d had returned", v, w.since)
		}
		w.poll = nil
	} else if w.poll.state() != pollWaits {
		w.poll = nil
	}
}

// check returns the rule that a state breaks, "" if none.
func (w *world) check() string {
	idle := !w.dropped && int(w.reg.newest.Counter) == w.begun
	for i, c := range w.reg.copies {
		d := &w.disks[i]
		if acked := int(c.acked.Counter); acked != 0 && len(d.requests) == 0 && d.content != acked {
			return fmt.Sprintf("ACKED: member %d has version %d, not the acknowledged %d", i, d.content, acked)
		}
		idle = idle && len(d.requests) == 0 && c.next == nil && d.part == voting
	}
	if !idle {
		return w.fault
	}
	for i, d := range w.disks {
		if d.content != int(w.reg.newest.Counter) {
			return fmt.Sprintf("NEWEST: all is done, and member %d has version %d", i, d.content)
		}
	}
	if len(w.waiters) > 0 {
		return "STUCK: all is done, and a write has not returned"
	}
	return w.fault
}

// explore visits every state, breadth first, and returns the fault that it finds first and the
// events that lead there.
func explore(sc scenario, m mutation) (states int, fault string, trace []string) {
	type step struct {
		from  string
		event string
	}
	first := newWorld(sc, m)
	came := map[string]step{first.key(): {}}
	for todo := []*world{first}; len(todo) > 0; todo = todo[1:] {
		w := todo[0]
		key := w.key()
		if fault := w.check(); fault != "" {
			for came[key].event != "" {
				trace = append(trace, came[key].event)
				key = came[key].from
			}
			slices.Reverse(trace)
			return len(came), fault, trace
		}
		after := w.next()
		for _, event := range slices.Sorted(maps.Keys(after)) {
			k := after[event].key()
			if _, ok := came[k]; !ok {
				came[k] = step{key, event}
				todo = append(todo, after[event])
			}
		}
		todo[0] = nil
	}
	return len(came), "", nil
}

var full = flag.Bool("full", false, "explore the large scenarios too, which takes minutes")

// TestExplore: the record is a regular register in every order of requests that land, return and
// fail, writes and reads.
func TestExplore(t *testing.T) {
	for name, c := range map[string]struct {
		scenario
		large bool
	}{
		"two writes":                          {scenario{writes: 2, unread: 1, flicker: true}, false},
		"two writes, a failure":               {scenario{writes: 2, failures: 1}, false},
		"a write, two failures":               {scenario{writes: 1, failures: 2, unread: 1}, false},
		"two writes, a drop":                  {scenario{writes: 2, drops: 1}, false},
		"a write, a drop, a failure":          {scenario{writes: 1, failures: 1, drops: 1}, false},
		"a write, a replacement, a failure":   {scenario{writes: 1, failures: 1, replaced: 1}, false},
		"two writes, a replacement":           {scenario{writes: 2, replaced: 1, unread: 1}, false},
		"a write, a restart":                  {scenario{writes: 1, restarts: 1, unread: 1}, false},
		"two writes, a restart":               {scenario{writes: 2, restarts: 1}, false},
		"two writes, a restart, a failure":    {scenario{writes: 2, restarts: 1, failures: 1}, true},
		"two writes, two restarts":            {scenario{writes: 2, restarts: 2, unread: 1}, true},
		"two writes, a restart, then LEFT":    {scenario{writes: 2, restarts: 1, leaves: 1}, true},
		"three writes, a restart":             {scenario{writes: 3, restarts: 1}, true},
		"two writes, two replacements":        {scenario{writes: 2, replaced: 2, drops: 1, failures: 1}, true},
		"two writes, a drop, a failure":       {scenario{writes: 2, failures: 1, drops: 1, unread: 1}, true},
		"two writes, two failures":            {scenario{writes: 2, failures: 2, unread: 1, flicker: true}, true},
		"three writes":                        {scenario{writes: 3, unread: 1, flicker: true}, true},
		"three writes, a failure, no garbage": {scenario{writes: 3, failures: 1}, true},
	} {
		if c.large && !*full {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states, fault, trace := explore(c.scenario, mutation{})
			t.Logf("%d states", states)
			require.Empty(t, fault, strings.Join(trace, "\n"))
		})
	}
}

// TestMutations: the exploration notices the loss of each rule.
func TestMutations(t *testing.T) {
	for _, c := range []struct {
		rule  string
		fault string
		scenario
		mutation
	}{
		{"FIFO: a copy does not wait for the one before it", "BACK", scenario{writes: 2},
			mutation{begin: func(c *copyState) bool { return c.next != nil && !c.paused }}},
		{"NEWEST: the oldest content that waits is kept", "ACKED", scenario{writes: 2},
			mutation{write: func(before, after []copyState) {
				for i := range after {
					if before[i].next != nil {
						after[i].next = before[i].next
					}
				}
			}}},
		{"NEWEST: a write that failed is repeated over newer content", "ACKED", scenario{writes: 2, failures: 1},
			mutation{returned: func(before copyState, after *copyState, err error) {
				if err != nil {
					after.next = before.inFlight
				}
			}}},
		{"a write that failed is not repeated", "NEWEST", scenario{writes: 1, failures: 1},
			mutation{returned: func(before copyState, after *copyState, err error) {
				if err != nil {
					after.next, after.paused = before.next, false
				}
			}}},
		{"MAJORITY: one acknowledgement suffices", "REGULAR", scenario{writes: 1}, mutation{acks: 1}},
		{"MAJORITY: an older version is an acknowledgement", "REGULAR", scenario{writes: 2},
			mutation{waiters: func(ws []*waiter, i int) {
				for _, w := range ws {
					w.acked |= At(i)
				}
			}}},
		{"MAJORITY: a failure is an acknowledgement", "ACKED", scenario{writes: 1, failures: 1}, mutation{failsNot: true}},
		{"VALID: one copy suffices", "REGULAR", scenario{writes: 1}, mutation{copies: 1}},
		{"VALID: a damaged copy counts", "REGULAR", scenario{writes: 2, failures: 1}, mutation{invalid: true}},
		{"UNKNOWN: after a failure, the version before it counts as acknowledged", "ACKED", scenario{writes: 2, failures: 1},
			mutation{returned: func(before copyState, after *copyState, err error) {
				if err != nil {
					after.acked = before.acked
				}
			}}},
		{"a request that was in flight when it was dropped is repeated", "DROP", scenario{writes: 1, failures: 1, drops: 1},
			mutation{repeats: true}},
		{"FIFO: a process uses a member to which an earlier one has a request in flight", "ACKED", scenario{writes: 2, restarts: 1},
			mutation{shares: true}},
		{"LEFT: a host leaves with a request in flight", "ACKED", scenario{writes: 2, leaves: 1}, mutation{ignores: current}},
		{"LEFT: a host leaves with a request of an earlier process in flight", "ACKED", scenario{writes: 2, restarts: 1, leaves: 1},
			mutation{ignores: earlier}},
		{"a request of an earlier process that failed lands later", "ACKED", scenario{writes: 2, restarts: 1, failures: 1},
			mutation{outlives: true}},
		{"REPLACED: an acknowledgement of the disk before counts", "REGULAR", scenario{writes: 1, replaced: 1}, mutation{keeps: true}},
		{"REPLACED: the new member does not get what another lacks", "NEWEST", scenario{writes: 1, replaced: 1}, mutation{forgets: true}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			t.Parallel()
			states, fault, trace := explore(c.scenario, c.mutation)
			t.Logf("found after %d states: %s", states, fault)
			require.Equal(t, c.fault, strings.Split(fault, ":")[0], strings.Join(trace, "\n"))
		})
	}
}

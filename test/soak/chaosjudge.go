package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// chaosJudge decides from the beats of commands whether two held a lock at once. It does no IO.
// Times are on CLOCK_BOOTTIME; beats come in the order of their writes.
//
// A beat is an overlap if a section with a greater token wrote before it. There is one documented
// exception: nothing stops a command if neither its bakeryd nor its wrapper runs when its lease
// ends. The judge does not know that moment. bakeryd renews its lease every sixth of it, so the
// lease ends between 5/6 and 6/6 of it after bakeryd has last run.
//
//	bakeryd:  renews | does not run -----------------------------------| runs
//	wrapper:            | does not run ------------------------------------------|
//	lease:                          |<- 1/12 ->|<- ends within 1/6 ->|
//	                                ^ both must not run from here on  ... stopWithin
//	the beat:                                                            ^ the latest that is an exception
type chaosJudge struct {
	lease    time.Duration
	daemons  map[int]*outages // by host
	sections map[uint32]*chaosSection
	locks    map[uint32]*chaosLock

	kinds    map[string]int // number of sections, by trait
	excepted map[string]int // sections with an excepted overlap, by the reason why neither runs
	beats    int            // number of beats
	slowest  time.Duration
	found    []string // other overlaps
}

// chaosSection is one command under bakeryctl lock.
type chaosSection struct {
	host    int
	name    string
	traits  []string
	wrapper outages
	token   layout.Ticket
	begun   bool
	overlap bool // an overlap was found
	wrong   bool // an overlap was reported
}

func (s *chaosSection) String() string {
	return fmt.Sprintf("%s of host %d %v", s.name, s.host, s.traits)
}

// chaosLock is a lock's section with the greatest token.
type chaosLock struct {
	token   layout.Ticket
	section uint32
	since   time.Duration

	sections int
}

// stopWithin is how long bakeryd or a wrapper may take, once it runs again, to stop a command whose
// lease is over.
const stopWithin = time.Second

func newChaosJudge(lease time.Duration) *chaosJudge {
	return &chaosJudge{lease: lease, daemons: map[int]*outages{}, sections: map[uint32]*chaosSection{}, locks: map[uint32]*chaosLock{}, kinds: map[string]int{}, excepted: map[string]int{}}
}

// outages are the intervals in which a process does not run, in order.
type outages []outage

type outage struct {
	from, to time.Duration // to is 0 while it lasts
	why      string        // stopped, killed or ended
}

func (o outage) String() string {
	if o.to == 0 {
		return fmt.Sprintf("%s since %v", o.why, o.from)
	}
	return fmt.Sprintf("%s from %v to %v", o.why, o.from, o.to)
}

func (o *outages) begin(why string, at time.Duration) {
	if n := len(*o); n == 0 || (*o)[n-1].to != 0 {
		*o = append(*o, outage{from: at, why: why})
	}
}

// over is called when a wrapper has ended. If it did not stop its command (lost), and ended
// immediately after it continued, it had decided to end before it was stopped.
func (o *outages) over(lost bool, at time.Duration) {
	const immediately = 100 * time.Millisecond
	if n := len(*o); n > 0 && !lost && (*o)[n-1].to != 0 && at-(*o)[n-1].to < immediately {
		(*o)[n-1].to, (*o)[n-1].why = 0, "ended"
		return
	}
	o.begin("ended", at)
}

func (o *outages) end(at time.Duration) {
	if n := len(*o); n > 0 && (*o)[n-1].to == 0 {
		(*o)[n-1].to = at
	}
}

// covers returns the outage that began at or before from and lasts until to; false if there is
// none.
func (o outages) covers(from, to time.Duration) (outage, bool) {
	i := slices.IndexFunc(o, func(i outage) bool { return i.from <= from && (i.to == 0 || i.to >= to) })
	if i < 0 {
		return outage{}, false
	}
	return o[i], true
}

// take processes a beat.
func (j *chaosJudge) take(b beat) {
	s, l := j.sections[b.Section], j.locks[b.Lock]
	if l == nil {
		l = &chaosLock{}
		j.locks[b.Lock] = l
	}
	if !s.begun {
		s.begun, s.token = true, b.Token
		l.sections++
		for _, t := range s.traits {
			j.kinds[t]++
		}
	}
	switch {
	case b.Token > l.token:
		l.token, l.section, l.since = b.Token, b.Section, b.At
	case b.Token < l.token:
		j.overlaps(s, l, b)
	case b.Section != l.section:
		j.violate(s, "token %d twice: %s and %s", b.Token, s, j.sections[l.section])
	}
}

func (j *chaosJudge) overlaps(s *chaosSection, l *chaosLock, b beat) {
	why, ok := j.excepts(s, b.At)
	if !ok {
		j.violate(s, "two have lock %d at once: %s (token %d) writes at %v, while %s (token %d) has it since %v; bakeryd did not run %v, the wrapper %v",
			b.Lock, s, b.Token, b.At, j.sections[l.section], l.token, l.since, *j.daemons[s.host], s.wrapper)
		return
	}
	if !s.overlap {
		s.overlap = true
		j.excepted[why]++
	}
	j.beats++
}

func (j *chaosJudge) violate(s *chaosSection, format string, args ...any) {
	if !s.wrong {
		s.wrong = true
		j.found = append(j.found, fmt.Sprintf(format, args...))
	}
}

// excepts reports whether neither bakeryd nor the section's wrapper ran from the end of the lease
// until a moment.
func (j *chaosJudge) excepts(s *chaosSection, at time.Duration) (why string, ok bool) {
	lately := at - stopWithin
	d, ok := j.daemons[s.host].covers(lately, lately)
	if !ok {
		return "", false
	}
	ends := d.from + j.lease*3/4
	w, ok := s.wrapper.covers(ends, max(ends, lately))
	if !ok || at < ends {
		return "", false
	}
	for _, o := range []outage{d, w} {
		if o.to != 0 {
			j.slowest = max(j.slowest, at-o.to)
		}
	}
	return fmt.Sprintf("bakeryd %s, wrapper %s", d.why, w.why), true
}

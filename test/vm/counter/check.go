package counter

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Report is the result of Check.
type Report struct {
	Counter     Counter
	Sections    int         // number of ended sections
	Of          map[int]int // by host
	Last        uint64      // greatest token of an ended section
	Interrupted []Begun     // sections that began and did not end, by token
	Problems    []string    // contradictions to exclusion, in the order of tokens
}

// Begun is a section that has begun.
type Begun struct {
	Token uint64
	Host  int
}

// section is a section as a host has recorded it.
type section struct {
	begin note
	end   *note
}

// state is a state of the counter.
type state struct{ token, count uint64 }

// Read reads the counter.
func Read(disk io.ReaderAt) (Counter, error) {
	p := make([]byte, SectorSize)
	if _, err := disk.ReadAt(p, 0); err != nil {
		return Counter{}, fmt.Errorf("read the counter: %w", err)
	}
	return decodeCounter(p)
}

// Check reads a disk with the notes of a number of hosts, and judges it. The rule: in the order of
// tokens, each section finds the counter as the one before left it. A section that ended leaves one
// state. One that did not end may have died before it marked the counter, after that, or after it
// wrote the counter.
func Check(disk io.ReaderAt, hosts int) (Report, error) {
	r := Report{Of: map[int]int{}}
	var err error
	if r.Counter, err = Read(disk); errors.Is(err, errDamaged) {
		r.problem("the counter is damaged")
	} else if err != nil {
		return r, err
	}
	var sections []section
	for host := 1; host <= hosts; host++ {
		of, err := r.read(disk, host)
		if err != nil {
			return r, err
		}
		sections = append(sections, of...)
	}
	slices.SortStableFunc(sections, func(a, b section) int {
		return cmp.Compare(a.begin.token, b.begin.token)
	})
	r.follow(sections)
	return r, nil
}

func (r *Report) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// read returns the sections of one host.
func (r *Report) read(disk io.ReaderAt, host int) (sections []section, err error) {
	area := make([]byte, NotesSize)
	if _, err := disk.ReadAt(area, int64(host)*NotesSize); err != nil {
		return nil, fmt.Errorf("read the notes of host %d: %w", host, err)
	}
	var last *section
	for i := 0; i < mostNotes; i++ {
		n, err := decodeNote(area[i*SectorSize : (i+1)*SectorSize])
		switch {
		case errors.Is(err, errBlank):
			return sections, nil
		case err != nil:
			r.problem("note %d of host %d is damaged", i, host)
		case n.host != host:
			r.problem("note %d of host %d is of host %d", i, host, n.host)
		case n.kind == began && last != nil && n.token <= last.begin.token:
			r.problem("host %d began a section with token %d after one with token %d", host, n.token, last.begin.token)
			fallthrough
		case n.kind == began:
			sections = append(sections, section{begin: n})
			last = &sections[len(sections)-1]
		case last == nil || last.begin.token != n.token || last.end != nil:
			r.problem("host %d ended a section with token %d that it did not begin", host, n.token)
		case n.kind == intruded:
			r.problem("the section with token %d of host %d was under way when the counter had token %d", n.token, host, n.found)
		default:
			last.end = &n
			r.Sections++
			r.Of[host]++
			r.Last = max(r.Last, n.token)
		}
	}
	return sections, nil
}

// follow checks the sections in the order of their tokens.
func (r *Report) follow(sections []section) {
	allowed := []state{{}}
	before := "the blank disk" // that left the allowed state
	for i, s := range sections {
		b := s.begin
		if i > 0 && b.token == sections[i-1].begin.token {
			r.problem("token %d was given to host %d and to host %d", b.token, sections[i-1].begin.host, b.host)
		}
		if b.found >= b.token {
			r.problem("the section with token %d of host %d found the counter with token %d, which is not smaller", b.token, b.host, b.found)
		}
		found := state{b.found, b.count}
		if !slices.Contains(allowed, found) {
			r.problem("the section with token %d of host %d found count %d with token %d, which is not what %s left", b.token, b.host, b.count, b.found, before)
			allowed = []state{found}
		}
		before = fmt.Sprintf("the section with token %d of host %d", b.token, b.host)
		if s.end == nil {
			r.Interrupted = append(r.Interrupted, Begun{b.token, b.host})
			allowed = append(slices.Clone(allowed), state{b.token, b.count}, state{b.token, b.count + 1})
			continue
		}
		if s.end.count != b.count+1 {
			r.problem("%s found count %d and left %d", before, b.count, s.end.count)
		}
		allowed = []state{{b.token, s.end.count}}
	}
	if !slices.Contains(allowed, state{r.Counter.Token, r.Counter.Count}) {
		r.problem("the counter has count %d with token %d of host %d, which is not what %s left", r.Counter.Count, r.Counter.Token, r.Counter.Host, before)
	}
}

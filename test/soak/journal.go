package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// A diary is what clients write down of their own sections, in a file of their
// own: a line as each begins, has read, has written and has ended. It is
// held against the others at the end, without the store and its judge.

// entry is a line: what is known by then of a section, or of the part of it that has one mode.
type entry struct {
	Section  string        `json:"section"`
	Lock     string        `json:"lock"`
	Host     int           `json:"host"`
	Mode     layout.Mode   `json:"mode"`
	Token    layout.Ticket `json:"token"`
	Asked    time.Duration `json:"asked"`
	Since    time.Duration `json:"since"`
	Read     *uint64       `json:"read,omitempty"`
	Wrote    *uint64       `json:"wrote,omitempty"`
	End      time.Duration `json:"end,omitzero"`
	How      string        `json:"how,omitzero"` // empty: it was killed, or is not over
	Deadline time.Duration `json:"deadline,omitzero"`

	Failed string `json:"failed,omitzero"` // instead of all that: a lock was asked for in vain
}

type diary struct {
	mu   sync.Mutex // one line at a time
	file *os.File
}

func openDiary(path string) (*diary, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &diary{file: f}, err
}

func (d *diary) write(e entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err = d.file.Write(append(b, '\n'))
	return err
}

// readDiaries returns the parts of all sections, each by its last line, and how often what failed.
func readDiaries(paths []string) (parts []entry, failed map[string]int, err error) {
	type key struct {
		section string
		since   time.Duration
	}
	failed = map[string]int{}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, nil, err
		}
		last, order := map[key]entry{}, []key(nil)
		in := bufio.NewScanner(f)
		for in.Scan() {
			var e entry
			if err := json.Unmarshal(in.Bytes(), &e); err != nil {
				if bytes.HasSuffix(in.Bytes(), []byte("}")) {
					return nil, nil, errors.Join(fmt.Errorf("%s: %w: %s", path, err, in.Bytes()), f.Close())
				}
				continue // its writer was killed
			}
			if e.Failed != "" {
				failed[e.Failed]++
				continue
			}
			k := key{e.Section, e.Since}
			if _, ok := last[k]; !ok {
				order = append(order, k)
			}
			last[k] = e
		}
		if err := errors.Join(in.Err(), f.Close()); err != nil {
			return nil, nil, err
		}
		for _, k := range order {
			parts = append(parts, last[k])
		}
	}
	return parts, failed, nil
}

// checkDiaries returns what cannot be, where every lock is exclusive. Of a section that ended past its deadline, or whose
// host stood still, only the counter and the token are looked at: the store has turned away what came too late.
func checkDiaries(parts []entry, still func(host int, from, to time.Duration) bool) (found []string) {
	by := map[string][]entry{}
	for _, e := range parts {
		if e.Mode == layout.Exclusive {
			by[e.Lock] = append(by[e.Lock], e)
		}
	}
	for name, all := range by {
		if lockNamed(name).permits > 1 {
			continue
		}
		slices.SortFunc(all, func(a, b entry) int { return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Since, b.Since)) })
		found = append(found, checkLock(all, still)...)
	}
	return found
}

// checkLock holds the exclusive sections of a lock, in the order of their tokens, against each other.
func checkLock(all []entry, still func(host int, from, to time.Duration) bool) (found []string) {
	complain := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	expect := []uint64{0} // what the next one may read
	var last *entry       // the last one that is known to have ended in time
	for i := range all {
		e := &all[i]
		if i > 0 && e.Token == all[i-1].Token && e.Section != all[i-1].Section {
			complain("token %d of %q twice: %s and %s", e.Token, e.Lock, all[i-1].Section, e.Section)
		}
		if last != nil && e.Since < last.End {
			complain("two had %q at once, by their diaries: %s until %v, %s from %v", e.Lock, last.Section, last.End, e.Section, e.Since)
		}
		if e.How == endWell || e.How == endStopped {
			late := e.Deadline != 0 && e.End > e.Deadline || still(e.Host, e.Since, e.End)
			if !late && (last == nil || e.End > last.End) {
				last = e
			}
		}
		if e.Read == nil {
			continue // it did not come so far
		}
		if !slices.Contains(expect, *e.Read) && e.How != endRefused {
			complain("an update of %q was lost, by the diaries: %s (token %d) read %d, want %v", e.Lock, e.Section, e.Token, *e.Read, expect)
		}
		expect = after(e, expect)
	}
	return found
}

// after returns what the counter may be after a section that has read it.
func after(e *entry, before []uint64) []uint64 {
	switch {
	case e.Wrote != nil:
		return []uint64{*e.Wrote}
	case e.How == "":
		return []uint64{*e.Read, *e.Read + 1}
	case e.How == endRefused:
		return before // by the time that it read it may have been over
	}
	return []uint64{*e.Read}
}

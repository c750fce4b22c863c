package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const header = "# Written by go run ./test/explore. Do not edit."

// ledger is the result of an exploration of everything.
type ledger struct {
	date, took string
	sources    map[string]string // hash of each source
	states     map[string]string // number of states of each scenario; several are separated by spaces
	quick      map[string]bool   // which of the scenarios are quick ones
}

// encode returns the ledger as text: a line for each fact, its fields separated by tabs, and a
// checksum over all lines above it.
func (l ledger) encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\ndate\t%s\ntook\t%s\n", header, l.date, l.took)
	for _, name := range slices.Sorted(maps.Keys(l.sources)) {
		fmt.Fprintf(&b, "source\t%s\t%s\n", name, l.sources[name])
	}
	for _, name := range slices.Sorted(maps.Keys(l.states)) {
		kind := "large"
		if l.quick[name] {
			kind = "quick"
		}
		fmt.Fprintf(&b, "%s\t%s\t%s\n", kind, name, l.states[name])
	}
	return fmt.Appendf(b.Bytes(), "sum\t%x\n", sha256.Sum256(b.Bytes()))
}

// parse decodes a ledger. It returns an error if a line was changed, added or removed.
func parse(data []byte) (ledger, error) {
	l := ledger{sources: map[string]string{}, states: map[string]string{}, quick: map[string]bool{}}
	for line := range strings.Lines(string(data)) {
		switch f := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); {
		case len(f) == 2 && f[0] == "date":
			l.date = f[1]
		case len(f) == 2 && f[0] == "took":
			l.took = f[1]
		case len(f) == 3 && f[0] == "source":
			l.sources[f[1]] = f[2]
		case len(f) == 3:
			l.states[f[1]], l.quick[f[1]] = f[2], f[0] == "quick"
		}
	}
	if !bytes.Equal(l.encode(), data) {
		return ledger{}, errors.New("the ledger was edited: its checksum differs")
	}
	return l, nil
}

// ofQuick returns the states of the quick scenarios.
func (l ledger) ofQuick() map[string]string {
	states := maps.Clone(l.states)
	maps.DeleteFunc(states, func(name, _ string) bool { return !l.quick[name] })
	return states
}

// difference names what differs, or returns "" if nothing does.
func difference(then, now map[string]string) string {
	var all []string
	for name, hash := range now {
		if was, known := then[name]; !known {
			all = append(all, name+" is new")
		} else if was != hash {
			all = append(all, name)
		}
	}
	for name := range then {
		if _, known := now[name]; !known {
			all = append(all, name+" is gone")
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// total returns the sum of all numbers of states.
func total(states map[string]string) (sum int) {
	for _, list := range states {
		for _, n := range strings.Fields(list) {
			v, _ := strconv.Atoi(n) // checked when it was read from the explorer
			sum += v
		}
	}
	return sum
}

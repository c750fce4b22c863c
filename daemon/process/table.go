package process

import (
	"errors"
	"io/fs"
	"slices"
)

// Table returns all processes, read one after the other: the whole may never have been true at
// once. Those that /proc hides from this process (hidepid) are left out.
func Table() ([]Stat, error) {
	if err := CheckProc(); err != nil {
		return nil, err
	}
	pids, err := List()
	if err != nil {
		return nil, err
	}
	var table []Stat
	for _, pid := range pids {
		p, err := Read(pid)
		switch {
		case Gone(err), errors.Is(err, fs.ErrPermission): // one that cannot be read could not be signalled either
		case err != nil:
			return nil, err
		default:
			table = append(table, p)
		}
	}
	return table, nil
}

// Descendants returns the processes of the table that descend from one of the roots, parents before
// their children, without the roots. A process for which skip is true is left out, with all that
// descend from it.
func Descendants(table []Stat, roots []int, skip func(Stat) bool) []Stat {
	children := make(map[int][]Stat)
	for _, p := range table {
		if !skip(p) {
			children[p.Parent] = append(children[p.Parent], p)
		}
	}
	var found []Stat
	seen := map[int]bool{} // a table that was never true at once may have a circle
	visit := func(pid int) {
		if !seen[pid] {
			seen[pid] = true
			found = append(found, children[pid]...)
		}
	}
	for _, pid := range roots {
		visit(pid)
	}
	for i := 0; i < len(found); i++ {
		visit(found[i].PID)
	}
	return slices.DeleteFunc(found, func(p Stat) bool { return slices.Contains(roots, p.PID) })
}

package process

import (
	"errors"
	"fmt"
	"io/fs"
)

// Table returns all processes. It is no snapshot: processes may start and end during the read. It
// leaves out processes that /proc hides from this process (hidepid).
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
		case Gone(err), errors.Is(err, fs.ErrPermission): // an unreadable process cannot be signalled either
		case err != nil:
			return nil, err
		default:
			table = append(table, p)
		}
	}
	return table, nil
}

// Count formats a number of processes, which need not be known if it is 0.
func Count(n int) string {
	switch n {
	case 0:
		return "processes"
	case 1:
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}

// Descendants returns the processes of the table that descend from one of the roots, parents
// before their children, without the roots. It leaves out a process for which skip is true, with
// its descendants.
func Descendants(table []Stat, roots []int, skip func(Stat) bool) (found []Stat) {
	known := map[int]bool{}
	for _, pid := range roots {
		known[pid] = true
	}
	for before := -1; len(found) > before; { // a child may come before its parent
		before = len(found)
		for _, p := range table {
			if known[p.Parent] && !known[p.PID] && !skip(p) {
				known[p.PID] = true
				found = append(found, p)
			}
		}
	}
	return found
}

package process

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
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
func Descendants(table []Stat, roots []int, skip func(Stat) bool) []Stat {
	children := make(map[int][]Stat)
	for _, p := range table {
		if !skip(p) {
			children[p.Parent] = append(children[p.Parent], p)
		}
	}
	var found []Stat
	seen := map[int]bool{} // a table that is no snapshot may have a cycle
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

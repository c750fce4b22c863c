package sim

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/bakeryd/bakeryd/daemon/timeline"
)

// page draws what the hosts' event journals tell of a run that has failed, and
// says where; there may be nothing to draw.
func (r result) page(dir string) (string, error) {
	var sources []timeline.Source
	for _, path := range r.journals() {
		s, err := timeline.ReadFile(path)
		if err != nil {
			continue // of a host that had nothing to tell yet
		}
		sources = append(sources, s)
	}
	path := filepath.Join(dir, fmt.Sprintf("seed-%d.html", r.seed))
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	err = timeline.Write(f, sources, timeline.Options{Title: "simulation", Note: fmt.Sprintf("seed %d %s", r.seed, r.failed[0]), OneClock: true})
	return path, cmp.Or(err, f.Close())
}

// journals are the files of events that a run has left: of each machine, those of its last process, which have all.
func (r result) journals() (files []string) {
	machines, _ := filepath.Glob(filepath.Join(r.events, "*"))
	for _, m := range machines {
		runs, _ := filepath.Glob(filepath.Join(m, "*"))
		if len(runs) == 0 {
			continue
		}
		last := slices.MaxFunc(runs, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
		found, _ := filepath.Glob(filepath.Join(last, "*.events"))
		files = append(files, found...)
	}
	return files
}

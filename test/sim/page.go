package sim

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/bakeryd/bakeryd/daemon/timeline"
)

// page draws the hosts' event journals of a failed run, and prints where. There may be nothing to
// draw.
func (r result) page(dir string) (string, error) {
	var sources []timeline.Source
	for _, path := range r.journals() {
		s, err := timeline.ReadFile(path)
		if err != nil {
			continue // of a host without events
		}
		sources = append(sources, s)
	}
	t, err := timeline.Build(sources, timeline.Options{Title: "simulation", Note: fmt.Sprintf("seed %d %s", r.seed, r.failed[0]), OneClock: true})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("seed-%d.html", r.seed))
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	return path, cmp.Or(t.Write(f), f.Close())
}

// journals returns the event files of a run: of each machine the last process's, which has all
// events.
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

//go:build !race

package sim

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	first     = flag.Uint64("first", 1, "the first seed")
	seeds     = flag.Uint64("seeds", 6, "how many seeds")
	step      = flag.Uint64("step", 1, "from one seed to the next")
	traced    = flag.Bool("trace", false, "print what happens")
	all       = flag.Bool("all", false, "go on after a seed that breaks a rule")
	pages     = flag.String("pages", "", "directory for pages that show what has failed")
	sums      = flag.Bool("sums", false, "print the sum of each run")
	disksOnly = flag.Bool("several", false, "leave out the seeds with one disk")
	stays     = flag.Bool("standing", false, "one fault in each run, which stays")
)

// TestMain makes goroutines run one at a time, until they block or have run for 10 ms: the hosts of
// a simulation share its world without locks, which the race detector would report. With the
// overlay no goroutine is interrupted.
func TestMain(m *testing.M) {
	const setting = "asyncpreemptoff=1" // read when the runtime starts
	if debugs := os.Getenv("GODEBUG"); !strings.Contains(debugs, setting) {
		os.Setenv("GODEBUG", strings.TrimPrefix(debugs+","+setting, ","))
		path, err := os.Executable()
		if err == nil {
			err = syscall.Exec(path, os.Args, os.Environ())
		}
		panic(err)
	}
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

// TestSeeds runs seeds, and stops at the first that breaks a rule. Without the overlay, as in go
// test ./..., each run of a seed differs; test/sim/run repeats a run.
func TestSeeds(t *testing.T) {
	debug.SetGCPercent(-1) // a collection would start at an unpredictable moment
	debug.SetMemoryLimit(3 << 30)
	counts, waited, began := map[string]int{}, longest{}, time.Now()
	for i := range *seeds {
		seed := *first + i**step
		if *disksOnly && numberOfDisks(&world{seed: seed}, *stays) == 1 {
			continue
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			var r result
			if *traced {
				r = run(t, seed, *stays, os.Stdout)
			} else {
				r = run(t, seed, *stays, nil)
			}
			for what, n := range r.counts {
				counts[what] += n
			}
			counts["step"] += r.steps
			waited.add(r.stayed)
			if *sums {
				fmt.Printf("sum %d %016x %d\n", seed, r.sum, r.steps)
			}
			for _, text := range r.failed {
				fmt.Printf("seed %d %s\n", seed, text)
			}
			if len(r.failed) > 0 && *pages != "" {
				path, err := r.page(*pages)
				fmt.Printf("seed %d drawn in %s (%v)\n", seed, path, err)
			}
			require.Empty(t, r.failed, "seed %d", seed)
		})
		if t.Failed() && !*all {
			break
		}
		var m runtime.MemStats
		if runtime.ReadMemStats(&m); m.HeapAlloc > 1<<30 {
			runtime.GC()
		}
	}
	waited.print(os.Stdout)
	t.Logf("%d seeds in %v: %v", *seeds, time.Since(began).Round(time.Millisecond), counts)
}

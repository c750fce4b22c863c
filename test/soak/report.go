package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/bakeryd/bakeryd/layout"
)

// report is the result of a run, also as JSON.
type report struct {
	Seed       uint64                  `json:"seed"`
	Hosts      int                     `json:"hosts"`
	LeaseMS    int64                   `json:"lease_ms"`
	Sector     int                     `json:"sector"`
	Disks      int                     `json:"disks"`
	Seconds    float64                 `json:"seconds"`
	Sections   map[string]int          `json:"sections"` // by lock
	Faults     map[string]*faultReport `json:"faults"`
	Counts     map[string]int          `json:"counts"`   // other events
	Refusals   map[string]int          `json:"refusals"` // records that the store refused, by reason
	Ends       map[string]int          `json:"ends"`     // of sections, by the logs
	Failed     map[string]int          `json:"failed"`   // failed requests of clients
	ExitCodes  map[int]int             `json:"exit_codes"`
	WaitMS     waits                   `json:"wait_ms"`
	Porcupine  porcupineReport         `json:"porcupine"`
	Errors     map[string]int          `json:"log_errors"`
	Daemons    []daemonReport          `json:"daemons"`
	Leak       *leakReport             `json:"leak,omitempty"`
	Check      string                  `json:"check"`
	StallMS    int64                   `json:"stall_ms"` // longest time in which the soak itself did not run
	Violations []string                `json:"violations"`

	mu    sync.Mutex // guards all fields but waits, which the store's mutex guards
	began time.Time
	waits *hdrhistogram.Histogram // in µs
}

type faultReport struct {
	Injected   int     `json:"injected"`
	Recovered  int     `json:"recovered"`
	MeanMS     float64 `json:"recovery_mean_ms"`
	MostMS     float64 `json:"recovery_most_ms"`
	recoveries []time.Duration
}

type waits struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Most float64 `json:"most"`
}

type porcupineReport struct {
	Windows    int `json:"windows"`
	Operations int `json:"operations"`
	Undecided  int `json:"undecided"`
}

func newReport(o options, sector int) *report {
	return &report{Seed: o.seed, Hosts: o.hosts, LeaseMS: o.lease.Milliseconds(), Sector: sector, Disks: o.disks, Sections: map[string]int{},
		Faults: map[string]*faultReport{}, Counts: map[string]int{}, Refusals: map[string]int{}, Ends: map[string]int{}, Failed: map[string]int{},
		ExitCodes: map[int]int{}, Errors: map[string]int{}, Violations: []string{}, began: time.Now(),
		waits: hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3)}
}

// saw counts an accepted record.
func (r *report) saw(a record) {
	if a.Kind == recordEnter {
		_ = r.waits.RecordValue(max(1, (a.Granted - a.Asked).Microseconds())) // less than an hour
	}
}

func (r *report) fault(name string) *faultReport {
	if r.Faults[name] == nil {
		r.Faults[name] = &faultReport{}
	}
	return r.Faults[name]
}

func (r *report) inject(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault(name).Injected++
}

// withdraw takes back a fault that had no occasion.
func (r *report) withdraw(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault(name).Injected--
}

func (r *report) recover(name string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.fault(name)
	f.Recovered++
	f.recoveries = append(f.recoveries, took)
}

func (r *report) count(what string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Counts[what] += n
}

func (r *report) injected(fault string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault(fault).Injected
}

func (r *report) stalled(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.StallMS = max(r.StallMS, d.Milliseconds())
}

func (r *report) exits(code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ExitCodes[code]++
}

func (r *report) logged(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Errors[what]++
}

func (r *report) checked(said string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Check = strings.TrimSpace(said)
}

// manyViolations is how many violations are kept.
const manyViolations = 50

func (r *report) violate(what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.Violations) == manyViolations {
		return false
	}
	r.Violations = append(r.Violations, what)
	return true
}

func (r *report) violations() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.Violations)
}

func (r *report) sectionLogs(parts []entry, failed map[string]int, checked porcupineReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Failed, r.Porcupine = failed, checked
	for _, e := range parts {
		how := e.How
		if how == "" {
			how = "killed"
		}
		r.Ends[how]++
		if e.Mode == layout.Shared {
			r.Counts["sections that shared their lock"]++
		}
	}
}

// settle computes the printed values from the counts.
func (r *report) settle(s *soak) {
	sections := s.sections()
	s.store.with(func(j *judge) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.Sections = sections
		r.Refusals = maps.Clone(j.refusals)
		ms := func(q float64) float64 { return float64(r.waits.ValueAtQuantile(q)) / 1000 }
		r.WaitMS = waits{P50: ms(50), P99: ms(99), Most: ms(100)}
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Seconds = time.Since(r.began).Seconds()
	for _, f := range r.Faults {
		sum, most := time.Duration(0), time.Duration(0)
		for _, d := range f.recoveries {
			sum, most = sum+d, max(most, d)
		}
		if n := len(f.recoveries); n > 0 {
			f.MeanMS, f.MostMS = float64((sum / time.Duration(n)).Milliseconds()), float64(most.Milliseconds())
		}
	}
}

func (r *report) totals() (sections, injected, recovered int) {
	for _, n := range r.Sections {
		sections += n
	}
	for _, f := range r.Faults {
		injected += f.Injected
		recovered += f.Recovered
	}
	return sections, injected, recovered
}

// line returns the state as one line.
func (r *report) line(s *soak) string {
	r.settle(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	sections, injected, recovered := r.totals()
	var by []string
	for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
		by = append(by, fmt.Sprintf("%s %d", name, r.Faults[name].Injected))
	}
	return fmt.Sprintf("%v: %d sections, %d faults (%s), %d recovered, wait p50 %.0f ms p99 %.0f ms, %d refused, %d violations",
		time.Since(r.began).Round(time.Second), sections, injected, strings.Join(by, ", "), recovered, r.WaitMS.P50, r.WaitMS.P99,
		sum(r.Refusals), len(r.Violations))
}

func sum[K comparable](m map[K]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

func (r *report) finish(s *soak) { r.settle(s) }

// write prints the report, and writes the JSON to a file if one is given.
func (r *report) write(w io.Writer, path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text(w)
	if path == "" {
		return nil
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

func (r *report) text(w io.Writer) {
	sections, injected, recovered := r.totals()
	fmt.Fprintf(w, "\nseed %d, %d hosts, disks %d, lease %v, sectors of %d bytes, %.0f s\n",
		r.Seed, r.Hosts, r.Disks, time.Duration(r.LeaseMS)*time.Millisecond, r.Sector, r.Seconds)
	fmt.Fprintf(w, "sections    %d: %s\n", sections, inOrder(r.Sections))
	fmt.Fprintf(w, "  ended     %s\n", inOrder(r.Ends))
	fmt.Fprintf(w, "  refused   %s\n", inOrder(r.Refusals))
	fmt.Fprintf(w, "not granted %s\n", inOrder(r.Failed))
	codes := map[string]int{}
	for code, n := range r.ExitCodes {
		codes[fmt.Sprint("code ", code)] = n
	}
	fmt.Fprintf(w, "bakeryctl   %s\n", inOrder(codes))
	fmt.Fprintf(w, "wait        p50 %.1f ms, p99 %.1f ms, at most %.0f ms\n", r.WaitMS.P50, r.WaitMS.P99, r.WaitMS.Most)
	fmt.Fprintf(w, "porcupine   %d windows with %d operations, %d undecided\n", r.Porcupine.Windows, r.Porcupine.Operations, r.Porcupine.Undecided)
	fmt.Fprintf(w, "faults      %d, recovered %d\n", injected, recovered)
	for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
		f := r.Faults[name]
		fmt.Fprintf(w, "  %-14s %4d, recovered %4d, in %.0f ms on average, %.0f ms at most\n", name, f.Injected, f.Recovered, f.MeanMS, f.MostMS)
	}
	fmt.Fprintf(w, "other       %s\n", inOrder(r.Counts))
	fmt.Fprintf(w, "stalls      at most %d ms in which the soak itself was kept from running\n", r.StallMS)
	fmt.Fprintf(w, "log errors  %s\n", inOrder(r.Errors))
	for _, d := range r.Daemons {
		fmt.Fprintf(w, "bakeryd %d   %s\n", d.Host, d)
	}
	if r.Leak != nil {
		fmt.Fprintf(w, "leaks       %s\n", r.Leak)
	}
	fmt.Fprintf(w, "check       %s\n", strings.ReplaceAll(r.Check, "\n", "\n            "))
	fmt.Fprintf(w, "violations  %d\n", len(r.Violations))
	for _, v := range r.Violations {
		fmt.Fprintf(w, "  %s\n", v)
	}
}

func inOrder(counts map[string]int) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s %d", k, counts[k]))
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

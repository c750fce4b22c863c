package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bakeryd/bakeryd/test/bench/scale"
)

// results are the results of all parts; nil: not measured.
type results struct {
	files map[string]kept

	machine   *machine
	bench     *benchReport
	rivals    *rivalry
	wrapper   []*series
	formatted []*series
	idle      *idling
	scale     *scale.Result
}

// benchReport is the output of bakeryctl bench --json. A skipped measurement is nil, and in
// Skipped.
type benchReport struct {
	Floor       *distribution `json:"floor"`
	Toy         *distribution `json:"toy"`
	Uncontended *ratioed      `json:"uncontended"`
	InProcess   *ratioed      `json:"in_process"`
	Reacquire   *reacquired   `json:"reacquire"`
	HandOver    *ratioed      `json:"handover"`
	HandOff     *handOff      `json:"handoff"`
	Skipped     []omission    `json:"skipped"`
}

type distribution struct {
	Count  float64 `json:"count"`
	MeanUS float64 `json:"mean_us"`
	P50US  float64 `json:"p50_us"`
	P90US  float64 `json:"p90_us"`
	P99US  float64 `json:"p99_us"`
	P999US float64 `json:"p999_us"`
	MaxUS  float64 `json:"max_us"`
}

// ratioed is a distribution with its floor.
type ratioed struct {
	distribution
	FloorP50US float64 `json:"floor_p50_us"`
	Ratio      float64 `json:"ratio"`

	// Of what is added to the floor, only through the socket.
	AddedUS    float64 `json:"added_us"`
	ToyP50US   float64 `json:"toy_p50_us"`
	AddedRatio float64 `json:"added_ratio"`
}

type reacquired struct {
	distribution
	WithoutIO float64 `json:"without_io"`
	ToyP50US  float64 `json:"toy_p50_us"`
	Ratio     float64 `json:"ratio"`
}

type handOff struct {
	PerSecond          float64 `json:"per_second"`
	InProcessPerSecond float64 `json:"in_process_per_second"` // 0: not measured
	Clients            float64 `json:"clients"`
	Ratio              float64 `json:"ratio"`
	ByClients          []crowd `json:"by_clients"`
}

type crowd struct {
	Clients      float64      `json:"clients"`
	PerSecond    float64      `json:"per_second"`
	ToyPerSecond float64      `json:"toy_per_second"`
	Ratio        float64      `json:"ratio"`
	Wait         distribution `json:"wait"`
	ToyWait      distribution `json:"toy_wait"`
}

// load reads the results of the parts from a directory.
func load(dir string) (*results, error) {
	r := &results{files: map[string]kept{}}
	for _, p := range parts {
		path := filepath.Join(dir, p.name+".json")
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var k kept
		if err == nil {
			err = json.Unmarshal(b, &k)
		}
		if err == nil && k.Skipped == "" {
			err = r.take(k)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		r.files[p.name] = k
	}
	return r, nil
}

func (r *results) take(k kept) error {
	into := map[string]any{"machine": &r.machine, "bench": &r.bench, "rivals": &r.rivals, "wrapper": &r.wrapper,
		"formatted": &r.formatted, "idle": &r.idle, "scale": &r.scale}[k.Part]
	if into == nil {
		return fmt.Errorf("no part is called %q", k.Part)
	}
	return json.Unmarshal(k.Result, into)
}

// of returns the series of a name, or nil.
func of(all []*series, name string) *series {
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	return nil
}

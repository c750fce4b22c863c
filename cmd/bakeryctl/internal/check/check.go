// Package check verifies a lockspace on a device by package daemon/lockspace/check, repairs it by
// package daemon, and prints the result. It knows no flags.
package check

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/layout"
)

// Report is the result of a check, after the repairs.
type Report struct {
	UUID     layout.UUID `json:"uuid"`
	Name     string      `json:"name"`
	Errors   int         `json:"errors"`
	Warnings int         `json:"warnings"`
	Notes    int         `json:"notes"`
	*check.Result
	Repairs []Repair `json:"repairs"`
}

// Repair is the result for one damaged record.
type Repair struct {
	daemon.Repaired
	Error string `json:"error"` // why nothing was changed
}

// Run verifies the lockspace at path. If repair is true, it repairs and verifies again. It shows
// its progress on stderr.
func Run(ctx context.Context, path string, repair bool, stderr io.Writer) (*Report, error) {
	p := render.StartProgress(stderr)
	defer p.Stop()
	o := check.Options{Progress: p.Message, Counter: p.Counter()}
	c, err := verify(ctx, path, o)
	if err != nil {
		return nil, err
	}
	repairs := []Repair{}
	if repair && slices.ContainsFunc(c.Findings, func(f check.Finding) bool { return f.Repair }) {
		repaired, err := daemon.Repair(ctx, c, daemon.Config{Devices: []string{path}, Logger: ondevice.Logger(p.Log())}, o.Progress)
		if ctx.Err() != nil {
			return nil, &cli.Failure{Code: cli.ExitInterrupted, Err: err}
		}
		if err != nil {
			return nil, ondevice.Failure(fmt.Errorf("repair the lockspace on %s: %w", path, err))
		}
		for _, r := range repaired {
			one := Repair{Repaired: r}
			if r.Err != nil {
				one.Error = r.Err.Error()
			}
			repairs = append(repairs, one)
		}
		if c, err = verify(ctx, path, o); err != nil {
			return nil, err
		}
	}
	return &Report{c.Superblock.UUID, c.Superblock.Name,
		c.Count(check.SeverityError), c.Count(check.SeverityWarning), c.Count(check.SeverityNote), c, repairs}, nil
}

func verify(ctx context.Context, path string, o check.Options) (*check.Result, error) {
	c, err := ondevice.Read([]string{path}, func(dev blockdev.Device) (*check.Result, error) { return check.Check(ctx, dev, o) })
	if err != nil && ctx.Err() != nil {
		return nil, &cli.Failure{Code: cli.ExitInterrupted}
	}
	return c, err
}

// Show writes the repairs, the findings, the worst first, and a summary.
func (r *Report) Show(w io.Writer, p render.Paint) {
	for _, r := range r.Repairs {
		result := cmp.Or(r.Error, "readable now")
		if r.Error == "" && r.Done != "" {
			result = "repaired: " + r.Done
		}
		fmt.Fprintf(w, "%s at byte %d: %s\n", r.What, r.Offset, result)
	}
	var counts []string
	for _, s := range []struct {
		check.Severity
		level render.Level
		n     int
	}{
		{check.SeverityError, render.Bad, r.Errors},
		{check.SeverityWarning, render.Warn, r.Warnings},
		{check.SeverityNote, render.Soft, r.Notes},
	} {
		if s.n > 0 {
			counts = append(counts, render.Count(s.n, string(s.Severity)))
		}
		for _, f := range r.Findings {
			if f.Severity == s.Severity {
				fmt.Fprintf(w, "%s: %s at byte %d: %s\n  %s\n", p.Of(s.level, string(f.Severity)), f.What, f.Offset, f.Problem, f.Remedy)
			}
		}
	}
	fmt.Fprintf(w, "%s: %s, %s, %s\n", cmp.Or(strings.Join(counts, ", "), "clean"),
		render.Count(r.Hosts, "host"), render.Count(r.Locks, "lock"), render.Count(r.Records, "record"))
}

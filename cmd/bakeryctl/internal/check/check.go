// Package check verifies a lockspace on a device, or on several, by package daemon/lockspace/check, repairs it by
// package daemon, and prints the result. It knows no flags.
package check

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// Report is the result of a check, after the repairs.
type Report struct {
	UUID     layout.UUID `json:"uuid"`
	Name     string      `json:"name"`     // name of the lockspace, at most 64 bytes; may be empty
	Errors   int         `json:"errors"`   // number of findings of that severity
	Warnings int         `json:"warnings"` // number of findings of that severity
	Notes    int         `json:"notes"`    // number of findings of that severity
	*check.Result
	Repairs []Repair `json:"repairs"` // with --repair
}

// Repair is the result for one damaged record.
type Repair struct {
	daemon.Repaired
	Error string `json:"error"` // why nothing was changed
}

// Devices returns the paths of the disks that the bakeryd at socket serves, without those that hang: a read of one may
// keep this process from ending.
func Devices(ctx context.Context, socket string) (paths []string, err error) {
	status, err := show.Ask(ctx, socket)
	if err != nil {
		return nil, &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("no DEVICE given, and bakeryd is asked for it: %w", err),
			Hint: "run bakeryctl check DEVICE..., with all disks of the lockspace"}
	}
	for _, d := range status.Disks {
		if path, _, _ := strings.Cut(d.Device, " or "); path != "" && d.State != "hangs" { // the first of several paths to it
			paths = append(paths, path)
		}
	}
	if paths == nil {
		paths = []string{status.Lockspace.Device}
	}
	for _, path := range paths {
		if !filepath.IsAbs(path) {
			return nil, &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("no DEVICE given, and bakeryd has the relative path %s", text.Printable(path)),
				Hint: "run bakeryctl check DEVICE..., with all disks of the lockspace"}
		}
	}
	return paths, nil
}

// Run verifies the lockspace on the disks at paths. If repair is true, it repairs and verifies again. It shows
// its progress on stderr.
func Run(ctx context.Context, paths []string, repair bool, stderr io.Writer) (*Report, error) {
	p := render.StartProgress(stderr)
	defer p.Stop()
	o := check.Options{Progress: p.Message, Counter: p.Counter()}
	c, err := verify(ctx, paths, o)
	if err != nil {
		return nil, err
	}
	repairs := []Repair{}
	if repair && slices.ContainsFunc(c.Findings, func(f check.Finding) bool { return f.Repair }) {
		repaired, err := daemon.Repair(ctx, c, daemon.Config{Devices: paths, Logger: ondevice.Logger(p.Log())}, o.Progress)
		if ctx.Err() != nil {
			return nil, &cli.Failure{Code: cli.ExitInterrupted, Err: err}
		}
		if err != nil {
			return nil, ondevice.Failure(fmt.Errorf("repair the lockspace on %s: %w", strings.Join(paths, ", "), err))
		}
		for _, r := range repaired {
			one := Repair{Repaired: r}
			if r.Err != nil {
				one.Error = r.Err.Error()
			}
			repairs = append(repairs, one)
		}
		if c, err = verify(ctx, paths, o); err != nil {
			return nil, err
		}
	}
	return &Report{c.Superblock.UUID, c.Superblock.Name,
		c.Count(check.SeverityError), c.Count(check.SeverityWarning), c.Count(check.SeverityNote), c, repairs}, nil
}

func verify(ctx context.Context, paths []string, o check.Options) (*check.Result, error) {
	c, err := ondevice.Read(ctx, paths, func(dev blockdev.Device) (*check.Result, error) { return check.Check(ctx, dev, o) })
	if err != nil && ctx.Err() != nil {
		return nil, &cli.Failure{Code: cli.ExitInterrupted}
	}
	if err == nil {
		c.Findings = append(c.Findings, strangers(paths, c.Disks)...)
	}
	return c, err
}

// strangers returns a finding for each path that leads to no member disk.
func strangers(paths []string, members []check.Disk) (found []check.Finding) {
	for _, path := range paths {
		isMember := func(d check.Disk) bool { return slices.Contains(strings.Split(d.Device, " or "), path) }
		if len(members) > 0 && !slices.ContainsFunc(members, isMember) {
			found = append(found, check.Finding{Severity: check.SeverityWarning, What: "disk " + text.Printable(path),
				Problem: "it is no member of the lockspace, and was not verified", Remedy: "check the path; bakeryctl disks shows the members"})
		}
	}
	return found
}

// subject returns the record or the disk of a finding.
func (r *Report) subject(f check.Finding) string {
	if f.Kind != "" {
		return fmt.Sprintf("%s at byte %d%s", f.What, f.Offset, r.onDisk(f.Disk, " of disk %d, %s"))
	}
	return cmp.Or(r.onDisk(f.Disk, "disk %d, %s"), f.What)
}

// onDisk formats the position and the path of a member disk, and returns nothing if there is none.
func (r *Report) onDisk(position int, format string) string {
	for _, d := range r.Disks {
		if d.Position == position {
			return fmt.Sprintf(format, position, d.Device)
		}
	}
	return ""
}

// Show writes the repairs, the findings, the worst first, and a summary.
func (r *Report) Show(w io.Writer, p render.Paint) {
	for _, one := range r.Repairs {
		result := cmp.Or(one.Error, "readable now")
		if one.Error == "" && one.Done != "" {
			result = "repaired: " + one.Done
		}
		fmt.Fprintf(w, "%s at byte %d%s: %s\n", one.What, one.Offset, r.onDisk(one.Disk, " of disk %d, %s"), result)
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
				fmt.Fprintf(w, "%s: %s: %s\n  %s\n", p.Of(s.level, string(f.Severity)), r.subject(f), f.Problem, f.Remedy)
			}
		}
	}
	fmt.Fprintf(w, "%s: %s, %s, %s\n", cmp.Or(strings.Join(counts, ", "), "clean"),
		render.Count(r.Hosts, "host"), render.Count(r.Locks, "lock"), render.Count(r.Records, "record"))
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/layout"
)

func newCheck(a *app) *cobra.Command {
	var repair bool
	cmd := &cobra.Command{
		Use:   "check DEVICE",
		Short: "Verify every record of a lockspace, and repair damage",
		Long: `Verify every record of a lockspace, and their consistency. check writes nothing, and
the lockspace may be in use: suspicious records are read again before they are
reported. If a dead host could have left such a record, check watches for almost half
a lease whether that host is running.

Each finding says what to do about it. --repair does so for these records:
  - the superblock or its copy: it is rewritten from the other one.
  - the record of a host, if no bakeryd rewrites it: bakeryctl waits until that host
    cannot be running, joins with its id and leaves; the record then says left. With
    the policies fence and manual, --repair confirms that the host is off.
  - an entry of the directory: a bakeryd that has used the lock is asked to restore
    it. If a host died while writing the entry, that write is completed. Otherwise,
    if no other host is running, the entry is freed and the name of the lock is lost.

For entries bakeryctl joins the lockspace as a host. Only the host that owns a slot
writes it.

Exit codes:
  0   no errors, or all were repaired; there may be warnings and notes
  1   errors were found
  64  the command line is wrong
  66  the device or its lockspace is not usable`,
		Example: `  bakeryctl check /dev/mapper/locks
  bakeryctl check /dev/mapper/locks --repair
  bakeryctl check /dev/mapper/locks --json | jq '.findings[] | select(.severity == "error")'`,
		Args: one("DEVICE", nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return a.check(ctx, args[0], repair)
		},
	}
	cmd.Flags().BoolVar(&repair, "repair", false, "repair damaged records")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	a.colourFlag(cmd)
	return cmd
}

// check verifies the lockspace. If repair is true, it repairs and verifies again.
func (a *app) check(ctx context.Context, path string, repair bool) error {
	p := render.StartProgress(a.stderr)
	defer p.Stop()
	o := check.Options{Progress: p.MessagePrinter(a.stderr), Counter: p.Counter()}
	c, err := checkDevice(ctx, path, o)
	if err != nil {
		return err
	}
	var repaired []daemon.Repaired
	if repair && slices.ContainsFunc(c.Findings, func(f check.Finding) bool { return f.Repair }) {
		repaired, err = daemon.Repair(ctx, path, c, daemon.RepairOptions{
			Progress: o.Progress,
			Config:   daemon.Config{Logger: ondevice.Logger(p.Log(a.stderr))},
		})
		if ctx.Err() != nil {
			return &cli.Failure{Code: cli.ExitInterrupted, Err: err}
		}
		if err != nil {
			return &cli.Failure{Code: cli.ExitNoDevice, Err: fmt.Errorf("repair the lockspace on %s: %w", path, err), Hint: ondevice.Hint(err)}
		}
		if c, err = checkDevice(ctx, path, o); err != nil {
			return err
		}
	}
	p.Stop()
	err = a.print(checkJSON(c, repaired), func(w io.Writer) error { return showCheck(w, c, repaired, a.paint()) })
	if err == nil && c.Count(check.SeverityError) > 0 {
		err = &cli.Failure{Code: cli.ExitConflict}
	}
	return err
}

func checkDevice(ctx context.Context, path string, o check.Options) (*check.Result, error) {
	dev, _, _, err := lockspace.OpenLockspace(path, true)
	if err == nil {
		defer dev.Close()
		var c *check.Result
		if c, err = check.Check(ctx, dev, o); err == nil {
			return c, nil
		}
	}
	if ctx.Err() != nil {
		return nil, &cli.Failure{Code: cli.ExitInterrupted}
	}
	return nil, ondevice.Failure(err)
}

// showCheck writes the repairs, the findings, the worst first, and a summary.
func showCheck(w io.Writer, c *check.Result, repaired []daemon.Repaired, p render.Paint) error {
	var b strings.Builder
	for _, r := range repaired {
		switch {
		case r.Err != nil:
			fmt.Fprintf(&b, "%s at byte %d: %v\n", r.What, r.Offset, r.Err)
		case r.Done == "":
			fmt.Fprintf(&b, "%s at byte %d: readable now\n", r.What, r.Offset)
		default:
			fmt.Fprintf(&b, "%s at byte %d: repaired: %s\n", r.What, r.Offset, r.Done)
		}
	}
	var counts []string
	for _, s := range []struct {
		check.Severity
		level render.Level
	}{{check.SeverityError, render.Bad}, {check.SeverityWarning, render.Warn}, {check.SeverityNote, render.Soft}} {
		if n := c.Count(s.Severity); n > 0 {
			counts = append(counts, render.Count(n, string(s.Severity)))
		}
		for _, f := range c.Findings {
			if f.Severity == s.Severity {
				fmt.Fprintf(&b, "%s: %s at byte %d: %s\n  %s\n", p.Of(s.level, string(f.Severity)), f.What, f.Offset, f.Problem, f.Remedy)
			}
		}
	}
	fmt.Fprintf(&b, "%s: %s, %s, %s\n", cmp.Or(strings.Join(counts, ", "), "clean"),
		render.Count(c.Hosts, "host"), render.Count(c.Locks, "lock"), render.Count(c.Records, "record"))
	_, err := io.WriteString(w, b.String())
	return err
}

func checkJSON(c *check.Result, repaired []daemon.Repaired) any {
	type repairJSON struct {
		What   string `json:"what"`
		Offset int64  `json:"offset"`
		Done   string `json:"done"`
		Error  string `json:"error"`
	}
	repairs := []repairJSON{}
	for _, r := range repaired {
		j := repairJSON{What: r.What, Offset: r.Offset, Done: r.Done}
		if r.Err != nil {
			j.Error = r.Err.Error()
		}
		repairs = append(repairs, j)
	}
	return struct {
		Device   string          `json:"device"`
		UUID     layout.UUID     `json:"uuid"`
		Name     string          `json:"name"`
		Hosts    int             `json:"hosts"`
		Locks    int             `json:"locks"`
		Records  int             `json:"records"`
		Errors   int             `json:"errors"`
		Warnings int             `json:"warnings"`
		Notes    int             `json:"notes"`
		Findings []check.Finding `json:"findings"`
		Repairs  []repairJSON    `json:"repairs"`
	}{c.Device, c.Superblock.UUID, c.Superblock.Name, c.Hosts, c.Locks, c.Records,
		c.Count(check.SeverityError), c.Count(check.SeverityWarning), c.Count(check.SeverityNote),
		append([]check.Finding{}, c.Findings...), repairs}
}

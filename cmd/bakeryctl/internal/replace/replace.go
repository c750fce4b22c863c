// Package replace replaces a member disk of a lockspace on several, by package daemon/replacement, and prints the result.
// It knows no flags.
package replace

import (
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
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/lockspace/replace"
	"github.com/bakeryd/bakeryd/daemon/replacement"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// Run replaces the disk old of the lockspace on the disks at paths by the one at path. It shows its progress
// on stderr.
func Run(ctx context.Context, paths []string, old, path string, force bool, stderr io.Writer) (*replacement.Replaced, error) {
	p := render.StartProgress(stderr)
	defer p.Stop()
	done, err := replacement.Replace(ctx, daemon.Config{Devices: paths, Logger: ondevice.Logger(p.Log())}, replacement.Order{
		Old: old, New: path, Force: force, Counter: p.Counter(), Progress: func(message string) { p.Message("bakeryctl: " + message) },
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, &cli.Failure{Code: cli.ExitInterrupted, Err: err}
	case err != nil:
		return nil, cli.Advise(err, cli.ExitNoDevice, advice)
	}
	return done, nil
}

// advice are the hints for errors of Run.
var advice = slices.Concat([]cli.Advice{
	{Err: replace.ErrNoMember, Code: cli.ExitUsage},
	{Err: format.ErrOccupied, Hint: "use --force to destroy the contents"},
	{Err: lockspace.ErrStride}, // these name the remedy
	{Err: lockspace.ErrDeviceSize},
	{Err: blockdev.ErrTooSmall, Hint: "give another disk, or make the file as large as those of the other disks"},
	{Err: replace.ErrOtherLockspace},
	{Err: replacement.ErrRefused},
	{Err: replacement.ErrIncomplete},
	{Err: lease.ErrFull, Hint: "stop bakeryd on a host that is not needed: the command joins as a host"},
}, ondevice.Advice)

// Paths returns the paths of the disks of a lockspace that bakeryd reported.
func Paths(r *report.Report) (paths []string) {
	for _, d := range r.Disks {
		if d.Device != "" && !strings.Contains(d.Device, " or ") { // paths that may lead to a lost disk
			paths = append(paths, d.Device)
		}
	}
	if len(r.Disks) == 0 {
		paths = []string{r.Lockspace.Device}
	}
	return paths
}

// Show writes the result.
func Show(w io.Writer, r *replacement.Replaced) {
	fmt.Fprintf(w, "replaced disk %d of lockspace %s\n", r.Position, lockspace.DescribeSuperblock(r.Lockspace))
	if !r.Old.IsZero() {
		fmt.Fprintf(w, "  old\t%v\n", r.Old)
	}
	fmt.Fprintf(w, "  new\t%v %s\n", r.New, text.Printable(r.Device))
	if r.Unreadable > 0 {
		fmt.Fprintf(w, "  unreadable\t%s, which could not be read; bakeryctl check names them\n", render.Count(r.Unreadable, "record"))
	}
	fmt.Fprintf(w, "  next\tcheck with bakeryctl disks on every host, then remove the path of the old disk, if it is another one, from BAKERYD_DEVICE\n")
}

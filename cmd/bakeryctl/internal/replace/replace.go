// Package replace replaces a member disk of a lockspace on several, by package daemon/replacement, and prints the result.
// It knows no flags.
package replace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/lockspace/replace"
	"github.com/bakeryd/bakeryd/daemon/replacement"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// Options are the arguments of the command.
type Options struct {
	Devices  []string // disks of the lockspace; none: those of the bakeryd at Socket
	Socket   string
	Old, New string
	Force    bool
	Stderr   io.Writer // for progress and warnings
}

// Run replaces a member disk. It shows its progress, and warns of what is left to do.
func Run(ctx context.Context, o Options) (*replacement.Replaced, error) {
	asked := len(o.Devices) == 0
	if asked {
		if err := o.ask(ctx); err != nil {
			return nil, err
		}
	}
	p := render.StartProgress(o.Stderr)
	defer p.Stop()
	// The error that ends the command has the reason. Warnings of its host are of the disk that is replaced.
	log := slog.New(slog.NewTextHandler(p.Log(), &slog.HandlerOptions{Level: slog.LevelError}))
	done, err := replacement.Replace(ctx, daemon.Config{Devices: o.Devices, Logger: log}, replacement.Order{
		Old: o.Old, New: o.New, Force: o.Force, Counter: p.Counter(), Progress: func(message string) {
			p.Message("bakeryctl: " + message)
			p.Begin(message, 0)
		},
	})
	switch {
	case err != nil && ctx.Err() != nil:
		f := &cli.Failure{Code: cli.ExitInterrupted, Err: err, Hint: "nothing was changed"}
		if errors.Is(err, replacement.ErrIncomplete) {
			f.Hint = again
		}
		return nil, f
	case err != nil:
		return nil, cli.Advise(err, cli.ExitNoDevice, advice)
	}
	if done.Warning != "" {
		p.Message("warning: the disk is a member, but not every host is known to use it: " + done.Warning + "\nhint: " + again)
	}
	if asked {
		if lacks := lacking(ctx, o.Socket, done); lacks != "" {
			p.Message("warning: bakeryd on this host does not use the new disk: " + lacks)
		}
	}
	return done, nil
}

const again = "run the same command again, on this host or another one: it continues"

// lacking returns why bakeryd does not use the new disk; "" if it does, or is not reached. bakeryd tries its
// paths every second.
func lacking(ctx context.Context, socket string, done *replacement.Replaced) (why string) {
	for range 30 {
		status, err := show.Ask(ctx, socket)
		if err != nil || len(status.Disks) < done.Position {
			return ""
		}
		d := status.Disks[done.Position-1]
		if d.UUID == done.New && d.Up() {
			return ""
		}
		if !knows(status.Disks, done.Device) {
			return "it was not given the path of the new disk\nhint: add " + done.Device + " to BAKERYD_DEVICE on this host, and restart bakeryd"
		}
		why = cmp.Or(d.Error, d.State)
		if d.Remedy != "" {
			why += "\nhint: " + d.Remedy
		}
		if retry.Pause(ctx, 100*time.Millisecond) != nil {
			return ""
		}
	}
	return why
}

// knows reports whether bakeryd has a path that leads to a disk.
func knows(disks []report.Disk, device string) bool {
	wanted, err := os.Stat(device)
	return slices.ContainsFunc(disks, func(d report.Disk) bool {
		return slices.ContainsFunc(strings.Split(d.Device, " or "), func(path string) bool {
			found, missing := os.Stat(path)
			return path == device || err == nil && missing == nil && os.SameFile(found, wanted)
		})
	})
}

// advice are the hints for errors of Run.
var advice = slices.Concat([]cli.Advice{
	{Err: replace.ErrNoMember, Code: cli.ExitUsage},
	{Err: format.ErrOccupied, Hint: "use --force to destroy the contents"},
	{Err: lockspace.ErrStride}, // these name the remedy
	{Err: lockspace.ErrDeviceSize},
	{Err: blockdev.ErrTooSmall, Hint: "give another disk, or make the file as large as those of the other disks"},
	{Err: replace.ErrOtherLockspace},
	{Err: replace.ErrFormer},
	{Err: replacement.ErrRefused},
	{Err: replacement.ErrIncomplete, Hint: again},
}, ondevice.Advice)

// ask asks bakeryd for the paths of the disks of the lockspace.
func (o *Options) ask(ctx context.Context) error {
	r, err := show.Ask(ctx, o.Socket)
	if err != nil {
		return call.OrDevice(err)
	}
	o.use(r)
	for _, path := range o.Devices {
		if _, err := os.Stat(path); err != nil && !filepath.IsAbs(path) {
			return &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("bakeryd has a relative path of a disk, which is not below this directory: %w", err),
				Hint: "run the command in the directory of bakeryd, or give each disk with --device"}
		}
	}
	return nil
}

// use uses the disks that bakeryd reports. It leaves out the path of a disk that hangs, and names it by its
// position: where io_uring is not permitted, a read of it keeps the process from ending. The newest list is on
// f of the others at least, and f+1 of these must be up.
func (o *Options) use(r *report.Report) {
	for _, d := range r.Disks {
		switch all := strings.Split(d.Device, " or "); {
		case d.State == "hangs" || d.State == "checking":
			if d.Device == o.Old {
				o.Old = strconv.Itoa(d.Position)
			}
		case d.Device != "" && (d.Up() || len(all) == 1): // otherwise paths that may lead to a lost disk
			o.Devices = append(o.Devices, all...)
		}
	}
	if len(r.Disks) == 0 {
		o.Devices = []string{r.Lockspace.Device}
	}
}

// Show writes the result, and what to do on every host.
func Show(w io.Writer, r *replacement.Replaced) {
	device, path, old := text.Printable(r.Device), "the path of the old disk, if it is another one,", ""
	if r.OldDevice != "" {
		path = text.Printable(r.OldDevice)
		old = " " + path
	}
	if r.Old == r.New {
		fmt.Fprintf(w, "disk %d of lockspace %s is %s already\n", r.Position, lockspace.DescribeSuperblock(r.Lockspace), device)
	} else {
		fmt.Fprintf(w, "replaced disk %d of lockspace %s\n", r.Position, lockspace.DescribeSuperblock(r.Lockspace))
		if !r.Old.IsZero() {
			fmt.Fprintf(w, "  old\t%v%s\n", r.Old, old)
		}
		fmt.Fprintf(w, "  new\t%v %s\n", r.New, device)
	}
	if r.Unreadable > 0 {
		fmt.Fprintf(w, "  unreadable\t%s, which could not be read; bakeryctl check names them\n", render.Count(r.Unreadable, "record"))
	}
	otherwise := "add " + device + " to BAKERYD_DEVICE and restart bakeryd"
	if r.Old == r.New { // it may have lost its contents, which a restarted bakeryd does not know
		otherwise = "do what its warning says"
	}
	fmt.Fprintf(w, "  next\ton every host: bakeryctl disks must show disk %d up; if not, %s\n", r.Position, otherwise)
	if r.OldDevice != r.Device {
		fmt.Fprintf(w, "  then\tremove %s from BAKERYD_DEVICE; bakeryd reads it at its next start\n", path)
	}
}

package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/probe"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/lockspace/measure"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// addWrites measures the device and adds the findings.
func (r *Report) addWrites(ctx context.Context, o Options) (err error) {
	p := render.StartProgress(o.Stderr)
	defer p.Stop()
	p.Begin("opening "+text.Printable(r.Device), 0)
	po := measure.Options{For: o.Length, Counter: p.Counter()}
	for _, path := range append([]string{r.Device}, o.Paths...) {
		other, err := blockdev.Open(path, blockdev.Options{ReadOnly: true})
		if err != nil {
			return err
		}
		defer other.Close()
		if err := r.sameDisk(other); err != nil {
			return err
		}
		po.Others = append(po.Others, other)
	}
	if r.space != nil {
		cfg := daemon.Config{Device: r.Device, Logger: slog.New(slog.NewTextHandler(p.Log(), &slog.HandlerOptions{Level: slog.LevelError}))}
		r.Measured, err = daemon.ProbeLockspace(ctx, cfg, po)
	} else {
		r.Measured, err = measureVacant(ctx, r.Device, po)
	}
	if err != nil {
		return err
	}
	r.Findings = append(r.Findings, r.Measured.JudgeLatency(r.lease))
	for i, s := range r.Measured.Paths {
		r.Findings = append(r.Findings, sightFinding(s, i == 0))
	}
	return nil
}

func measureVacant(ctx context.Context, path string, o measure.Options) (*measure.Measurement, error) {
	dev, err := blockdev.Open(path, blockdev.Options{Exclusive: true})
	if err != nil {
		return nil, err
	}
	m, err := format.ProbeVacant(ctx, dev, o)
	return m, errors.Join(err, dev.Close())
}

// sameDisk returns an error if another path evidently leads to another disk.
func (r *Report) sameDisk(other blockdev.Device) error {
	no := func(why string) error {
		return cli.Usage("probe", "%s is another disk than %s: %s", other.Info().Path, r.Device, why)
	}
	sb, _, err := lockspace.FindLockspace(other)
	switch {
	case other.Info().Size != r.Size:
		return no(fmt.Sprintf("%v, not %v", text.Bytes(other.Info().Size), text.Bytes(r.Size)))
	case err == nil && (r.space == nil || sb.UUID != r.space.UUID):
		return no("it holds lockspace " + sb.UUID.String())
	case r.space != nil && errors.Is(err, lockspace.ErrNoLockspace):
		return no("it holds no lockspace")
	case r.space != nil:
		return err
	}
	return nil
}

// sightFinding returns the finding about the visibility of writes by another path, or, if own is
// true, by a second opening of the device.
func sightFinding(s measure.PathResult, own bool) probe.Finding {
	f := probe.Finding{ID: "visibility", Verdict: probe.OK}
	way := "through " + text.Printable(s.Path)
	if own {
		way = "through a second opening of the device"
	}
	switch {
	case s.Never:
		f.Verdict = probe.Unfit
		f.Detail = fmt.Sprintf("a write is not visible %s, even later", way)
		f.Remedy = "check that it is the same disk; if so, switch off the cache on this path"
	case s.Stale > 0:
		f.Verdict, f.Remedy = probe.Unfit, "switch off the cache on this path"
		f.Detail = fmt.Sprintf("%d of %d writes were not visible immediately %s", s.Stale, s.Writes, way)
	default:
		f.Detail = fmt.Sprintf("each of %d writes was visible immediately %s", s.Writes, way)
	}
	return f
}

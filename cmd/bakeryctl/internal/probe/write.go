package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/latency"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/lockspace/measure"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// addWrites measures the device and adds the findings.
func (r *Report) addWrites(ctx context.Context, o Options) (err error) {
	if r.space != nil && r.space.Members.Several() {
		return cli.Usage("probe", "--write does not measure %s, a single disk of a lockspace on several; run bakeryctl bench with --device for each of its disks", r.Device)
	}
	p := render.StartProgress(o.Stderr)
	defer p.Stop()
	p.Begin("opening "+text.Printable(r.Device), 0)
	po := measure.Options{For: o.Length, Counter: p.Counter()}
	for _, path := range append([]string{r.Device}, o.Paths...) {
		other, err := blockdev.Open(path, blockdev.Options{ReadOnly: true, Killable: true})
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
		cfg := daemon.Config{Devices: []string{r.Device}, Logger: slog.New(slog.NewTextHandler(p.Log(), &slog.HandlerOptions{Level: slog.LevelError}))}
		r.Measured, err = daemon.ProbeLockspace(ctx, cfg, po)
	} else {
		r.Measured, err = measureVacant(ctx, r.Device, po)
	}
	if err != nil {
		return err
	}
	r.judgeLatency(r.Measured.Write, r.lease)
	for i, s := range r.Measured.Paths {
		r.judgePath(s, i == 0)
	}
	return nil
}

func measureVacant(ctx context.Context, path string, o measure.Options) (*measure.Measurement, error) {
	dev, err := blockdev.Open(path, blockdev.Options{Exclusive: true, Killable: true})
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
	sb, _, err := lockspace.FindSuperblock(other)
	switch {
	case other.Info().Size != r.Size:
		return no(fmt.Sprintf("%v, not %v", text.Bytes(other.Info().Size), text.Bytes(r.Size)))
	case err == nil && r.space != nil && sb.UUID == r.space.UUID && sb.Position != r.space.Position:
		return no(fmt.Sprintf("it is member %d of the lockspace, not %d", sb.Position, r.space.Position))
	case err == nil && (r.space == nil || sb.UUID != r.space.UUID):
		return no("it holds lockspace " + sb.UUID.String())
	case r.space != nil && errors.Is(err, lockspace.ErrNoLockspace):
		return no("it holds no lockspace")
	case r.space != nil:
		return err
	}
	return nil
}

// judgePath rates the visibility of writes by another path, or, if own is true, by a second opening
// of the device.
func (r *Report) judgePath(s measure.PathResult, own bool) {
	const id = "visibility"
	way := "through " + text.Printable(s.Path)
	if own {
		way = "through a second opening of the device"
	}
	switch {
	case s.Never:
		r.add(id, Unfit, fmt.Sprintf("a write is not visible %s, even later", way),
			"check that it is the same disk; if so, switch off the cache on this path")
	case s.Stale > 0:
		r.add(id, Unfit, fmt.Sprintf("%d of %d writes were not visible immediately %s", s.Stale, s.Writes, way),
			"switch off the cache on this path")
	default:
		r.add(id, OK, fmt.Sprintf("each of %d writes was visible immediately %s", s.Writes, way), "")
	}
}

// judgeLatency rates the durable writes for the current lease, which is 0 if there is no lockspace.
func (r *Report) judgeLatency(writes latency.Summary, current time.Duration) {
	const id = "lease"
	most := time.Duration(writes.Most) * time.Microsecond
	least, choose, ok := timing.Suggest(time.Duration(writes.P999)*time.Microsecond, most, lockspace.DefaultLease)
	remedy := ""
	if choose != lockspace.DefaultLease {
		remedy = fmt.Sprintf("bakeryctl format --lease %v", choose)
	}
	slowest := fmt.Sprintf("the slowest of %d durable writes took %v", writes.Count, most)
	switch {
	case !ok:
		r.add(id, Unfit, fmt.Sprintf("%s, and none may take longer than a twentieth of the lease, which is at most %v", slowest, layout.MaxLease),
			"find out why the device hangs")
	case current == 0:
		r.add(id, OK, fmt.Sprintf("%s: the lease must be at least %v; %v is recommended", slowest, least, choose), remedy)
	case current < least:
		verdict := Warning
		if current < most {
			verdict = Unfit
		}
		r.add(id, verdict, fmt.Sprintf("%s, too long for the lease of %v (a twentieth of it, with a margin): choose a lease of %v",
			slowest, current, choose), remedy)
	default:
		r.add(id, OK, fmt.Sprintf("%s: the lease of %v is long enough; the minimum is %v", slowest, current, least), "")
	}
}

package daemon

import (
	"context"
	"errors"
	"log/slog"

	"github.com/bakeryd/bakeryd/daemon/lockspace/measure"
)

// ProbeLockspace joins the lockspace of cfg and measures it by writing the own slot of the lock
// ProbeLock. It creates and removes the lock. It returns the errors of [Join] and Acquire,
// those of IO, or the cause of ctx's end.
func ProbeLockspace(ctx context.Context, cfg Config, o measure.Options) (_ *measure.Measurement, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	h, err := Join(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		leaving, cancel := context.WithTimeout(context.Background(), h.StopTimeout())
		defer cancel()
		err = errors.Join(err, h.Close(leaving))
	}()
	return h.MeasureSlot(ctx, cfg.DeviceNames(), o)
}

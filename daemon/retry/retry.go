// Package retry waits between two attempts.
package retry

import (
	"context"
	"time"
)

// Pause blocks for d. It returns the error of ctx if that ends first.
func Pause(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

package format

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
)

const (
	// readChunk and zeroChunk are the bytes read and zeroed between two checks of the context.
	readChunk = 1 << 20
	zeroChunk = 64 << 20

	// progressInterval is the time between two progress messages of a long step.
	progressInterval = 5 * time.Second
)

// firstNonZero returns the first byte of the area from an offset on that is not zero, or -1.
func (d *disk) firstNonZero(ctx context.Context, progress *progress, from int64) (at int64, err error) {
	p, zeroes := lockspace.Pool.Get(readChunk), lockspace.Pool.Get(readChunk)
	defer lockspace.Pool.Put(p)
	defer lockspace.Pool.Put(zeroes)
	clear(zeroes)
	at = -1
	err = d.inChunks(ctx, progress.add, from, readChunk, func(off, n int64) (bool, error) {
		if err := d.dev.Read(p[:n], off); err != nil || bytes.Equal(p[:n], zeroes[:n]) {
			return true, err
		}
		at = off + int64(slices.IndexFunc(p, func(b byte) bool { return b != 0 }))
		return false, nil
	})
	return at, err
}

// inChunks calls do for the chunks of the area from an offset on, until it returns false, and add
// with the number of bytes after each.
func (d *disk) inChunks(ctx context.Context, add func(n int64), from, chunk int64, do func(off, n int64) (bool, error)) error {
	done := int64(0)
	for off := from; off < d.area; off += chunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(chunk, d.area-off)
		if more, err := do(off, n); err != nil || !more {
			return err
		}
		add(off + n - done)
		done = off + n
	}
	return nil
}

// progress is that of a step that reads or writes the areas of the disks, for one goroutine. A nil
// progress reports nothing.
type progress struct {
	o          Options
	step, done string
	total, at  int64 // bytes on all disks
	reported   time.Time
}

func (o Options) progress(step, done string, total int64) *progress {
	return &progress{o: o, step: step, done: done, total: total, reported: time.Now()}
}

// add reports n more bytes.
func (p *progress) add(n int64) {
	if p == nil {
		return
	}
	p.at += n
	p.o.Counter.Report(p.step, p.at, p.total, true)
	if p.o.Counter == nil && p.at < p.total && time.Since(p.reported) >= progressInterval {
		p.reported = time.Now()
		p.o.report("%d%% %s", p.at*100/p.total, p.done)
	}
}

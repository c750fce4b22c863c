package render

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
)

const (
	progressAfter = time.Second // shorter work shows no line
	progressEvery = 150 * time.Millisecond
)

// Progress is a terminal line that shows the progress of long work. It writes from its own
// goroutine, so a stopped terminal does not block the work. Without a suitable terminal it shows
// nothing.
type Progress struct {
	out    io.Writer
	shows  bool // whether out is a suitable terminal
	writer sync.WaitGroup
	cancel context.CancelFunc // ends writer

	mu   sync.Mutex // guards step
	step work

	screen sync.Mutex // held while out is written to; guards shown
	shown  bool
}

// work is a step and its progress.
type work struct {
	name        string
	done, total int64 // total 0: unknown
	bytes       bool
	begun       time.Time
	lasts       time.Duration // if not 0, progress is the time spent of this
}

// StartProgress returns a progress line on stderr. Stop removes it.
func StartProgress(stderr io.Writer) *Progress {
	if !term.Is(stderr) || os.Getenv("TERM") == "dumb" {
		return &Progress{out: stderr, cancel: func() {}}
	}
	return newProgress(stderr, time.NewTicker(progressEvery), time.Now().Add(progressAfter))
}

func newProgress(out io.Writer, every *time.Ticker, from time.Time) *Progress {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Progress{out: out, shows: true, cancel: cancel}
	p.writer.Go(func() {
		defer every.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-every.C:
				if !now.Before(from) {
					p.draw(now)
				}
			}
		}
	})
	return p
}

// Counter returns a function that records the step and its progress. It returns nil if nothing is shown.
func (p *Progress) Counter() func(step string, done, total int64, bytes bool) {
	if !p.shows {
		return nil
	}
	return func(step string, done, total int64, bytes bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.step.name != step {
			p.step = work{name: step, begun: time.Now()}
		}
		p.step.done, p.step.total, p.step.bytes = done, total, bytes
	}
}

// Begin starts a step that is expected to take lasts; 0 means unknown.
func (p *Progress) Begin(step string, lasts time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step = work{name: step, begun: time.Now(), lasts: lasts}
}

// Message prints a message on a line of its own.
func (p *Progress) Message(message string) { fmt.Fprintln(p, message) }

// Write implements io.Writer for log output that shares the terminal with the progress line.
func (p *Progress) Write(text []byte) (int, error) {
	p.screen.Lock()
	defer p.screen.Unlock()
	p.erase()
	return p.out.Write(text)
}

// Log returns the writer for log output while p is active.
func (p *Progress) Log() io.Writer {
	if !p.shows {
		return p.out
	}
	return p
}

// Stop removes the line permanently. It may be called again.
func (p *Progress) Stop() {
	p.cancel()
	p.writer.Wait()
	p.screen.Lock()
	defer p.screen.Unlock()
	p.erase()
}

func (p *Progress) erase() {
	if p.shown {
		_, _ = io.WriteString(p.out, "\r\x1b[K")
		p.shown = false
	}
}

func (p *Progress) draw(now time.Time) {
	p.mu.Lock()
	step := p.step
	p.mu.Unlock()
	if step.name == "" {
		return
	}
	p.screen.Lock()
	defer p.screen.Unlock()
	p.shown = true
	_, _ = io.WriteString(p.out, "\r\x1b[K"+step.text(now, term.Columns(p.out, 80)-1))
}

// text returns the line, cut to a number of columns.
func (w work) text(now time.Time, wide int) string {
	var b strings.Builder
	spent := max(0, now.Sub(w.begun))
	fmt.Fprintf(&b, "bakeryctl: %s", Safe(w.name))
	done, total := float64(w.done), float64(w.total)
	if w.lasts > 0 {
		done, total = float64(min(spent, w.lasts)), float64(w.lasts)
	}
	if total <= 0 {
		fmt.Fprintf(&b, ", for %s", Seconds(spent.Milliseconds()))
		return cut(b.String(), wide, Simple)
	}
	fmt.Fprintf(&b, " %d%%", int(100*done/total))
	if w.bytes {
		fmt.Fprintf(&b, ", %s of %s", size(w.done), size(w.total))
		if spent >= time.Second {
			fmt.Fprintf(&b, ", %s/s", size(int64(done/spent.Seconds())))
		}
	}
	if left := time.Duration(float64(spent) * (total - done) / max(1, done)); done > 0 && done < total && spent >= time.Second {
		fmt.Fprintf(&b, ", %s left", Seconds(left.Milliseconds()+999))
	}
	return cut(b.String(), wide, Simple)
}

// size formats a number of bytes with a binary unit.
func size(n int64) string {
	value := float64(n)
	for _, unit := range []string{"bytes", "KiB", "MiB", "GiB"} {
		switch {
		case value < 1024 && unit == "bytes":
			return fmt.Sprintf("%d %s", n, unit)
		case value < 9.95:
			return fmt.Sprintf("%.1f %s", value, unit)
		case value < 1023.5:
			return fmt.Sprintf("%.0f %s", value, unit)
		}
		value /= 1024
	}
	return fmt.Sprintf("%.1f TiB", value)
}

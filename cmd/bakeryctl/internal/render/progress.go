package render

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
)

const (
	progressAfter = time.Second // what is over by then shows nothing
	progressEvery = 150 * time.Millisecond
)

// Progress is a line on a terminal that says how far long work is. Nil does nothing: there is no
// terminal. It writes from a goroutine of its own, so that a terminal that stands still holds up no
// work.
type Progress struct {
	out    io.Writer
	writer sync.WaitGroup
	done   chan struct{}
	once   sync.Once // closes done

	mu   sync.Mutex // guards the rest
	step work

	screen sync.Mutex // held while out is written to; guards shown
	shown  bool
}

// work is a step, and how far it is.
type work struct {
	name        string
	done, total int64 // total 0: nobody knows
	bytes       bool
	begun       time.Time
	lasts       time.Duration // by this it is measured, if it is not 0
}

// StartProgress returns a line on stderr, if that is a terminal that can show one, and nil
// otherwise. Stop removes it.
func StartProgress(stderr io.Writer) *Progress {
	if !term.Is(stderr) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return newProgress(stderr, time.NewTicker(progressEvery), time.Now().Add(progressAfter))
}

func newProgress(out io.Writer, every *time.Ticker, from time.Time) *Progress {
	p := &Progress{out: out, done: make(chan struct{})}
	p.writer.Go(func() {
		defer every.Stop()
		for {
			select {
			case <-p.done:
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

// Counter is what the work tells of a step, and how far it is; nil: it need not.
func (p *Progress) Counter() func(step string, done, total int64, bytes bool) {
	if p == nil {
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

// Begin tells of a step that takes so long; 0: nobody knows.
func (p *Progress) Begin(step string, lasts time.Duration) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step = work{name: step, begun: time.Now(), lasts: lasts}
}

// Sayer returns what writes a message to standard error, a line of its own.
func (p *Progress) Sayer(stderr io.Writer) func(message string) {
	return func(message string) {
		if p != nil {
			p.screen.Lock()
			defer p.screen.Unlock()
			p.erase()
		}
		fmt.Fprintln(stderr, message)
	}
}

// Write implements io.Writer, for a log beside the line.
func (p *Progress) Write(text []byte) (int, error) {
	p.screen.Lock()
	defer p.screen.Unlock()
	p.erase()
	return p.out.Write(text)
}

// Log is where a log may write to.
func (p *Progress) Log(stderr io.Writer) io.Writer {
	if p == nil {
		return stderr
	}
	return p
}

// Stop removes the line for good. It may be called again.
func (p *Progress) Stop() {
	if p == nil {
		return
	}
	p.once.Do(func() { close(p.done) })
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

// text is the line, no wider than asked for.
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

// size is a number of bytes as people grasp it.
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

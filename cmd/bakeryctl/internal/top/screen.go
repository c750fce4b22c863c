// Package top shows hosts, locks and events, live in a terminal or once. The model (model.go)
// changes by answers, events and keys, and has no clock, terminal or socket; view.go formats it; a
// Source reads for it. It imports packages below daemon for their types, client and retry, and call,
// cli, render, show and term of bakeryctl.
package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/report"
)

const (
	tickEvery = 250 * time.Millisecond // so that countdowns move
)

const hintOnce = "run bakeryctl top --once to print it once, or bakeryctl status --json for programs"

// Once writes one complete view to out.
func Once(ctx context.Context, source Source, out io.Writer, p render.Paint) error {
	answer, err := source.read(ctx)
	if err != nil {
		return err
	}
	m := model{source: source.name, width: onceColumns(out)}.update(answer, nil, time.Now())
	_, err = fmt.Fprintln(out, m.view(p, render.GlyphsFor(os.Getenv)))
	return err
}

// onceColumns returns the width of out, or COLUMNS, or 0 if out is no terminal: programs and files get
// everything.
func onceColumns(out io.Writer) int {
	wide := 0
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		wide = n
	}
	return term.Columns(out, wide)
}

// Terminal is the terminal that top uses.
type Terminal struct {
	In    io.Reader
	Out   io.Writer
	Paint render.Paint
	Every time.Duration // interval of reads
}

// Run shows source on the terminal until a key ends it.
func Run(ctx context.Context, source Source, t Terminal) error {
	for _, end := range []struct {
		what string
		file any
	}{{"output", t.Out}, {"input", t.In}} {
		if f, ok := end.file.(*os.File); !ok || !term.Is(f) {
			return &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("standard %s is not a terminal", end.what),
				Hint: hintOnce}
		}
	}
	if os.Getenv("TERM") == "dumb" {
		return &cli.Failure{Code: cli.ExitUsage, Err: errors.New("TERM is dumb: top requires a terminal that can move its cursor"), Hint: hintOnce}
	}
	ctx, cancel := context.WithCancel(ctx)
	profile := colorprofile.Ascii
	if t.Paint {
		profile = colorprofile.ANSI
	}
	screen := &live{Terminal: t, ctx: ctx, source: source, glyphs: render.GlyphsFor(os.Getenv), model: model{source: source.name, now: time.Now()}}
	program := tea.NewProgram(screen, tea.WithContext(ctx), tea.WithInput(t.In), tea.WithOutput(t.Out), tea.WithColorProfile(profile))
	var follower sync.WaitGroup
	follower.Go(func() { source.follow(ctx, program.Send) })
	_, err := program.Run()
	cancel()
	follower.Wait()
	switch {
	case errors.Is(err, tea.ErrInterrupted):
		return &cli.Failure{Code: cli.ExitSignal + int(unix.SIGINT)}
	case err != nil:
		return &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("draw on the terminal: %w", err)}
	}
	return nil
}

// Messages of a live, in addition to keys and events.
type (
	readDone struct {
		answer *report.Glance
		err    error
		at     time.Time
		took   time.Duration
	}
	eventsGone struct{ err error } // no events arrive; nil: they do again
	ticked     time.Time
	readAgain  int // read again, unless a later read than this number was started
	readNow    struct{}
)

// live shows a model and reads for it. bubbletea calls it from one goroutine.
type live struct {
	Terminal
	ctx     context.Context
	source  Source
	glyphs  render.Glyphs
	model   model
	reading bool
	reads   int
}

// Init, Update and View implement tea.Model.
func (s *live) Init() tea.Cmd { return tea.Batch(s.read(), tick()) }

func tick() tea.Cmd { return tea.Tick(tickEvery, func(t time.Time) tea.Msg { return ticked(t) }) }

// read reads in the background, so that keys work while a device hangs. There is one read at a
// time.
func (s *live) read() tea.Cmd {
	if s.reading {
		return nil
	}
	s.reading = true
	s.reads++
	return func() tea.Msg {
		begun := time.Now()
		answer, err := s.source.read(s.ctx)
		now := time.Now()
		return readDone{answer, err, now, now.Sub(begun)}
	}
}

func (s *live) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.model.width, s.model.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		var then tea.Msg
		s.model, then = s.model.key(msg.String(), msg.Text)
		if then != nil {
			return s, func() tea.Msg { return then }
		}
	case readNow:
		return s, s.read()
	case tea.PasteMsg:
		if s.model.typing {
			s.model, _ = s.model.key("", msg.Content)
		}
	case ticked:
		s.model = s.model.tick(time.Time(msg))
		return s, tick()
	case readDone:
		s.reading = false
		s.model = s.model.update(msg.answer, msg.err, msg.at)
		n := s.reads
		return s, tea.Tick(max(s.Every, s.source.pause*msg.took), func(time.Time) tea.Msg { return readAgain(n) })
	case readAgain:
		if int(msg) == s.reads && !s.model.paused { // at the end of a pause key reads
			return s, s.read()
		}
	case eventsGone:
		s.model.eventsFailed = msg.err
	case events.Event:
		s.model = s.model.addEvent(msg)
	}
	return s, nil
}

func (s *live) View() tea.View {
	m := s.model
	if m.width <= 0 || m.height <= 0 { // unknown
		m.width, m.height = 80, 24
	}
	v := tea.NewView(m.view(s.Paint, s.glyphs))
	v.AltScreen = true
	return v
}

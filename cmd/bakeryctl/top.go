package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/events"
)

const (
	leastTop, mostTop = 100 * time.Millisecond, time.Hour
	topTick           = 250 * time.Millisecond // in which what runs down is seen to
	onceWide          = 120                    // columns where nothing says how many there are
)

const hintOnce = "bakeryctl top --once prints it once; for programs there is bakeryctl status --json"

// topOptions are what the command line says.
type topOptions struct {
	device   string // empty: ask bakeryd
	interval time.Duration
	once     bool
}

func newTop(a *app) *cobra.Command {
	o := topOptions{interval: time.Second}
	interval := waitFlag{limit: o.interval}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch hosts, locks and what happens, live, in a terminal",
		Long: `Watch the hosts of the lockspace and their leases, the locks, who holds them and who waits, how long the device takes, and
the last events of this host. First it says whether all is well, or what is not and what to do about it.

Keys:  q, ctrl-c  quit             up, down, page up, page down, home, end  select
       enter      details of it    tab  hosts, or locks
       /          only what some words are about: names of locks and hosts, commands, "pid 7314"
       s          sort locks by need, by name, by number of waiters, by age
       p          pause            ?    help

bakeryd is asked, for what the status page asks for: however many look, the disk is read no more often than for one. When
bakeryd is gone that is said, with what was known last, until it is back. With --device the device is read, without joining
and without bakeryd, a tenth of the time at most; that a host is silent shows there after a while, and there are no events.`,
		Example: `  bakeryctl top
  bakeryctl top --interval 5s
  bakeryctl top --device /dev/mapper/locks
  bakeryctl top --once | mail -s locks root`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.interval = interval.limit
			if err := o.check(cmd.Flags().Changed); err != nil {
				return &failure{code: exitUsage, err: err, hint: "see bakeryctl top --help"}
			}
			var source topSource = socketSource{a.socket}
			if o.device != "" {
				source = &deviceSource{path: o.device}
			}
			if o.once {
				return a.topOnce(cmd.Context(), source)
			}
			return a.top(cmd.Context(), source, o)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.device, "device", "", "read this `PATH` instead of asking bakeryd")
	f.Var(&interval, "interval", "ask every `TIME`: seconds, as 0.5, or 300ms")
	f.BoolVar(&o.once, "once", false, "print it once, with all hosts and locks, and end")
	a.colourFlag(cmd)
	return cmd
}

func (o *topOptions) check(given func(flag string) bool) error {
	switch {
	case given("device") && o.device == "":
		return errors.New("--device is empty, want the path of a lockspace")
	case o.interval < leastTop || o.interval > mostTop:
		return fmt.Errorf("--interval %v, want %v to %v", o.interval, leastTop, mostTop)
	case o.once && given("interval"):
		return errors.New("--once is once: it has no --interval")
	}
	return nil
}

// topOnce prints one view.
func (a *app) topOnce(ctx context.Context, source topSource) error {
	answer, err := source.read(ctx)
	if err != nil {
		return err
	}
	if answer.report == nil {
		return &failure{code: exitUnavailable, err: errors.New(answer.trouble), hint: answer.hint}
	}
	m := topModel{source: source.name(), width: a.columns()}.told(answer, nil, time.Now())
	_, err = fmt.Fprintln(a.stdout, m.view(a.paint(), glyphsFor(os.Getenv)))
	return err
}

// columns is how wide standard output is, or is to be taken for.
func (a *app) columns() int {
	if f, ok := a.stdout.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return int(size.Col)
		}
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	return onceWide
}

// top shows it on the terminal until somebody has had enough.
func (a *app) top(ctx context.Context, source topSource, o topOptions) error {
	for _, end := range []struct {
		what string
		file any
	}{{"output", a.stdout}, {"input", a.stdin}} {
		if f, ok := end.file.(*os.File); !ok || !isTerminal(f) {
			return &failure{code: exitUsage, err: fmt.Errorf("top wants a terminal, and standard %s is none", end.what),
				hint: hintOnce}
		}
	}
	if os.Getenv("TERM") == "dumb" {
		return &failure{code: exitUsage, err: errors.New("top wants a terminal that can move its cursor, and TERM is dumb"), hint: hintOnce}
	}
	ctx, cancel := context.WithCancel(ctx)
	colours := a.paint()
	profile := colorprofile.Ascii
	if colours {
		profile = colorprofile.ANSI
	}
	screen := &topScreen{ctx: ctx, source: source, every: o.interval, paint: colours, glyphs: glyphsFor(os.Getenv),
		model: topModel{source: source.name(), now: time.Now()}}
	program := tea.NewProgram(screen, tea.WithContext(ctx), tea.WithInput(a.stdin), tea.WithOutput(a.stdout), tea.WithColorProfile(profile))
	var follower sync.WaitGroup
	follower.Go(func() {
		source.follow(ctx, func(e events.Event) { program.Send(e) }, func(err error) { program.Send(topGone{err}) })
	})
	_, err := program.Run()
	cancel()
	follower.Wait()
	switch {
	case errors.Is(err, tea.ErrInterrupted):
		return &failure{code: exitSignal + int(unix.SIGINT)}
	case err != nil:
		return &failure{code: exitUnavailable, err: fmt.Errorf("show it on the terminal: %w", err)}
	}
	return nil
}

// What happens to a topScreen, beside keys and events.
type (
	topRead struct {
		answer *topAnswer
		err    error
		at     time.Time
		took   time.Duration
	}
	topGone  struct{ err error } // events
	topTime  time.Time
	topAgain int // it is time to read: the so manyth read
)

// topScreen has a topModel shown, and reads for it. bubbletea calls it from one goroutine.
type topScreen struct {
	ctx     context.Context
	source  topSource
	every   time.Duration
	paint   paint
	glyphs  glyphs
	model   topModel
	reading bool
	reads   int
}

// Init implements tea.Model.
func (s *topScreen) Init() tea.Cmd { return tea.Batch(s.read(), tick()) }

func tick() tea.Cmd { return tea.Tick(topTick, func(t time.Time) tea.Msg { return topTime(t) }) }

// read reads beside the screen: a device that hangs holds up nobody who wants to quit. There is one read at a time.
func (s *topScreen) read() tea.Cmd {
	if s.reading {
		return nil
	}
	s.reading = true
	s.reads++
	return func() tea.Msg {
		begun := time.Now()
		answer, err := s.source.read(s.ctx)
		now := time.Now()
		return topRead{answer, err, now, now.Sub(begun)}
	}
}

// again has it read once more, unless that has been done meanwhile.
func (s *topScreen) again(after time.Duration) tea.Cmd {
	n := s.reads
	return tea.Tick(after, func(time.Time) tea.Msg { return topAgain(n) })
}

// Update implements tea.Model.
func (s *topScreen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.model.width, s.model.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		var then effect
		s.model, then = s.model.key(msg.String(), msg.Text)
		switch then {
		case effectQuit:
			return s, tea.Quit
		case effectSuspend:
			return s, tea.Suspend
		case effectRead:
			return s, s.read()
		}
	case tea.PasteMsg:
		if s.model.typing {
			s.model, _ = s.model.key("", msg.Content)
		}
	case topTime:
		s.model = s.model.tick(time.Time(msg))
		return s, tick()
	case topRead:
		s.reading = false
		s.model = s.model.told(msg.answer, msg.err, msg.at)
		pause := s.every
		if _, alone := s.source.(*deviceSource); alone {
			pause = max(pause, topShare*msg.took)
		}
		return s, s.again(pause)
	case topAgain:
		if int(msg) != s.reads {
			return s, nil
		}
		if s.model.paused {
			return s, s.again(s.every)
		}
		return s, s.read()
	case topGone:
		s.model.eventsFailed = msg.err
	case events.Event:
		s.model = s.model.happened(msg)
	}
	return s, nil
}

// View implements tea.Model.
func (s *topScreen) View() tea.View {
	m := s.model
	if m.width <= 0 || m.height <= 0 { // a terminal that does not say
		m.width, m.height = 80, 24
	}
	v := tea.NewView(m.view(s.paint, s.glyphs))
	v.AltScreen = true
	return v
}

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/command"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/server"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/daemon/waiting"
	"github.com/bakeryd/bakeryd/daemon/warn"
	"github.com/bakeryd/bakeryd/daemon/watchdog"
)

// Service keeps a host in a lockspace: it joins, joins again when the lease was lost, and feeds the
// watchdog. Every term of membership has its own Host.
type Service struct {
	cfg      Config
	log      *slog.Logger
	onJoined func(*Host)
	chooses  bool // the host id is chosen at every join

	draining context.Context // ended by Drain
	drain    context.CancelFunc

	mu      sync.Mutex     // guards the rest
	joiner  *joiner        // of the current term, also once it has joined; nil before Run
	host    *Host          // of the current term; nil while it joins
	last    *report.Glance // what the last term knew when its lease was lost; released by setTerm; nil if none
	trouble error          // why the last attempt to join again failed
	pausing bool           // the next attempt has not begun
}

// NewService returns a service that does not run yet. onJoined, unless nil, is called with every
// term that begins.
func NewService(cfg Config, onJoined func(*Host)) *Service {
	cfg = cfg.complete()
	if cfg.Events == nil {
		cfg.Events = events.New(cfg.Clock, cfg.Logger)
	}
	s := &Service{cfg: cfg, log: cfg.Logger, onJoined: onJoined, chooses: cfg.HostID == 0}
	s.draining, s.drain = context.WithCancel(context.Background())
	return s
}

// Events returns the event journal of all terms. It is closed when Run returns.
func (s *Service) Events() *events.Log { return s.cfg.Events }

// Tally returns the counters of all terms.
func (s *Service) Tally() *tally.Tally { return s.cfg.Tally }

// term returns the parts of the current term. joiner is nil before Run, host while it joins.
func (s *Service) term() (*joiner, *Host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joiner, s.host
}

// setTerm sets the current term. With a host, it releases what the last term knew.
func (s *Service) setTerm(j *joiner, h *Host, trouble error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joiner, s.host, s.trouble, s.pausing = j, h, trouble, false
	if h != nil {
		s.last = nil
	}
}

func (s *Service) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pausing = true
}

// Joined returns the host of the current term, or why there is none.
func (s *Service) Joined() (*Host, error) {
	s.mu.Lock()
	j, h, trouble, pausing := s.joiner, s.host, s.trouble, s.pausing
	s.mu.Unlock()
	switch {
	case h != nil:
		return h, nil
	case j == nil:
		return nil, api.ErrJoining
	case trouble != nil && pausing:
		return nil, fmt.Errorf("%w: joining fails and is retried every %v: %w", api.ErrUnavailable, rejoinPause, trouble)
	}
	err := api.ErrJoining
	if waits := j.stage.Reason(); waits.Left > 0 {
		err = fmt.Errorf("%w, for %s at most, waiting for %s", err, report.Left(waits.Left), waits.For)
	} else if waits.For != "" {
		err = fmt.Errorf("%w, waiting for %s", err, waits.For)
	}
	if trouble != nil {
		err = fmt.Errorf("%w; the attempt before failed: %w", err, trouble)
	}
	return nil, err
}

// Last returns what the last term knew when its lease was lost; nil if none was, or if a host is live
// again. Its receiver must not change it.
func (s *Service) Last() *report.Glance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *Service) keep(last *report.Glance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = last
}

// Waiting returns what the service waits for before it serves locks; nothing if it serves them, or does not run.
func (s *Service) Waiting() (r waiting.Reason) {
	if j, h := s.term(); h == nil && j != nil {
		r = j.stage.Reason()
	}
	return r
}

// Serving returns what Joined returns, for a server.
func (s *Service) Serving() (server.Host, error) {
	h, err := s.Joined()
	if err != nil {
		return nil, err
	}
	return h, nil
}

// safe reports whether nothing runs on this host that must have stopped.
func (s *Service) safe() bool {
	j, h := s.term()
	now := s.cfg.Clock.Now()
	return (j == nil || j.safe(now)) && (h == nil || h.safe(now)) && (s.cfg.Safe == nil || s.cfg.Safe())
}

// unburdened reports whether nothing is held, waited for or left by a previous process.
func (s *Service) unburdened() bool {
	j, h := s.term()
	return (j == nil || j.unburdened()) && (h == nil || h.sessions.Count() == 0)
}

// Drain makes the holders stop and the host leave. Run returns then.
func (s *Service) Drain() { s.drain() }

// Run joins and serves until ctx is done, Drain is called, or an operator asks this host to leave.
// If locks are held or waited for when ctx is done, it leaves all state for the next process, which
// must continue within the lease; this process must end. If nothing is held it leaves the
// lockspace.
//
// It returns an error of the first Join, unless the disks that did not answer may be its only cause: then it
// tries again. It also returns ErrHandedOver, ErrLeaseLost if holders did not stop, or ErrEvicted.
func (s *Service) Run(ctx context.Context) error {
	joining, cancel := context.WithCancel(ctx) // ends with Drain, too
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()
	dog := &feeder{s: s, joining: joining}
	// last: it may take some time
	defer s.cfg.Events.Close()
	defer dog.stop()
	s.cfg.arm = dog.arm
	var trouble error
	for again := false; ; {
		j := newJoiner(s.cfg)
		j.unheld = again // the term before has ended its holds
		s.setTerm(j, nil, trouble)
		var h *Host
		err := s.whileAlive(func() (err error) {
			h, err = j.join(joining)
			return err
		})
		switch {
		case err == nil:
			trouble, again = nil, true
			s.setTerm(j, h, nil)
			if s.onJoined != nil {
				s.onJoined(h)
			}
			if err = s.serve(ctx, h); errors.Is(err, errRejoin) {
				s.keepID(h.HostID(), h.Err())
				s.cfg.earlier = h.mem.Incarnation()
				continue
			}
			dog.clean = err == nil || errors.Is(err, ErrEvicted)
			return err
		case ctx.Err() != nil && !s.unburdened():
			return ErrHandedOver
		case joining.Err() != nil || s.draining.Err() != nil: // joining ends soon after draining
			dog.clean = true
			return nil
		case !again && !unanswered(err):
			dog.clean = true
			return err
		}
		trouble = err
		s.setTerm(j, nil, trouble)
		s.keepID(s.cfg.HostID, err)
		message, remedy := "joining again failed, retrying", waiting.RemoveFailure
		if !again {
			message = "joining failed, retrying"
		}
		if errors.Is(err, lockspace.ErrNoAnswer) {
			remedy = waiting.CheckDisks
		}
		s.log.Warn(message, "err", err)
		s.pause()
		j.stage.For(fmt.Sprintf("the next attempt to join, every %v", rejoinPause), remedy)
		if s.whileAlive(func() error { return retry.Pause(joining, rejoinPause) }) == nil {
			continue
		}
		dog.clean = true
		return nil
	}
}

// unanswered reports whether joining failed because disks did not answer, and nothing is known to be
// wrong with the settings.
func unanswered(err error) bool {
	return errors.Is(err, lockspace.ErrSilent) || errors.Is(err, lockspace.ErrMajority) && errors.Is(err, lockspace.ErrNoAnswer)
}

// keepID makes a host that chooses its id join again with the id that it lost to IO of a lock.
// Otherwise each such loss would use up an id: a dead one is not free for other machines.
func (s *Service) keepID(id int, lost error) {
	if !s.chooses {
		return
	}
	if s.cfg.HostID = 0; errors.Is(lost, api.ErrStuck) {
		s.cfg.HostID = id
	}
}

// rejoinPause is the pause after a failed attempt to join again.
const rejoinPause = 5 * time.Second

// errRejoin is returned when the term is over and the host may join again.
var errRejoin = errors.New("the term is over")

// serve waits for the end of a term.
func (s *Service) serve(ctx context.Context, h *Host) error {
	select {
	case <-ctx.Done():
		switch {
		case !h.HandOver():
			s.log.Info("leaving the lockspace")
			return s.leave(h, "bakeryd is shutting down")
		case h.leaseLeft() > 0:
			within := []any{"lease_left", h.leaseLeft().Round(time.Millisecond)}
			if sb := h.disk.SB; sb.FenceAfter > 0 { // others may fence this host before
				within = append(within, "fenced_after", max(0, h.leaseLeft()-sb.Lease+sb.FenceAfter).Round(time.Millisecond))
			}
			s.log.Info("stopping with locks held or waited for; bakeryd resumes them if restarted in time", within...)
			return ErrHandedOver
		}
		// This process did not run until after the end of the lease, so no other process can
		// continue it.
		s.log.Warn("stopping after the end of the lease, killing the commands that are left")
	case <-s.draining.Done():
		held, _ := h.sessions.Holding()
		s.log.Info("stopping the holders and leaving the lockspace", "holders", len(held))
		return s.leave(h, "bakeryd is shutting down")
	case by := <-h.mem.Asked():
		s.log.Warn("asked to leave by an operator, stopping the holders", "by_host", by.By, "by_host_name", by.Name)
		if err := s.leave(h, fmt.Sprintf("an operator asked this host to leave, by way of host %d (%s)", by.By, by.Name)); err != nil {
			return err
		}
		return fmt.Errorf("%w, by way of host %d (%s)", ErrEvicted, by.By, by.Name)
	case <-h.Lost():
		s.keep(h.remembered())
		s.log.Info("waiting for all holders and all IO to end, then joining again")
	}
	if err := s.end(ctx, h, "their lease is over", h.giveUp); err != nil {
		if why := h.Err(); why != nil {
			err = fmt.Errorf("%w: %w", why, err)
		}
		return fmt.Errorf("%w: %w", api.ErrLeaseLost, err)
	}
	return errRejoin
}

// end calls a function that ends a term. If that fails and commands still run, end kills them and
// calls it again, with a grace's time. The guard cannot have killed them if this process did not
// run until now.
func (s *Service) end(ctx context.Context, h *Host, why string, end func(context.Context) error) error {
	err := s.whileAlive(func() error { return end(ctx) })
	if err != nil && h.sessions.KillCommands(why) {
		ctx, cancel := context.WithTimeout(context.Background(), h.times().Grace())
		defer cancel()
		err = s.whileAlive(func() error { return end(ctx) })
	}
	return err
}

// leave stops the holders first, then leaves. In the other order another host could have a lock
// while a command still runs under it. If a holder does not stop in time, the other hosts treat
// this host as crashed.
func (s *Service) leave(h *Host, why string) error {
	h.ending.Drain(why)
	ctx, cancel := context.WithTimeout(context.Background(), h.StopTimeout())
	defer cancel()
	return s.end(ctx, h, why, h.Close)
}

// feeder arms the watchdog before the first join, and feeds it only while the service is safe.
type feeder struct {
	s       *Service
	joining context.Context // ends when this host is to leave
	dev     watchdog.Device
	ended   chan struct{}
	fed     sync.WaitGroup
	clean   bool // nothing is held: the watchdog can be disarmed
}

// arm arms the watchdog with a time-out derived from the lease, and returns the driver's time-out;
// 0 if there is no watchdog. Opening it feeds it, so commands that a previous process left beyond
// its lease must end first.
func (f *feeder) arm(t timing.Times) (time.Duration, error) {
	if f.s.cfg.Watchdog == "" {
		return 0, nil
	}
	for f.dev == nil && !f.s.safe() {
		if retry.Pause(f.joining, command.KillPause) != nil {
			return 0, errUnsafe
		}
	}
	if f.dev == nil {
		dev, err := f.s.cfg.Machine.Watchdog(f.s.cfg.Watchdog, t.Watchdog())
		if err != nil {
			return 0, err
		}
		f.dev, f.ended = dev, make(chan struct{})
		f.s.log.Info("watchdog armed", "device", f.s.cfg.Watchdog, "timeout", dev.Timeout())
		f.fed.Go(f.run)
	}
	return f.dev.Timeout(), nil
}

// errUnsafe is returned when joining ended before all commands of lost locks did.
var errUnsafe = errors.New("processes of lost locks are still running")

// run feeds the watchdog. A host that is not safe is reset, unless it becomes safe in time.
func (f *feeder) run() {
	t := time.NewTicker(min(f.dev.Timeout()/5, time.Second))
	defer t.Stop()
	var warn warn.Limiter
	for {
		select {
		case <-t.C:
		case <-f.ended:
			return
		}
		if !f.s.safe() {
			if warn.Allow() {
				f.s.log.Error("not feeding the watchdog: the lease is over and processes of its holders still run",
					"reset_in", f.dev.Timeout())
			}
			continue
		}
		if err := f.dev.Feed(); err != nil && warn.Allow() {
			f.s.log.Error("feeding the watchdog failed", "err", err)
		}
	}
}

// stop disarms the watchdog if nothing is held. Otherwise it leaves it armed for the next process.
func (f *feeder) stop() {
	if f.dev == nil {
		return
	}
	close(f.ended)
	f.fed.Wait()
	if f.clean && f.s.unburdened() && f.s.safe() {
		if err := f.dev.Disarm(); err != nil {
			f.s.log.Error("disarming the watchdog failed", "err", err)
		}
		return
	}
	f.s.log.Warn("the watchdog stays armed: the host is reset unless bakeryd is started again", "reset_in", f.dev.Timeout())
	if f.s.safe() {
		_ = f.dev.Feed()
	}
	_ = f.dev.Leave()
}

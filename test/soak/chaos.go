package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/clock"
)

// chaos is the mode that attacks the processes of the hosts instead of their disk: commands do
// everything to escape a stop (chaoscommand.go), while bakeryds, wrappers and commands are killed
// and stopped (chaosJudge).
type chaos struct {
	s      *soak
	path   string   // of the beats file
	beats  *os.File // for reading
	rooted string   // set-user-ID copy of this program

	mu    sync.Mutex // guards the fields below
	judge *chaosJudge
	deck  []fault // strikes to come; each is drawn equally often
	read  []byte  // beats not judged yet
}

const (
	chaosLocks    = 5
	chaosWrappers = 5 // per host

	chaosUser  = 65534 // user whose wrappers run commands with the trait root
	chaosGroup = 64999 // bakery, on the hosts
)

func newChaos(s *soak) (*chaos, error) {
	c := &chaos{s: s, path: filepath.Join(s.dir, "beats"), rooted: filepath.Join(s.dir, "rooted"), judge: newChaosJudge(s.o.lease)}
	for id := range s.o.hosts {
		c.judge.daemons[id+1] = &outages{}
	}
	program, err := os.ReadFile(s.self)
	if err == nil {
		err = errors.Join(os.WriteFile(c.rooted, program, 0o755), os.Chmod(c.rooted, 0o755|os.ModeSetuid), os.WriteFile(c.path, nil, 0o600))
	}
	if err == nil {
		c.beats, err = os.Open(c.path)
	}
	return c, err
}

// wrapChaos runs one command of the chaos run under bakeryctl lock.
func (h *host) wrapChaos(ctx context.Context, random *rand.Rand, name string, n int) (int, error) {
	c, lease := h.s.chaos, h.s.o.lease
	lock := random.IntN(chaosLocks)
	wait := lease + upTo(random, 6*lease)
	lasts := upTo(random, lease/20)
	if random.IntN(8) == 0 {
		lasts = upTo(random, 2*lease)
	}
	program, user := h.s.self, (*syscall.Credential)(nil)
	s := &chaosSection{host: h.id, name: fmt.Sprintf("%s-%d", name, n)}
	var has []string
	for _, t := range traits {
		if random.IntN(3) > 0 {
			continue
		}
		s.traits, has = append(s.traits, t), append(has, "--"+t)
		switch {
		case t == "root":
			program, user = c.rooted, &syscall.Credential{Uid: chaosUser, Gid: chaosUser, Groups: []uint32{chaosGroup}}
		case t == "daemon" && h.s.o.sabotage:
			has = append(has, "--closes", "--escapes")
		}
	}
	c.mu.Lock()
	id := uint32(len(c.judge.sections) + 1)
	c.judge.sections[id] = s
	c.mu.Unlock()
	argv := append(h.lockArgs("--timeout", wait.String(), fmt.Sprintf("chaos-%d", lock)), "--", program, "beat",
		"--beats", c.path, "--section", fmt.Sprint(id), "--lock", fmt.Sprint(lock), "--for", lasts.String())
	p, err := h.launch(name+".log", user, append(argv, has...)...)
	if err != nil {
		return 0, err
	}
	w := &wrapper{p, s}
	h.setWrapper(name, w)
	defer h.setWrapper(name, nil)
	code, err := p.code(context.WithoutCancel(ctx), wait+lasts+10*lease+patience)
	c.mu.Lock()
	s.wrapper.over(code == exitLost, clock.Boottime.Now())
	c.mu.Unlock()
	if err != nil {
		h.s.violate("bakeryctl lock of host %d does not end: %v", h.id, argv)
		_ = p.cmd.Process.Kill()
		return 0, err
	}
	h.s.report.exits(code)
	if unexpectedCodes[code] {
		h.s.violate("bakeryctl lock on host %d ended with code %d: %s", h.id, code, lastLines(filepath.Join(h.dir, name+".log"), 5))
	}
	return code, nil
}

// wrapper is a running bakeryctl lock.
type wrapper struct {
	*process
	section *chaosSection
}

func (h *host) setWrapper(name string, w *wrapper) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w == nil {
		delete(h.wrappers, name)
		return
	}
	h.wrappers[name] = w
}

// down records that a process does not run from now on, and up that it runs again.
func (c *chaos) down(o *outages, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.begin(why, clock.Boottime.Now())
}

func (c *chaos) up(o *outages) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.end(clock.Boottime.Now())
}

// exitLost is the exit code of a bakeryctl lock that has lost its lock.
const exitLost = 75

// strike holds the signals for the processes of a host; 0 for none.
type strike struct{ daemon, wrapper, command unix.Signal }

// strikes returns all combinations of signals.
func strikes() (all []fault) {
	signals := []unix.Signal{0, unix.SIGSTOP, unix.SIGKILL}
	for _, d := range signals {
		for _, w := range signals {
			for _, c := range signals {
				x := strike{d, w, c}
				if x != (strike{}) {
					all = append(all, fault{name: x.String(), spares: true, do: x.do})
				}
			}
		}
	}
	return all
}

func (x strike) String() string {
	var parts []string
	for _, p := range []struct {
		target string
		signal unix.Signal
	}{{"bakeryd", x.daemon}, {"wrapper", x.wrapper}, {"command", x.command}} {
		switch p.signal {
		case unix.SIGSTOP:
			parts = append(parts, p.target+"-stop")
		case unix.SIGKILL:
			parts = append(parts, p.target+"-kill")
		}
	}
	return strings.Join(parts, " ")
}

// nextStrike draws the next strike for a host.
func (c *chaos) nextStrike(random *rand.Rand) fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.deck) == 0 {
		c.deck = strikes()
		random.Shuffle(len(c.deck), func(i, j int) { c.deck[i], c.deck[j] = c.deck[j], c.deck[i] })
	}
	f := c.deck[0]
	c.deck = c.deck[1:]
	return f
}

// do waits for a long command, then stops or kills the processes that the strike selects. Stopped
// processes continue and bakeryd starts again, each after its own delay.
func (x strike) do(ctx context.Context, h *host, random *rand.Rand) error {
	long := filepath.Join(h.dir, longFile)
	if err := os.WriteFile(long, []byte(h.leases(random, 1.5, 4).String()), 0o600); err != nil {
		return err
	}
	err := until(ctx, 5*h.s.o.lease, "a command works for long", func() bool { _, err := os.Stat(long); return err != nil })
	_ = os.Remove(long)
	if err != nil && !errors.Is(err, errLate) {
		return err
	}
	share := 1 + random.IntN(2) // each wrapper or command is struck with probability share/2
	var undo sync.WaitGroup
	errs := make(chan error, 3)
	hit := 0
	afterwards := func(do func() error) {
		pause := h.leases(random, 0.1, 3)
		undo.Go(func() { errs <- errors.Join(pauseFor(ctx, pause), do()) })
	}
	blows := []func(){
		func() {
			if x.daemon != 0 {
				hit++
				afterwards(h.strikeDaemon(ctx, x.daemon))
			}
		},
		func() {
			if x.wrapper != 0 {
				n, goOn := h.strikeWrappers(random, x.wrapper, share)
				hit += min(n, 1)
				afterwards(goOn)
			}
		},
		func() {
			if x.command != 0 {
				n, goOn := h.strikeCommands(random, x.command, share)
				hit += min(n, 1)
				afterwards(goOn)
			}
		},
	}
	random.Shuffle(len(blows), func(i, j int) { blows[i], blows[j] = blows[j], blows[i] })
	apart := random.IntN(2) == 0
	for _, blow := range blows {
		if blow(); apart {
			_ = pauseFor(ctx, upTo(random, h.s.o.lease/4))
		}
	}
	undo.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	if hit < len(strings.Fields(x.String())) {
		return errNothing
	}
	return nil
}

// done is the effect of a signal on a process.
var done = map[unix.Signal]string{unix.SIGSTOP: "stopped", unix.SIGKILL: "killed"}

func (h *host) strikeDaemon(ctx context.Context, signal unix.Signal) (goOn func() error) {
	o := h.s.chaos.judge.daemons[h.id]
	h.s.chaos.down(o, done[signal])
	h.s.report.count("bakeryds "+done[signal], 1)
	if signal == unix.SIGKILL {
		err := h.kill(ctx)
		return func() error {
			h.s.chaos.up(o)
			return errors.Join(err, h.up(ctx))
		}
	}
	err := h.daemon.cmd.Process.Signal(signal)
	return func() error {
		h.s.chaos.up(o)
		return errors.Join(err, h.daemon.cmd.Process.Signal(unix.SIGCONT))
	}
}

// strikeWrappers signals at least one wrapper, if there is one.
func (h *host) strikeWrappers(random *rand.Rand, signal unix.Signal, share int) (n int, goOn func() error) {
	var all []*wrapper
	h.mu.Lock()
	for _, w := range h.wrappers {
		if w.running() && (random.IntN(2) < share || len(all) == 0) {
			all = append(all, w)
		}
	}
	h.mu.Unlock()
	for _, w := range all {
		h.s.chaos.down(&w.section.wrapper, done[signal])
		if w.cmd.Process.Signal(signal) == nil {
			n++
		}
	}
	h.s.report.count("wrappers "+done[signal], n)
	return n, func() error {
		for _, w := range all {
			if signal == unix.SIGSTOP && w.running() {
				h.s.chaos.up(&w.section.wrapper)
				_ = w.cmd.Process.Signal(unix.SIGCONT) // it may have been killed
			}
		}
		return nil
	}
}

// strikeCommands signals at least one process of a command, if there is one.
func (h *host) strikeCommands(random *rand.Rand, signal unix.Signal, share int) (n int, goOn func() error) {
	isCommand := func(pid int) bool { return program(pid) == h.s.self || program(pid) == h.s.chaos.rooted }
	var all []int
	for _, pid := range processesIn(h.dir, false) {
		if isCommand(pid) && (random.IntN(2) < share || n == 0) && unix.Kill(pid, signal) == nil {
			all = append(all, pid)
			n++
		}
	}
	h.s.report.count("commands "+done[signal], n)
	return n, func() error {
		for _, pid := range all {
			if signal == unix.SIGSTOP && isCommand(pid) {
				_ = unix.Kill(pid, unix.SIGCONT) // it may have been killed
			}
		}
		return nil
	}
}

// judgeDelay is the age at which a beat is judged: by then the soak knows whether its wrapper has
// ended.
const judgeDelay = 500 * time.Millisecond

// judgeBeats judges the beats written since the last call, and returns the number of sections by
// lock.
func (c *chaos) judgeBeats() (sections map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	more, err := io.ReadAll(c.beats)
	if err != nil {
		c.s.violate("read %s: %v", c.path, err)
	}
	c.read = append(c.read, more...)
	for ; len(c.read) >= beatSize; c.read = c.read[beatSize:] {
		b := decodeBeat(c.read)
		if b.At > clock.Boottime.Now()-judgeDelay {
			break
		}
		c.judge.take(b)
	}
	for _, v := range c.judge.found {
		c.s.violate("%s", v)
	}
	c.judge.found = nil
	sections = map[string]int{}
	for i, l := range c.judge.locks {
		sections[fmt.Sprintf("chaos-%d", i)] = l.sections
	}
	return sections
}

// finish judges the remaining beats, and reports what never happened.
func (c *chaos) finish(ctx context.Context) {
	_ = pauseFor(ctx, 2*judgeDelay)
	c.judgeBeats()
	r, j := c.s.report, c.judge
	for why, n := range j.excepted {
		r.count("sections with an overlap that is the exception: "+why, n)
	}
	r.count("beats in these overlaps", j.beats)
	r.count("ms at most from when one of the two ran again to the last of these beats", int(j.slowest.Milliseconds()))
	for _, f := range strikes() {
		if n := r.injected(f.name); n == 0 {
			c.s.violate("%q never happened", f.name)
		}
	}
	for _, t := range traits {
		r.count("sections with the trait "+t, j.kinds[t])
		if j.kinds[t] == 0 {
			c.s.violate("no section with the trait %q", t)
		}
	}
	if sum(j.excepted) == 0 {
		c.s.violate("the documented exception never happened")
	}
}

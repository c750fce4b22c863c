package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/layout"
)

// patience bounds waits in addition to the lease; a passing run is much faster.
const patience = time.Minute

// options are the flags.
type options struct {
	duration time.Duration
	seed     uint64
	hosts    int
	lease    time.Duration
	sector   int
	disks    int
	every    time.Duration
	json     string
	dir      string
	bin      string
	verbose  bool
	memory   bool
	sabotage bool
	chaos    bool
}

// soak is one run.
type soak struct {
	o      options
	dir    string
	sector int

	self, bakeryd, bakeryctl string

	memory    *mounted // tmpfs for the images; nil: they are on the disk
	disks     []*disk
	space     layout.Space
	hosts     []*host
	store     *storage
	storeAt   *mounted
	storePath string
	clients   sync.WaitGroup // client processes, and the loops that start them
	chaos     *chaos         // nil: the run attacks disks
	report    *report

	stop context.CancelCauseFunc

	mu      sync.Mutex // guards the fields below
	random  *mathrand.Rand
	closing bool // the run is at its end: violations do not end it
}

func runSoak(ctx context.Context, args []string) error {
	o := options{}
	fs := flag.NewFlagSet("soak", flag.ContinueOnError)
	fs.DurationVar(&o.duration, "duration", 30*time.Minute, "for how long faults are injected")
	fs.Uint64Var(&o.seed, "seed", 0, "of what is drawn: which faults and how long, what clients do, the sector size; 0: another one each time")
	fs.IntVar(&o.hosts, "hosts", 5, "`number` of hosts, 2 to 16")
	fs.DurationVar(&o.lease, "lease", 2*time.Second, "of the lockspace")
	fs.IntVar(&o.sector, "sector", 0, "`bytes` of a sector, 512 or 4096; 0: by the seed")
	fs.IntVar(&o.disks, "disks", 1, "`number` of disks, 1 or 3")
	fs.DurationVar(&o.every, "every", time.Minute, "how often a line of state is printed")
	fs.StringVar(&o.json, "json", "", "also write the report as JSON to this `file`")
	fs.StringVar(&o.dir, "dir", "", "`directory` for everything, on a disk; it is made")
	fs.StringVar(&o.bin, "bin", "", "`directory` of bakeryd and bakeryctl")
	fs.BoolVar(&o.memory, "memory", false, "have the image on a tmpfs: a disk that others keep busy costs leases")
	fs.BoolVar(&o.sabotage, "sabotage", false, "have clients work on when they have let go, to see that it is found")
	fs.BoolVar(&o.chaos, "chaos", false, "attack commands, wrappers and bakeryds instead of disks")
	fs.BoolVar(&o.verbose, "verbose", false, "tell of every fault")
	if err := fs.Parse(args); err != nil {
		return err
	}
	switch {
	case o.hosts < 2 || o.hosts > maxHosts:
		return fmt.Errorf("--hosts %d, want 2 to %d", o.hosts, maxHosts)
	case o.sector != 0 && o.sector != 512 && o.sector != 4096:
		return fmt.Errorf("--sector %d, want 512 or 4096", o.sector)
	case o.disks != 1 && o.disks != 3:
		return fmt.Errorf("--disks %d, want 1 or 3", o.disks)
	case o.disks != 1 && o.chaos:
		return errors.New("--chaos attacks no disks: omit --disks")
	}
	for o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1e9
	}
	return newSoak(o).run(ctx)
}

func newSoak(o options) *soak {
	s := &soak{o: o, dir: o.dir, sector: o.sector, random: mathrand.New(mathrand.NewPCG(o.seed, 0))}
	s.bakeryd, s.bakeryctl = filepath.Join(o.bin, "bakeryd"), filepath.Join(o.bin, "bakeryctl")
	if s.sector == 0 {
		s.sector = []int{512, 4096}[s.random.IntN(2)]
	}
	s.report = newReport(o, s.sector)
	return s
}

// run is a whole run. It returns an error if it found a violation.
func (s *soak) run(outer context.Context) (err error) {
	ctx, stop := context.WithCancelCause(outer)
	s.stop = stop
	defer s.stop(nil)
	if err := s.make(ctx); err != nil {
		s.clear()
		return err
	}
	fmt.Printf("soak: seed %d, %d hosts, disks %d, lease %v, sectors of %d bytes, %v in %s\n",
		s.o.seed, s.o.hosts, s.o.disks, s.o.lease, s.sector, s.o.duration, s.dir)
	err = s.work(ctx)
	if err == nil {
		err = s.close(ctx)
	}
	interrupted := outer.Err() != nil && s.report.violations() == 0
	if err != nil && !interrupted && s.report.violations() == 0 {
		s.report.violate(err.Error())
	}
	if s.report.violations() > 0 {
		s.crash()
		s.timeline()
	}
	s.clear()
	s.report.finish(s)
	if e := s.report.write(os.Stdout, s.o.json); e != nil {
		return e
	}
	if n := s.report.violations(); n > 0 {
		return fmt.Errorf("%d violations with seed %d: see %s", n, s.o.seed, s.dir)
	}
	if interrupted {
		return errors.New("interrupted, nothing found so far")
	}
	return nil
}

// imageSize is larger than the lockspace.
const imageSize = 4 << 20

// make creates the disks, the hosts and the store, and makes all hosts join.
func (s *soak) make(ctx context.Context) error {
	var err error
	if s.self, err = os.Executable(); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(s.dir, 0o755), os.Mkdir(filepath.Join(s.dir, "diaries"), 0o755)); err != nil {
		return err
	}
	if s.dir, err = filepath.EvalSymlinks(s.dir); err != nil {
		return err
	}
	images := s.dir
	if s.o.memory {
		images = filepath.Join(s.dir, "memory")
		if err := s.mountMemory(images); err != nil {
			return err
		}
	}
	s.store = &storage{judge: newJudge(s.o.lease), aims: map[int]*aim{}, saw: s.report.saw, found: func(all []string) {
		for _, v := range all {
			s.violate("%s", v)
		}
	}}
	if s.storeAt, err = mountStore(filepath.Join(s.dir, "store"), s.store); err != nil {
		return err
	}
	s.storePath = s.storeAt.path
	for i := range s.o.disks {
		d := &disk{image: filepath.Join(images, fmt.Sprint("image", i+1))}
		s.disks = append(s.disks, d)
		if err := os.WriteFile(d.image, make([]byte, imageSize), 0o600); err != nil {
			return err
		}
		if d.own, err = s.newPath(ctx, d, fmt.Sprintf("disk%d", i+1)); err != nil {
			return err
		}
	}
	if err := s.format(ctx); err != nil {
		return err
	}
	if s.o.chaos {
		if s.chaos, err = newChaos(s); err != nil {
			return err
		}
	}
	for id := 1; id <= s.o.hosts; id++ {
		h, err := newHost(ctx, s, id)
		if err != nil {
			return err
		}
		s.hosts = append(s.hosts, h)
	}
	for _, h := range s.hosts {
		if err := h.up(ctx); err != nil {
			return err
		}
	}
	for _, l := range locks {
		if l.permits > 1 {
			if _, _, err := output(ctx, s.bakeryctl, "--socket", s.hosts[0].socket(), "create", l.name, "--permits", fmt.Sprint(l.permits)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *soak) mountMemory(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", dir, err)
	}
	s.memory = &mounted{dir: dir}
	return nil
}

func (s *soak) format(ctx context.Context) error {
	var made struct {
		UUID                 layout.UUID
		Hosts, Locks, Stride int
	}
	argv := append([]string{s.bakeryctl, "format", "--json", "--hosts", fmt.Sprint(maxHosts), "--locks", "32", "--lease", s.o.lease.String(),
		"--name", "soak"}, s.loops()...)
	out, _, err := output(ctx, argv...)
	if err == nil {
		err = json.Unmarshal([]byte(out), &made)
	}
	if err != nil {
		return err
	}
	s.space = layout.Space{UUID: made.UUID, Geometry: layout.Geometry{Stride: made.Stride, Hosts: made.Hosts, Locks: made.Locks}, Several: s.several()}
	if made.Stride != s.sector {
		return fmt.Errorf("records are %d bytes apart on sectors of %d", made.Stride, s.sector)
	}
	return nil
}

// work runs clients and faults for the duration, and returns when all hosts have recovered and all
// clients have ended.
func (s *soak) work(ctx context.Context) error {
	wrapping, stopWrapping := context.WithCancel(ctx)
	defer stopWrapping()
	for _, h := range s.hosts {
		wrappers := chaosWrappers
		if s.chaos == nil {
			wrappers = wrappersPerHost
			if err := h.startWorkers(); err != nil {
				return err
			}
		}
		for i := range wrappers {
			s.clients.Go(func() { h.wrap(wrapping, i) })
		}
	}
	if s.several() {
		stop, err := s.startProbe()
		if err != nil {
			return err
		}
		defer stop()
	}
	watching, stopWatching := context.WithCancel(ctx)
	var watch, faults sync.WaitGroup
	watch.Go(func() { s.watch(watching) })
	now, stopFaults := context.WithTimeout(ctx, s.o.duration)
	defer stopFaults()
	for _, h := range s.hosts {
		if !h.calm() {
			faults.Go(func() { s.trouble(ctx, now, h) })
		}
	}
	if s.several() {
		faults.Go(func() { s.troubleDisks(ctx, now) })
	}
	faults.Wait()
	stopWatching()
	watch.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	stopWrapping()
	for _, h := range s.hosts {
		h.stopWorkers()
	}
	ended := make(chan struct{})
	go func() { s.clients.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(10*s.o.lease + 2*patience):
		return errors.New("clients did not end")
	}
	return nil
}

// watch prints the state every few seconds, samples the daemons, and notices a lack of progress.
func (s *soak) watch(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	told := time.Now()
	go s.stalls(ctx)
	progress := map[string]int{}
	since := map[string]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.report.sample(s.hosts)
			s.checkCalm()
			for name, sections := range s.sections() {
				if progress[name] != sections || since[name].IsZero() {
					progress[name], since[name] = sections, now
				}
			}
			for name, at := range since {
				if now.Sub(at) > 20*s.o.lease+patience {
					s.violate("no client was granted %q for %v", name, now.Sub(at).Round(time.Second))
				}
			}
			if now.Sub(told) >= s.o.every {
				told = now
				fmt.Println(s.report.line(s))
			}
		}
	}
}

// sections returns a number for each lock that grows with its sections.
func (s *soak) sections() map[string]int {
	if s.chaos != nil {
		return s.chaos.judgeBeats()
	}
	by := map[string]int{}
	s.store.with(func(j *judge) {
		for _, l := range j.locks {
			by[l.name] = l.sections
		}
	})
	return by
}

// stalls measures for how long the machine kept this process from running: other delays may be as
// long.
func (s *soak) stalls(ctx context.Context) {
	for pauseFor(ctx, 5*time.Millisecond) == nil {
		s.report.stalled(s.store.tick() - 5*time.Millisecond)
	}
}

// violate records a violation and ends the run.
func (s *soak) violate(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if s.report.violate(what) {
		fmt.Printf("VIOLATION: %s\n", what)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.stop(errors.New("a violation was found"))
	}
}

func (s *soak) logf(format string, args ...any) {
	if s.o.verbose {
		fmt.Printf("%s "+format+"\n", append([]any{time.Now().Format("15:04:05.000")}, args...)...)
	}
}

// crash kills all processes of all hosts, so that their state stays as it was at the violation.
func (s *soak) crash() {
	for _, h := range s.hosts {
		h.setOff(true)
		h.ending()
		for _, p := range h.paths {
			p.faults.Repair()
		}
	}
	for _, d := range s.disks {
		d.faults.Repair()
	}
	for _, pid := range processesIn(s.dir, true) {
		_ = syscall.Kill(pid, unix.SIGKILL)
	}
	_ = until(context.Background(), patience, "all are gone", func() bool { return len(processesIn(s.dir, true)) == 0 })
}

// clear removes loop devices and mounts.
func (s *soak) clear() {
	if s.self == "" {
		return
	}
	ctx := context.Background()
	s.crash()
	for _, dev := range attachedBelow(s.dir) {
		if err := detach(ctx, dev); err != nil {
			fmt.Fprintln(os.Stderr, "soak:", err)
		}
	}
	_ = until(ctx, patience, "loop devices are gone", func() bool { return len(attachedBelow(s.dir)) == 0 })
	all := []*mounted{s.storeAt}
	for _, d := range s.disks {
		if b, err := os.ReadFile(d.image); err == nil && s.memory != nil && s.report.violations() > 0 {
			_ = os.WriteFile(filepath.Join(s.dir, filepath.Base(d.image)), b, 0o600)
		}
		if d.own != nil {
			all = append(all, d.own.mounted)
		}
	}
	for _, h := range s.hosts {
		for _, p := range h.paths {
			all = append(all, p.mounted)
		}
	}
	all = append(all, s.memory)
	for _, m := range all {
		if m != nil {
			if err := m.unmount(); err != nil {
				fmt.Fprintln(os.Stderr, "soak:", err)
			}
		}
	}
}

// newID returns a machine id or boot id.
func (s *soak) newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (s *soak) draw() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.Uint64()
}

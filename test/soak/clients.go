package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/layout"
)

const (
	workersPerHost  = 2 // processes that use the Go client
	clientsOfWorker = 2
	wrappersPerHost = 2 // loops that run bakeryctl lock
)

// stopWorkers ends the workers.
func (h *host) stopWorkers() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.workers {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
}

func (h *host) place(name string) place {
	return place{socket: h.socket(), store: h.s.storePath, sectionLog: filepath.Join(h.s.dir, "diaries", name),
		name: fmt.Sprintf("%s-%s", name, h.s.newID()[:8]), host: h.id, lease: h.s.o.lease, seed: h.s.draw(), sabotage: h.s.o.sabotage}
}

// startWorkers starts the processes with Go clients, which run until the host is off or the soak
// ends.
func (h *host) startWorkers() error {
	for i := range workersPerHost {
		name := fmt.Sprintf("worker%d.%d", h.id, i)
		argv := append([]string{h.s.self, "worker", "--clients", fmt.Sprint(clientsOfWorker)}, h.place(name).args()...)
		p, err := h.launch(name+".log", nil, argv...)
		if err != nil {
			return err
		}
		h.mu.Lock()
		h.workers = append(slices.DeleteFunc(h.workers, func(p *process) bool { return !p.running() }), p)
		h.mu.Unlock()
		h.s.clients.Go(func() {
			<-p.ended
			if code := p.cmd.ProcessState.ExitCode(); code > 0 {
				h.s.violate("a client ended by itself, with code %d: %s", code, lastLines(filepath.Join(h.dir, name+".log"), 20))
			}
		})
	}
	return nil
}

// wrap runs one command after another under bakeryctl lock, until ctx ends.
func (h *host) wrap(ctx context.Context, i int) {
	random := rand.New(rand.NewPCG(h.s.o.seed, uint64(100*h.id+i)))
	name := fmt.Sprintf("wrapper%d.%d", h.id, i)
	once := h.wrapOnce
	if h.s.chaos != nil {
		once = h.wrapChaos
	}
	for n := 0; ctx.Err() == nil; n++ {
		pause := upTo(random, 30*time.Millisecond)
		if code, err := once(ctx, random, name, n); err != nil || code == 69 || code == 66 {
			pause += 300 * time.Millisecond
		}
		_ = pauseFor(ctx, pause)
	}
}

// lockArgs returns the beginning of a bakeryctl lock.
func (h *host) lockArgs(flags ...string) []string {
	return append([]string{h.s.bakeryctl, "lock", "--socket", h.socket()}, flags...)
}

func (h *host) wrapOnce(ctx context.Context, random *rand.Rand, name string, n int) (int, error) {
	l := chooseLock(random)
	at := h.place(name)
	at.name = fmt.Sprintf("%s-%d", name, n)
	argv := h.lockArgs()
	mode := chooseMode(random, l)
	if mode == layout.Shared {
		argv = append(argv, "--shared")
	}
	wait := h.s.o.lease/5 + upTo(random, 6*h.s.o.lease)
	if random.IntN(10) == 0 {
		argv = append(argv, "--nonblock")
	} else {
		argv = append(argv, "--timeout", wait.String())
	}
	lasts := chooseTime(random, h.s.o.lease)
	argv = append(argv, l.name, "--", h.s.self, "inside")
	argv = append(argv, at.args()...)
	argv = append(argv, "--lock", l.name, "--for", lasts.String(), "--asked", clock.Boottime.Now().String(),
		fmt.Sprintf("--shared=%t", mode == layout.Shared), fmt.Sprintf("--stubborn=%t", random.IntN(5) == 0))
	p, err := h.launch(name+".log", nil, argv...)
	if err != nil {
		return 0, err
	}
	code, err := p.code(context.WithoutCancel(ctx), wait+lasts+10*h.s.o.lease+patience)
	if err != nil {
		h.s.violate("bakeryctl lock of host %d does not end: %v", h.id, argv)
		_ = syscall.Kill(p.pid(), syscall.SIGKILL)
		return 0, err
	}
	h.s.report.exits(code)
	if unexpectedCodes[code] {
		h.s.violate("bakeryctl lock on host %d ended with code %d: %s", h.id, code, lastLines(filepath.Join(h.dir, name+".log"), 5))
	}
	return code, nil
}

// unexpectedCodes are exit codes of bakeryctl lock that no fault explains: wrong usage, a command
// that cannot run, and a panic.
var unexpectedCodes = map[int]bool{2: true, 42: true, 64: true, 126: true, 127: true}

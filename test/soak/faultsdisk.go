package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/fusetest"
)

// Faults of the device, of its contents, and of host ids.

// onPath makes the host's paths to some disks faulty for a drawn duration.
func onPath(least, most float64, begin func(*fusetest.State, *rand.Rand)) func(context.Context, *host, *rand.Rand) error {
	return func(ctx context.Context, h *host, random *rand.Rand) error {
		if err := h.aim(ctx, random); err != nil {
			return err
		}
		for _, i := range h.s.drawDisks(random, 1) {
			h.paths[i].faults.Change(func(s *fusetest.State) { begin(s, random) })
		}
		defer h.repairPaths()
		return pauseFor(ctx, h.leases(random, least, most))
	}
}

// drawDisks draws a number of disks, at least least, and which ones.
func (s *soak) drawDisks(random *rand.Rand, least int) []int {
	return random.Perm(len(s.disks))[:least+random.IntN(len(s.disks)-least+1)]
}

func drawTrouble(random *rand.Rand) fusetest.Trouble {
	return []fusetest.Trouble{fusetest.All, {Reads: true}, {Writes: true}}[random.IntN(3)]
}

func hangs(s *fusetest.State, random *rand.Rand) { s.Hang = drawTrouble(random) }
func fails(s *fusetest.State, random *rand.Rand) { s.Fail = drawTrouble(random) }
func slow(s *fusetest.State, random *rand.Rand) {
	s.Slow, s.Delay = fusetest.All, time.Millisecond+upTo(random, 100*time.Millisecond)
}

// detached takes devices away from bakeryd permanently, and gives the host other ones under the
// same names.
func detached(ctx context.Context, h *host, random *rand.Rand) error {
	if err := h.aim(ctx, random); err != nil {
		return err
	}
	var before []*path
	disks := h.s.drawDisks(random, 1)
	for _, i := range disks {
		p := h.paths[i]
		before = append(before, p)
		p.faults.Set(fusetest.State{Fail: fusetest.All})
		// The name goes first: another host may soon get the device.
		if err := errors.Join(os.Remove(h.device(i)), detach(ctx, p.loop)); err != nil {
			return err
		}
	}
	if err := pauseFor(ctx, h.leases(random, 0, 2)); err != nil {
		return err
	}
	for _, i := range disks {
		if err := h.connect(ctx, i); err != nil {
			return err
		}
	}
	h.recoversSince = time.Now()
	for _, p := range before {
		// bakeryd notices, and closes the old device.
		if err := until(ctx, 10*h.s.o.lease+patience, p.loop+" is closed", func() bool { return !attached(p.loop, p.mounted.dir+"/") }); err != nil {
			return err
		}
		if n := p.file.WroteTwice(); n > 0 {
			return fmt.Errorf("bakeryd wrote %d times over its own write in flight", n)
		}
		if err := errors.Join(p.mounted.unmount(), p.file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// damaged damages a record of a host that others need, on a majority of the disks, and waits until
// the host has rewritten it on all.
func damaged(spoil func(f *os.File, at int64, random *rand.Rand) error) func(context.Context, *host, *rand.Rand) error {
	return func(ctx context.Context, h *host, random *rand.Rand) error {
		space := h.s.space
		images, err := h.s.openImages()
		if err != nil {
			return err
		}
		defer images.close()
		used := []int{0}
		for l := 1; l <= space.Geometry.Locks; l++ {
			if images.all(space.Geometry.Entry(l), func(sector []byte) bool {
				e, err := space.DecodeEntry(sector, l)
				return err == nil && slices.ContainsFunc(locks, func(o lock) bool { return o.name == e.Name })
			}) {
				used = append(used, l)
			}
		}
		l, at, what := -1, space.Geometry.Host(h.id), "host record"
		decode := func(sector []byte) error { _, err := space.DecodeHost(sector, h.id); return err }
		if random.IntN(4) > 0 {
			l = used[random.IntN(len(used))]
			at, what = space.Geometry.Slot(l, h.id), fmt.Sprintf("slot of lock %d", l)
			decode = func(sector []byte) error { _, err := space.DecodeSlot(sector, l, h.id); return err }
		}
		if err := h.aim(ctx, random); err != nil {
			return err
		}
		disks := h.s.drawDisks(random, len(images)/2+1)
		h.s.logf("host %d: its %s at %d is spoiled on disks %v", h.id, what, at, disks)
		for _, i := range disks {
			if err := spoil(images[i], at, random); err != nil {
				return err
			}
		}
		h.recoversSince = time.Now()
		if l == 0 { // read only when a lock is created or removed
			needing, stop := context.WithCancel(ctx)
			defer stop()
			go h.makeLocks(needing)
		}
		return until(ctx, 10*h.s.o.lease+patience, fmt.Sprintf("the %s of host %d at %d is repaired", what, h.id, at), func() bool {
			return images.all(at, func(sector []byte) bool { return decode(sector) == nil })
		})
	}
}

// images are the contents of the disks.
type images []*os.File

func (s *soak) openImages() (all images, err error) {
	for _, d := range s.disks {
		f, err := os.OpenFile(d.image, os.O_RDWR, 0)
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		all = append(all, f)
	}
	return all, nil
}

func (all images) close() (err error) {
	for _, f := range all {
		err = errors.Join(err, f.Close())
	}
	return err
}

// all reports whether a condition holds for the sector at an address on every disk.
func (all images) all(at int64, holds func(sector []byte) bool) bool {
	return !slices.ContainsFunc(all, func(f *os.File) bool {
		sector := make([]byte, layout.RecordSize)
		_, err := f.ReadAt(sector, at)
		return err != nil || !holds(sector)
	})
}

// makeLocks makes the other hosts create and remove a lock repeatedly.
func (h *host) makeLocks(ctx context.Context) {
	for pauseFor(ctx, 100*time.Millisecond) == nil {
		for _, o := range h.s.hosts {
			if o == h || ctx.Err() != nil {
				continue
			}
			within, cancel := context.WithTimeout(ctx, h.s.o.lease)
			_, _, _ = o.client().Create(within, "spare", 1)
			_ = o.client().Remove(within, "spare", client.RemoveOptions{Timeout: h.s.o.lease})
			cancel()
		}
	}
}

func flipBits(f *os.File, at int64, random *rand.Rand) error {
	for range 1 + random.IntN(8) {
		place := at + int64(random.IntN(512))
		var b [1]byte
		if _, err := f.ReadAt(b[:], place); err != nil {
			return err
		}
		b[0] ^= 1 << random.IntN(8)
		if _, err := f.WriteAt(b[:], place); err != nil {
			return err
		}
	}
	return nil
}

func garbage(f *os.File, at int64, random *rand.Rand) error {
	var b [512]byte
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	_, err := f.WriteAt(b[:], at)
	return err
}

// evict makes another host declare this one dead. A host that seemed to renew a moment ago is only
// asked to leave; then the eviction is repeated, as an operator would.
func (h *host) evict(ctx context.Context, random *rand.Rand, flags ...string) error {
	others := slices.DeleteFunc(slices.Clone(h.s.hosts), func(o *host) bool { return o == h })
	random.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	var said error
	err := until(ctx, patience, fmt.Sprintf("host %d is evicted", h.id), func() bool {
		for _, o := range others {
			argv := append([]string{h.s.bakeryctl, "--socket", o.socket(), "evict", "--yes", fmt.Sprint(h.id)}, flags...)
			within, cancel := context.WithTimeout(ctx, 5*time.Second) // it may be paused
			out, _, err := output(within, argv...)
			cancel()
			already := "is declared dead already: its locks"
			if len(flags) > 0 {
				already = "is declared dead and forgotten already"
			}
			if strings.Contains(out, "declared dead") || err != nil && strings.Contains(err.Error(), already) {
				return true
			}
			said = err
		}
		return false
	})
	if err != nil {
		return errors.Join(err, said)
	}
	return nil
}

// evictedAlive asks a live host to leave. The host itself is asked: to another one it may look
// silent, and then an eviction would declare it dead.
func evictedAlive(ctx context.Context, h *host, random *rand.Rand) error {
	if err := h.aim(ctx, random); err != nil {
		return err
	}
	h.ending()
	if _, _, err := output(ctx, h.s.bakeryctl, "--socket", h.socket(), "evict", "--yes", fmt.Sprint(h.id)); err != nil {
		return err
	}
	code, err := h.daemon.code(ctx, patience)
	if err == nil && code != 0 {
		err = fmt.Errorf("bakeryd ended with code %d when it was evicted", code)
	}
	if err == nil {
		err = pauseFor(ctx, h.leases(random, 0, 1))
	}
	if err != nil {
		return err
	}
	return h.up(ctx)
}

func evictedDead(ctx context.Context, h *host, random *rand.Rand) error {
	return afterEviction(ctx, h, random, func() error { return nil })
}

// forgotten replaces a dead machine by another one with its id.
func forgotten(ctx context.Context, h *host, random *rand.Rand) error {
	return afterEviction(ctx, h, random, func() error {
		return errors.Join(os.RemoveAll(h.state()), os.Mkdir(h.state(), 0o755), h.newMachine())
	}, "--forget")
}

func afterEviction(ctx context.Context, h *host, random *rand.Rand, before func() error, flags ...string) error {
	if err := errors.Join(h.aim(ctx, random), h.powerOff(ctx, func() {})); err != nil {
		return err
	}
	if err := pauseFor(ctx, h.leases(random, 0, 1)); err != nil {
		return err
	}
	if err := h.evict(ctx, random, flags...); err != nil {
		return err
	}
	if err := pauseFor(ctx, h.leases(random, 0, 1)); err != nil {
		return err
	}
	if err := before(); err != nil {
		return err
	}
	return h.reboot(ctx)
}

// twin configures another machine with the id of a live host. It is refused.
func twin(ctx context.Context, h *host, _ *rand.Rand) error {
	dir := filepath.Join(h.dir, "twin")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, "etc"), 0o755)); err != nil {
		return err
	}
	t := &host{s: h.s, id: h.id, dir: dir}
	if err := errors.Join(t.newMachine(), t.newBoot()); err != nil {
		return err
	}
	log := filepath.Join(dir, "bakeryd.log")
	argv := []string{h.s.self, "boot", h.s.bakeryd, "--host-id", fmt.Sprint(h.id), "--name", "twin",
		"--socket", filepath.Join(dir, "s"), "--runtime-dir", dir, "--state-dir", dir}
	for _, loop := range h.s.loops() {
		argv = append(argv, "--device", loop)
	}
	p, err := start(dir, log, nil, argv...)
	if err != nil {
		return err
	}
	code, err := p.code(ctx, 5*h.s.o.lease+patience)
	if err != nil || code != 69 || strings.Contains(fileFrom(log, 0), "msg=serving") {
		_ = unix.Kill(p.pid(), unix.SIGKILL)
		<-p.ended
		return errors.Join(fmt.Errorf("another bakeryd with host id %d was not refused: code %d: %s", h.id, code, lastLines(log, 5)), err)
	}
	return nil
}

package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/layout"
)

// runLoop is a client of bakeryd like those of etcd and sanlock: it locks and unlocks repeatedly,
// and prints the nanoseconds of both for every turn. With --floor it only makes the requests to the
// disk.
func runLoop(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("loop", flag.ContinueOnError)
	socket := fs.String("socket", client.DefaultSocket, "of bakeryd")
	name := fs.String("name", "bench", "of the lock")
	floor := fs.String("floor", "", "`file` to issue a write, a read and a write on instead")
	slots := fs.Int("slots", 1, "with --floor: how many slots the read covers")
	warmup := fs.Int("warmup", 20, "`turns` that are not told of")
	duration := fs.Duration("for", time.Second, "how long to go on")
	if err := fs.Parse(args); err != nil {
		return err
	}
	one := locker(ctx, *socket, *name)
	if *floor != "" {
		dev, err := blockdev.Open(*floor, blockdev.Options{})
		if err != nil {
			return err
		}
		defer dev.Close()
		one = rawRequests(dev, *slots)
	}
	out := bufio.NewWriter(os.Stdout)
	begun := time.Now()
	for n := 0; n <= *warmup || time.Since(begun) < *duration; n++ {
		if n == *warmup {
			begun = time.Now()
		}
		t, counts, err := one()
		if err != nil {
			return err
		}
		if n >= *warmup && counts {
			fmt.Fprintln(out, t.lock.Nanoseconds(), t.unlock.Nanoseconds())
		}
	}
	return out.Flush()
}

// locker locks and unlocks with bakeryd. A turn counts from the end of the turn before, so that it
// includes all of a release. It does not count if the host still held the lock and handed it on
// without the disk: its token is then a further one of the same ticket.
func locker(ctx context.Context, socket, name string) func() (turn, bool, error) {
	c, last := client.New(socket), time.Now()
	fresh := client.Options{NoLinger: true}
	return func() (turn, bool, error) {
		h, err := c.Lock(ctx, name, fresh)
		if err != nil {
			return turn{}, false, err
		}
		locked := time.Now()
		err = h.Unlock()
		t := turn{locked.Sub(last), time.Since(locked)}
		last = time.Now()
		return t, h.Token()%layout.MaxGrants == 0, err
	}
}

// rawRequests makes the requests of an uncontended lock and unlock: claim, look, release.
func rawRequests(dev blockdev.Device, slots int) func() (turn, bool, error) {
	stride := dev.Info().PhysicalBlock
	slot, all := blockdev.Alloc(stride), blockdev.Alloc(slots*stride)
	return func() (turn, bool, error) {
		from := time.Now()
		if err := dev.Write(slot, 0); err != nil {
			return turn{}, false, err
		}
		if err := dev.Read(all, 0); err != nil {
			return turn{}, false, err
		}
		locked := time.Now()
		err := dev.Write(slot, 0)
		return turn{locked.Sub(from), time.Since(locked)}, true, err
	}
}

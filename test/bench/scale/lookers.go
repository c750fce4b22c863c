package scale

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/client"
)

// lookEvery is how often a client that only looks asks: the page asks as often.
const lookEvery = time.Second

// look starts clients that only look: each follows the events, and asks for the page's status and
// for the locks every lookEvery. stop ends them.
func (b *bakeryd) look(ctx context.Context, count int) (lookers *sync.WaitGroup, stop func()) {
	ctx, stop = context.WithCancel(ctx)
	lookers = &sync.WaitGroup{}
	for n := range count {
		c := client.New(b.socket)
		lookers.Go(func() {
			if events, err := c.Open(ctx, "/v1/events?follow=1"); err == nil {
				_, _ = io.Copy(io.Discard, events) // until the end of ctx
				_ = events.Close()
			}
		})
		lookers.Go(func() {
			defer c.Close()
			// not all at the same time
			for pause := lookEvery * time.Duration(n) / time.Duration(count); sleep(ctx, pause) == nil; pause = lookEvery {
				for _, path := range []string{"/page/status", "/v1/locks"} {
					_ = c.Call(ctx, "GET", path, nil, new(any))
				}
			}
		})
	}
	return lookers, stop
}

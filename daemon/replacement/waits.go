package replacement

import (
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/waiting"
)

// waitEvery is the time between two looks at what is waited for. One that two looks find is reported.
const waitEvery = time.Second

// reportWaits reports what is waited for until over is called. No other goroutine calls Progress before that.
func (o Order) reportWaits(what func() string) (over func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for last, shown := "", ""; ; {
			select {
			case <-time.After(waitEvery):
			case <-done:
				return
			}
			now := what()
			if now != "" && now == last && now != shown {
				o.Progress("waiting for " + now)
				shown = now
			}
			last = now
		}
	}()
	return sync.OnceFunc(func() { close(done); <-ended })
}

// silentHosts returns the hosts of which one may hold the directory's lock, such as that of a replacement that was
// killed; empty if there are none.
func (r *replacement) silentHosts() string {
	hosts, _ := r.host.Member().Known()
	return waiting.Silent(hosts, r.times)
}

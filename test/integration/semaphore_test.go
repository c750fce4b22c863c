//go:build integration

package integration

import (
	"cmp"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/layout"
)

// visit is one critical section: from after the grant to before it is let go.
type visit struct {
	host     int
	from, to time.Duration
	token    layout.Ticket
}

// visits is the log of them.
type visits struct {
	began time.Time
	mu    sync.Mutex // guards all
	all   []visit
}

// section takes a lock, is inside for a moment, lets it go, and logs that.
func (l *visits) section(t *testing.T, h *host, id int, name string) bool {
	hold, err := h.client().Lock(t.Context(), name, client.Options{Command: "critical section"})
	if err != nil {
		t.Error(err)
		return false
	}
	s := visit{host: id, from: time.Since(l.began), token: hold.Token()}
	time.Sleep(3 * time.Millisecond) // so that there is somebody to meet
	s.to = time.Since(l.began)
	if err := hold.Unlock(); err != nil {
		t.Error(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
	return true
}

// most is how many were inside at once, and who they were.
func (l *visits) most() (most []visit) {
	slices.SortFunc(l.all, func(a, b visit) int { return cmp.Compare(a.from, b.from) })
	var inside []visit
	for _, s := range l.all {
		inside = slices.DeleteFunc(inside, func(o visit) bool { return o.to <= s.from })
		if inside = append(inside, s); len(inside) > len(most) {
			most = slices.Clone(inside)
		}
	}
	return most
}

// TestSemaphoreOverHosts: of four hosts that all want to, two reboot at once, and never three.
func TestSemaphoreOverHosts(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	hosts := s.hosts(4)
	made := hosts[0].ctl("create", "reboot", "--permits", "2")
	require.Zero(t, made.code, made.stderr)
	const clients, each = 3, 12
	log := &visits{began: time.Now()}
	var all sync.WaitGroup
	for i := range clients * len(hosts) {
		all.Go(func() {
			for range each {
				if id := i % len(hosts); !log.section(t, hosts[id], id+1, "reboot") {
					return
				}
			}
		})
	}
	all.Wait()
	require.Len(t, log.all, clients*each*len(hosts))
	most := log.most()
	t.Logf("measured: %d critical sections on 4 hosts with 2 permits, at most %d at once", len(log.all), len(most))
	require.Len(t, most, 2, "%+v", most)
	require.NotEqual(t, most[0].host, most[1].host, "a permit is a host's")
	tokens := map[layout.Ticket]bool{}
	for _, v := range log.all {
		require.False(t, tokens[v.token], "token %d twice", v.token)
		tokens[v.token] = true
	}
}

// TestSemaphoreOfDeadHost: a permit that a dead host had is another's in time; until then the others share what is left.
func TestSemaphoreOfDeadHost(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	hosts := s.hosts(3)
	require.Zero(t, hosts[0].ctl("create", "reboot", "--permits", "2").code)
	dies := hosts[2].take("reboot")
	dies.entered()
	stays := hosts[0].take("reboot")
	stays.entered()
	next := hosts[1].take("reboot")
	hosts[0].sees(hosts[1], "reboot")
	next.outside()
	dies.signal(syscall.SIGKILL)
	hosts[2].all(syscall.SIGKILL)
	next.entered()
	next.letGo()
	stays.letGo()
}

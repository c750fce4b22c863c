//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/client"
)

// resident returns the resident memory of a process in bytes.
func (p *process) resident() int {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	require.NoError(p.t, err)
	var size, pages int
	_, err = fmt.Sscan(string(text), &size, &pages)
	require.NoError(p.t, err)
	return pages * os.Getpagesize()
}

// lockRequest returns an HTTP request.
func lockRequest(body string) string {
	return fmt.Sprintf("POST /v1/lock HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// squeeze connects as soon as bakeryd has accepted the connections before.
func (h *host) squeeze(n int) (c net.Conn) {
	h.t.Helper()
	eventually(h.t, fmt.Sprintf("connection %d", n), func() bool {
		var err error
		c, err = net.Dial("unix", h.socket)
		require.True(h.t, err == nil || errors.Is(err, unix.EAGAIN), "%v", err)
		return err == nil
	})
	return c
}

// TestCrowd opens ten thousand connections, or as many as the limit of open files allows: idle
// links, unfinished requests, and waiters that do not read. Other clients are not affected, and
// bakeryd frees what the connections took when they are gone.
func TestCrowd(t *testing.T) {
	t.Parallel()
	crowd := 10_000
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	if room := int(limit.Cur) - 2000; room < crowd {
		t.Logf("the limit of open files is %d: %d connections", limit.Cur, room)
		crowd = room
	}
	require.Greater(t, crowd, 500, "the limit of open files is %d", limit.Cur)
	s := newSpace(t, 512)
	a, b := s.host(1), s.host(2)
	incarnation, before, memory := a.incarnation(), a.descriptors(), a.resident()
	holder, first := a.holds("held")
	kinds := []string{
		openingLink, openingLink, openingLink,
		lockRequest(`{"name":"held"}`)[:60],                     // unfinished header
		strings.TrimSuffix(lockRequest(`{"name":"held"}`), "}"), // unfinished body
		"GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n",
		strings.Repeat("GET /v1/locks HTTP/1.1\r\nHost: x\r\n\r\n", 4),
		lockRequest(`{"name":"held"}`), // waits
		openingLink + `{"lock":{"name":"held","mode":"shared"}}` + "\n",
		"", // half open
	}
	conns := make([]net.Conn, 0, crowd)
	began := time.Now()
	for n := range crowd {
		c := a.squeeze(n)
		conns = append(conns, c)
		_, err := c.Write([]byte(kinds[n%len(kinds)]))
		require.NoError(t, err, "connection %d", n)
	}
	measured(t, fmt.Sprintf("%d connections", crowd), time.Since(began))
	during := a.resident()
	t.Logf("%d KiB for each of them", (during-memory)/crowd>>10)
	require.Less(t, (during-memory)/crowd, 96<<10)
	// Some send a byte repeatedly.
	stop := make(chan struct{})
	var drip sync.WaitGroup
	drip.Go(func() {
		for i := 3; ; i = (i + 10) % crowd {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				_, _ = conns[i].Write([]byte("x")) // it may be closed
			}
		}
	})
	for range 20 {
		require.Zero(t, a.lock("-w", "120", "free", "--", "true").code)
		require.Zero(t, b.lock("-w", "120", "free", "--", "true").code)
	}
	require.Equal(t, 1, b.lock("-n", "held", "--", "true").code)
	closed := func(c net.Conn) bool {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := c.Read(make([]byte, 64<<10))
		netErr, isNet := err.(net.Error)
		return err != nil && !(isNet && netErr.Timeout())
	}
	eventually(t, "connections with unfinished requests are closed", func() bool { return closed(conns[3]) && closed(conns[4]) && closed(conns[9]) })
	close(stop)
	drip.Wait()
	require.True(t, holder.running(), holder.said())
	for _, c := range conns {
		c.Close()
	}
	eventually(t, "descriptors are given back", func() bool { return a.descriptors() <= before+4 })
	holder.letGo()
	a.free("held")
	require.Equal(t, incarnation, a.incarnation(), "the lease was never in danger")
	next := b.take("held")
	require.Greater(t, next.entered(), first)
	next.letGo()
	// The same number of further connections takes no more memory than the first may, including
	// uncollected garbage.
	for n := range crowd {
		c := a.squeeze(n)
		_, _ = c.Write([]byte(kinds[n%2]))
		conns[n] = c
	}
	require.Less(t, (a.resident()-memory)/crowd, 96<<10)
	for _, c := range conns {
		c.Close()
	}
	eventually(t, "descriptors to be closed", func() bool { return a.descriptors() <= before+4 })
}

// TestClientsThatDoNotRead: answers to a client that does not read are dropped in the end, and
// block no other client.
func TestClientsThatDoNotRead(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	a := s.host(1)
	for i := range 15 {
		require.Zero(t, a.ctl("create", fmt.Sprint("lock", i)).code)
	}
	before := a.descriptors()
	// More answers than fit into the buffers.
	full := a.knock(strings.Repeat("GET /v1/locks HTTP/1.1\r\nHost: x\r\n\r\n", 3000))
	c := a.client()
	for range 50 {
		h, err := c.Lock(context.Background(), "lock0", client.Options{Timeout: 20 * time.Second})
		require.NoError(t, err)
		require.NoError(t, h.Unlock())
	}
	eventually(t, "bakeryd lets it go", func() bool {
		return gone(full) && a.descriptors() <= before+1
	})
}

// gone reports whether the other end is closed, without reading.
func gone(c net.Conn) bool {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return true
	}
	hup := false
	_ = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if n, err := unix.Poll(p, 0); err == nil && n > 0 {
			hup = p[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLRDHUP) != 0
		}
	})
	return hup
}

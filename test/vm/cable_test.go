//go:build vm

package vm

import (
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// cable is an initiator's path to a portal, with its faults. Every connection to it is passed on to
// the portal.
type cable struct {
	listener net.Listener
	portal   string

	mu     sync.Mutex // guards the fields below
	change *sync.Cond
	held   bool // data waits
	cutOff bool // connections are closed
	ends   []net.Conn
}

func lay(t *testing.T, portal string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cable{listener: l, portal: portal}
	c.change = sync.NewCond(&c.mu)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { c.connect(near) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		c.cut()
		all.Wait()
	})
	return c
}

func (c *cable) address() string { return c.listener.Addr().String() }

// hold stops all data, like a fabric without a path. Data in flight, and later data, continues with
// restore.
func (c *cable) hold() { c.set(true, false) }

// cut closes the connections, and refuses new ones.
func (c *cable) cut() { c.set(false, true) }

func (c *cable) restore() { c.set(false, false) }

func (c *cable) set(held, cutOff bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held, c.cutOff = held, cutOff
	if cutOff {
		for _, end := range c.ends {
			end.Close()
		}
		c.ends = nil
	}
	c.change.Broadcast()
}

// pass waits while data is held, and reports whether it may pass at all.
func (c *cable) pass() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.held {
		c.change.Wait()
	}
	return !c.cutOff
}

// keep registers connections, which a cut closes.
func (c *cable) keep(ends ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends = append(c.ends, ends...)
	return !c.cutOff
}

func (c *cable) drop(ends ...net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range ends {
		end.Close()
		c.ends = slices.DeleteFunc(c.ends, func(e net.Conn) bool { return e == end })
	}
}

func (c *cable) connect(near net.Conn) {
	if !c.pass() || !c.keep(near) {
		near.Close()
		return
	}
	defer c.drop(near)
	far, err := net.Dial("tcp", c.portal)
	if err != nil {
		return
	}
	defer c.drop(far)
	if !c.keep(far) {
		return
	}
	var there sync.WaitGroup
	there.Go(func() { c.copy(far, near) })
	c.copy(near, far)
	there.Wait()
}

// copy closes both ends when either is closed.
func (c *cable) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	p := make([]byte, 64<<10)
	for {
		n, err := from.Read(p)
		if !c.pass() {
			return
		}
		if _, werr := to.Write(p[:n]); werr != nil || err != nil {
			return
		}
	}
}

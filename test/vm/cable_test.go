//go:build vm

package vm

import (
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// cable is the way of one initiator to a portal, and what can happen to it. Who connects is one more connection to
// the portal.
type cable struct {
	listener net.Listener
	portal   string

	mu     sync.Mutex // guards what follows
	change *sync.Cond
	held   bool // nothing goes through: it waits
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

// hold lets nothing through from now on: as a fabric does that has lost its way. What is under way then, and what
// comes, goes on with mend.
func (c *cable) hold() { c.set(true, false) }

// cut closes the connections, and every new one.
func (c *cable) cut() { c.set(false, true) }

func (c *cable) mend() { c.set(false, false) }

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

// pass waits until something may go through, and tells whether it may at all.
func (c *cable) pass() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.held {
		c.change.Wait()
	}
	return !c.cutOff
}

// keep has connections closed when the cable is cut.
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

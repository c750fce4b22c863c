//go:build vm

package vm

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The target crashes and is back within the lease: nobody loses anything. It is gone for longer than that: all
// sections are stopped, and when it is back all hosts join anew by themselves.
func TestTargetRestarted(t *testing.T) {
	t.Parallel()
	c := gather(t, setup{hosts: 3, lease: 2 * usual})
	a, b, d := c.hosts[0], c.hosts[1], c.hosts[2]
	b.work()
	d.work()
	c.progress(1, b, d)
	section, token := a.enter()
	began := time.Now()
	c.target.stop()
	time.Sleep(time.Second) // gone for that long
	c.target.start()
	// Who is in the section renews its lease: the disk is back for it.
	before := c.sequence(a)
	eventually(t, "the lease is renewed", func() bool { return c.sequence(a) > before+1 || !section.runs() })
	require.True(t, section.runs(), "the section was stopped")
	c.measured("the target was gone for a second; the lease of %v was renewed twice within %v", c.times.Lease, time.Since(began).Round(10*time.Millisecond))
	require.Equal(t, token, c.counter().Token)
	section.letGo()
	c.progress(2, b, d)

	section, token = a.enter("--stubborn")
	c.target.stop()
	section.exits(75)
	for _, h := range c.hosts {
		eventually(t, h.name+" has lost its lease", func() bool { return strings.Contains(h.bakeryd.said(), "lease lost") })
	}
	c.target.start()
	for _, h := range c.hosts {
		eventually(t, h.name+" has joined anew", func() bool { return h.joined() >= 2 })
	}
	a.work()
	c.progress(2, a, b, d)
	rest(a, b, d)
	c.whole(token)
}

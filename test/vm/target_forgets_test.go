//go:build vm

package vm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A target that restarts and forgets who was registered, under hosts that go on: nobody notices before somebody is
// to be fenced. Then the host that is to do it finds that it could not say so for itself: it gives its lease up,
// registers anew and, with a reservation in force again, cuts the dead host off.
func TestTargetForgotAndFenced(t *testing.T) {
	t.Parallel()
	c := gather(t, setup{fence: true})
	a, b := c.hosts[0], c.hosts[1]
	late, token := a.enter("--stubborn")
	b.work()
	c.target.stop()
	c.target.start()
	for _, h := range c.hosts {
		before := c.sequence(h)
		eventually(t, h.name+" renews its lease", func() bool { return c.sequence(h) > before+1 })
	}
	if a.joined()+b.joined() > 2 {
		t.Log("hosts have joined anew by themselves")
	}
	require.Equal(t, token, c.counter().Token, "the section goes on")
	began, next := time.Now(), c.entered(token)
	a.pause()
	c.othersWaited(next(), began, 0)
	c.progress(2, b)
	late.input("\n")
	a.resume()
	late.says("refused: write the counter: ")
	late.says(conflict)
	late.over()
	c.afterwards()
	c.whole(token)
}

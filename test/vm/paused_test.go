//go:build vm

package vm

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pauseBeyondLease stops the clocks of host a, in the middle of a section, for so long that b enters, and lets it go
// on. What follows is a's late write: it still believes in its lease.
func (c *cluster) pauseBeyondLease(flags ...string) (late *command, token uint64) {
	c.t.Helper()
	a, b := c.hosts[0], c.hosts[1]
	late, token = a.enter(append(flags, "--stubborn")...)
	b.work(flags...)
	began, next := time.Now(), c.entered(token)
	a.pause()
	c.othersWaited(next(), began, 0)
	c.progress(2, b)
	late.input("\n") // it comes when the machine goes on
	a.resume()
	return late, token
}

// over waits for the end of a late section. It may be faster than the word that its lock is lost.
func (c *command) over() {
	c.m.t.Helper()
	eventually(c.m.t, "the late section has ended", func() bool { return !c.runs() })
}

// afterwards has the late host join anew, and take part.
func (c *cluster) afterwards(flags ...string) {
	c.t.Helper()
	a, b := c.hosts[0], c.hosts[1]
	eventually(c.t, "it has joined anew", func() bool { return a.joined() >= 2 })
	a.work(flags...)
	c.progress(2, a, b)
	rest(a, b)
}

// What no lock can prevent: a host that stood still without knowing writes when it goes on, and what others wrote
// meanwhile is lost. Its token tells: it is smaller than the one that it wrote over.
func TestPausedAndPlainWrites(t *testing.T) {
	t.Parallel()
	c := gather(t, setup{})
	late, token := c.pauseBeyondLease()
	late.says("raised")
	c.measured("the late write went through, as it must where nothing looks at tokens")
	late.over()
	c.afterwards()
	r := c.judge()
	require.NotEmpty(t, r.Problems, "the check is blind")
	for _, p := range r.Problems {
		c.measured("what is lost: %s", p)
	}
	// The locks did what they could: of all sections only this one was not alone.
	whose := "token " + strconv.FormatUint(token, 10)
	for _, p := range r.Problems {
		require.Contains(t, p, whose)
	}
	require.Less(t, token, r.Last)
}

// Paused without knowing, with sections that look at the token before they write: the late one finds a greater token
// than its own, and gives way.
func TestPausedAndTokens(t *testing.T) {
	t.Parallel()
	c := gather(t, setup{})
	late, token := c.pauseBeyondLease("--check")
	late.says("refused: write the counter: the counter has a greater token")
	late.over()
	c.afterwards("--check")
	c.whole(token)
}

// Paused without knowing, with plain writes and the recovery policy to fence: before the next host entered it had
// removed the late one's registration from both disks, and the disk itself refuses the late write.
func TestPausedAndFenced(t *testing.T) {
	t.Parallel()
	c := gather(t, setup{fence: true})
	late, token := c.pauseBeyondLease()
	late.says("refused: write the counter: ")
	late.says(conflict)
	late.over()
	require.False(t, strings.Contains(late.said(), "raised"))
	c.afterwards()
	c.whole(token)
}

//go:build vm

package vm

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pauseBeyondLease stops the clocks of host a within a section until b enters, and then continues
// a. a's late write follows: it still believes in its lease.
func (c *cluster) pauseBeyondLease(flags ...string) (late *command, token uint64) {
	c.t.Helper()
	a, b := c.hosts[0], c.hosts[1]
	late, token = a.enter(append(flags, "--stubborn")...)
	b.work(flags...)
	began, next := time.Now(), c.entered(token)
	a.pause()
	c.othersWaited(next(), began, 0)
	c.progress(2, b)
	late.input("\n") // read when the machine continues
	a.resume()
	return late, token
}

// over waits for the end of a late section, which may end before it learns of the loss.
func (c *command) over() {
	c.m.t.Helper()
	eventually(c.m.t, "the late section has ended", func() bool { return !c.runs() })
}

// afterwards checks that the late host joins again and works.
func (c *cluster) afterwards(flags ...string) {
	c.t.Helper()
	a, b := c.hosts[0], c.hosts[1]
	eventually(c.t, "it has joined again", func() bool { return a.joined() >= 2 })
	a.work(flags...)
	c.progress(2, a, b)
	rest(a, b)
}

// A loss that no lock can prevent: a host that was paused without knowing it writes when it
// continues, and overwrites what others wrote meanwhile. Its token shows it: it is smaller than the
// one that it replaced.
func TestPausedAndPlainWrites(t *testing.T) {
	t.Parallel()
	c := gather(t, setup{})
	late, token := c.pauseBeyondLease()
	late.says("raised")
	c.measured("the late write went through, as it must where nothing looks at tokens")
	late.over()
	c.afterwards()
	r := c.judge()
	require.NotEmpty(t, r.Problems, "the check found no violation")
	for _, p := range r.Problems {
		c.measured("what is lost: %s", p)
	}
	// The locks did what they could: only this section overlapped others.
	whose := "token " + strconv.FormatUint(token, 10)
	for _, p := range r.Problems {
		require.Contains(t, p, whose)
	}
	require.Less(t, token, r.Last)
}

// A pause without notice, with sections that check the token before they write: the late section
// finds a greater token, and does not write.
func TestPausedAndTokens(t *testing.T) {
	t.Parallel()
	c := gather(t, setup{})
	late, token := c.pauseBeyondLease("--check")
	late.says("refused: write the counter: the counter has a greater token")
	late.over()
	c.afterwards("--check")
	c.whole(token)
}

// A pause without notice, with plain writes and policy fence: before the next host entered it
// removed the late host's registration from both disks, so the disk refuses the late write.
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

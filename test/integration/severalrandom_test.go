//go:build integration

package integration

import (
	"flag"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

var (
	memberTime = flag.Duration("members", 3*time.Second, "how long TestSeveral_FaultsAtRandom_AllContinue makes member disks faulty")
	memberSeed = flag.Uint64("members-seed", 0, "of the faults of that test; 0: another one each time")
)

// version returns the version of a host's record on a member.
func (s *space) version(h *host, member int) layout.CopyVersion {
	s.t.Helper()
	space := layout.Space{UUID: s.uuid, Geometry: s.geo, Several: true}
	id, err := strconv.Atoi(h.id)
	require.NoError(s.t, err)
	off := s.geo.Host(id)
	v, err := space.CopyVersion(s.content(member)[off:off+int64(s.sector)], off, member+1)
	require.NoError(s.t, err)
	return v
}

// renewed waits until each host has written its record on a member again: a host recognizes by its
// record that a member lost writes (OWN).
func (c *traffic) renewed(member int) {
	c.t.Helper()
	for _, h := range c.hosts {
		before := c.s.version(h, member)
		eventually(c.t, "host "+h.id+" renews its lease on a member", func() bool { return c.s.version(h, member) != before })
	}
}

// fail makes a member fail, and waits until all hosts have lost it.
func (c *traffic) fail(p *faultyPath, member int) {
	c.t.Helper()
	p.trouble("fail", "all")
	for _, h := range c.hosts {
		h.loses(member, "input/output error")
	}
}

func (c *traffic) recovers(p *faultyPath, member int) {
	c.t.Helper()
	p.repair()
	for _, h := range c.hosts {
		h.recovers(member)
	}
}

// refuse makes a member fail, and return with other contents. All hosts refuse it for a time: it
// never votes. The member fails because one that loses writes in use, and does not fail, votes
// until it is checked. refuse returns the contents before.
func (c *traffic) refuse(p *faultyPath, member int, content []byte, why string, lasts time.Duration) (before []byte) {
	c.t.Helper()
	c.fail(p, member)
	var since []time.Time
	for _, h := range c.hosts {
		since = append(since, h.disks()[member].Since)
	}
	before = c.s.content(member)
	c.s.overwrite(member, content)
	p.repair()
	for _, h := range c.hosts {
		h.loses(member, why)
	}
	c.progressFor(lasts)
	for i, h := range c.hosts {
		h.loses(member, why)
		require.Equal(c.t, since[i], h.disks()[member].Since, "member %d was up on host %s", member, h.id)
	}
	return before
}

// TestSeveral_FaultsAtRandom_AllContinue: one member at a time fails, hangs, is slow, is wiped, or
// is restored from an earlier snapshot, and returns with the right contents. bakeryds are killed
// and started again.
func TestSeveral_FaultsAtRandom_AllContinue(t *testing.T) {
	t.Parallel()
	seed := *memberSeed
	for seed == 0 {
		seed = rand.Uint64N(1e9)
	}
	t.Logf("seed %d: repeat it with -members-seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s, paths := brokenSpace(t, "--lease", (2 * briefLease).String()) // a bakeryd must be back before that ends
	hosts := s.hosts(3)
	c := s.traffic(hosts...)
	c.restarts.Store(true)
	snapshots := make([][][]byte, members)
	for member := range members {
		snapshots[member] = append(snapshots[member], s.content(member))
	}
	some := func(most time.Duration) time.Duration { return time.Duration(random.Int64N(int64(most))) }
	what := func() string { return []string{"all", "reads", "writes"}[random.IntN(3)] }
	// returns puts other contents in a member's place, and then its own.
	returns := func(member int, content []byte, why string) {
		own := c.refuse(paths[member], member, content, why, some(2*lockspace.DefaultRetry))
		c.fail(paths[member], member)
		s.overwrite(member, own)
	}
	faults := []struct {
		name string
		do   func(member int)
	}{
		{"fails", func(member int) {
			c.fail(paths[member], member)
			snapshots[member] = append(snapshots[member], s.content(member))
			c.progressFor(some(lockspace.DefaultRetry))
		}},
		{"fails partly", func(member int) {
			paths[member].trouble("fail", what())
			c.progressFor(some(2 * lockspace.DefaultRetry))
		}},
		{"hangs", func(member int) {
			paths[member].trouble("hang", what())
			c.progressFor(some(2 * briefLease))
		}},
		{"is slow", func(member int) {
			paths[member].trouble("delay 50ms", what())
			c.progressFor(some(briefLease))
		}},
		{"is wiped", func(member int) { returns(member, s.blankMember(), "never formatted") }},
		{"is restored", func(member int) {
			c.renewed(member)
			returns(member, snapshots[member][random.IntN(len(snapshots[member]))], "lost writes")
		}},
		{"fails, a bakeryd is killed", func(member int) {
			c.fail(paths[member], member)
			h := hosts[random.IntN(len(hosts))]
			h.crash()
			h.up()
			c.progressFor(some(lockspace.DefaultRetry))
		}},
	}
	for began := sinceBoot(); sinceBoot() < began+*memberTime; {
		for _, i := range random.Perm(len(faults)) {
			member := random.IntN(members)
			t.Logf("%v: member %d %s", (sinceBoot() - began).Round(time.Millisecond), member, faults[i].name)
			faults[i].do(member)
			c.recovers(paths[member], member)
			if sinceBoot() >= began+*memberTime {
				break
			}
		}
	}
	c.unharmed()
	require.NotContains(t, must(t, append([]string{plain.bakeryctl, "check", hosts[0].dev}, hosts[0].more...)...), "warning: ")
	for _, p := range paths {
		p.neverTwice()
	}
}

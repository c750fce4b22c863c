//go:build integration

package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

// A lockspace on three disks. Members count from 0 here, and from 1 on the disk.

const members = 3

// severalSpace creates a lockspace on three disks with the brief lease, in memory.
func severalSpace(t *testing.T, flags ...string) *space {
	t.Helper()
	return severalImages(t).withSeveral(flags...)
}

// brokenSpace is severalSpace with a path to each disk that can fail for all hosts.
func brokenSpace(t *testing.T, flags ...string) (s *space, paths []*faultyPath) {
	t.Helper()
	s = severalImages(t)
	for _, file := range s.files() {
		paths = append(paths, s.pathTo(file))
	}
	s.file, s.more = paths[0].file, []string{paths[1].file, paths[2].file}
	return s.withSeveral(flags...), paths
}

// severalImages creates the files.
func severalImages(t *testing.T) *space {
	t.Helper()
	s := imageBelow(t, memory, 512)
	for i := 1; i < members; i++ {
		require.NoError(t, os.WriteFile(s.image(i), make([]byte, imageSize), 0o600))
		s.more = append(s.more, s.image(i))
	}
	return s
}

// image returns the file of a member, below all paths that can fail.
func (s *space) image(member int) string {
	if member == 0 {
		return filepath.Join(s.dir, "image")
	}
	return filepath.Join(s.dir, fmt.Sprint("image-", member))
}

func (s *space) withSeveral(flags ...string) *space {
	s.t.Helper()
	for i := 1; i < members; i++ {
		flags = append(flags, loopOver(s.t, s.image(i), s.sector))
	}
	return s.withSpace(append([]string{"--lease", briefLease.String()}, flags...)...)
}

// checkCopies checks that each record of a member is a valid copy.
func (s *space) checkCopies(image []byte, position int) {
	stride := int64(s.geo.Stride)
	space := layout.Space{UUID: s.uuid, Geometry: s.geo, Several: true}
	for off := int64(0); off < s.geo.Size(); off += stride {
		if _, err := space.CopyVersion(image[off:off+stride], off, position); err != nil {
			s.t.Errorf("member %d: %v", position, err)
		}
	}
}

// content returns what is on a member.
func (s *space) content(member int) []byte {
	s.t.Helper()
	content, err := os.ReadFile(s.image(member))
	require.NoError(s.t, err)
	return content
}

// blankMember is the content of a member that was wiped.
func (s *space) blankMember() []byte { return make([]byte, s.guard) }

// overwrite replaces the lockspace on a member behind the back of all hosts.
func (s *space) overwrite(member int, content []byte) {
	s.t.Helper()
	f, err := os.OpenFile(s.image(member), os.O_WRONLY, 0)
	require.NoError(s.t, err)
	_, err = f.WriteAt(content[:s.guard], 0)
	require.NoError(s.t, err)
	require.NoError(s.t, f.Close())
}

// breakableMember gives a host that is down a path of its own to a member.
func (h *host) breakableMember(member int) *faultyPath {
	h.t.Helper()
	p := h.s.pathTo(h.s.image(member))
	h.replace(member, loopOver(h.t, p.file, h.s.sector))
	return p
}

// replace gives a host that is down another device for a member.
func (h *host) replace(member int, dev string) {
	if member == 0 {
		h.dev = dev
	} else {
		h.more[member-1] = dev
	}
}

// disks returns the member disks that bakeryctl disks shows.
func (h *host) disks() []report.Disk {
	h.t.Helper()
	status := h.status()
	require.Len(h.t, status.Disks, members)
	return status.Disks
}

// shows waits until bakeryctl disks shows that a condition holds for a member.
func (h *host) shows(member int, what string, holds func(d report.Disk) bool) (d report.Disk) {
	h.t.Helper()
	eventually(h.t, fmt.Sprintf("host %s shows: member %d %s", h.id, member, what), func() bool {
		d = h.disks()[member]
		require.Equal(h.t, member+1, d.Position)
		return holds(d)
	})
	return d
}

// loses waits until a host logs that a member is lost, and shows that it is down, and why.
func (h *host) loses(member int, why string) {
	h.t.Helper()
	h.logs(member, "lost")
	h.shows(member, "is down", func(d report.Disk) bool { return d.State == "down" && strings.Contains(d.Error, why) })
	require.Regexp(h.t, fmt.Sprintf("member disk %d .*is down", member+1), h.ctl("disks").stdout)
}

// hangs waits until a host shows that a member does not answer.
func (h *host) hangs(member int) {
	h.t.Helper()
	h.shows(member, "hangs", func(d report.Disk) bool { return d.State == "hangs" && d.Behind > 0 })
	require.Regexp(h.t, fmt.Sprintf("member disk %d .*hangs", member+1), h.ctl("disks").stdout)
}

// recovers waits until a host shows that a member is up and has all records.
func (h *host) recovers(member int) {
	h.t.Helper()
	h.shows(member, "is up", func(d report.Disk) bool { return d.Up() && d.Behind == 0 })
}

// logs waits until the log names a member that is lost or back.
func (h *host) logs(member int, state string) {
	h.t.Helper()
	text := fmt.Sprintf("msg=%q disk=%d ", "member disk is "+state, member+1)
	eventually(h.t, "host "+h.id+" logs "+text, func() bool { return strings.Contains(h.said(), text) })
}

// traffic is clients on all hosts that take one lock in turns, and a command on each host under a lock
// of its own.
type traffic struct {
	t            *testing.T
	s            *space
	hosts        []*host
	incarnations []string
	held         []*process

	hist     calls
	done     []atomic.Int64 // sections, by host
	restarts atomic.Bool    // bakeryds are started again: clients retry
	ended    atomic.Bool
	all      sync.WaitGroup
}

// traffic starts them on hosts that are up.
func (s *space) traffic(hosts ...*host) *traffic {
	s.t.Helper()
	c := &traffic{t: s.t, s: s, hosts: hosts, hist: newCalls(), done: make([]atomic.Int64, len(hosts))}
	for _, h := range hosts {
		c.incarnations = append(c.incarnations, h.incarnation())
		c.held = append(c.held, h.work("held-"+h.id, "holder"))
		s.journal("held-" + h.id).entered("holder")
	}
	for i := range 2 * len(hosts) {
		c.all.Go(func() { c.client(i % len(hosts)) })
	}
	s.t.Cleanup(func() { // if the test failed
		c.ended.Store(true)
		c.all.Wait()
	})
	c.progress()
	return c
}

func (c *traffic) client(i int) {
	for !c.ended.Load() && c.t.Context().Err() == nil {
		err := c.hosts[i].section(c.t.Context(), c.hist, "counter", client.Options{}, c.s.counter().increment)
		var refusal *client.Error
		switch {
		case err == nil:
			c.done[i].Add(1)
		case c.restarts.Load() && (errors.Is(err, client.ErrUnreachable) || errors.As(err, &refusal) && refusal.Code == api.CodeUnavailable):
		default:
			if c.t.Context().Err() == nil {
				c.t.Errorf("client of host %s: %v", c.hosts[i].id, err)
			}
			return
		}
		time.Sleep(2 * time.Millisecond) // leaves the processors to the other tests
	}
}

// progress waits until each host had the lock again, several times.
func (c *traffic) progress() {
	c.t.Helper()
	var before []int64
	for i := range c.done {
		before = append(before, c.done[i].Load())
	}
	eventually(c.t, "each host has the lock again", func() bool {
		require.False(c.t, c.t.Failed(), "a client failed")
		for i := range c.done {
			if c.done[i].Load() < before[i]+3 {
				return false
			}
		}
		return true
	})
}

// progressFor is progress, again and again for a time.
func (c *traffic) progressFor(d time.Duration) {
	c.t.Helper()
	for began := sinceBoot(); sinceBoot() < began+d; {
		c.progress()
	}
}

// unharmed checks that no lease and no command was lost, and that the lock kept its promises.
func (c *traffic) unharmed() {
	c.t.Helper()
	c.progress()
	c.ended.Store(true)
	c.all.Wait()
	total := 0
	for i, h := range c.hosts {
		total += int(c.done[i].Load())
		require.Equal(c.t, c.incarnations[i], h.incarnation(), "host %s lost its lease: %s", h.id, h.said())
		require.Zero(c.t, c.s.journal("held-"+h.id).find("holder").term, "the command of host %s was told to stop", h.id)
		require.True(c.t, c.restarts.Load() || c.held[i].said() == "", c.held[i].said())
		c.held[i].letGo()
	}
	require.Equal(c.t, total, c.s.counter().read(), "updates were lost")
	c.hist.check(c.t)
	for _, h := range c.hosts {
		h.leave()
	}
}

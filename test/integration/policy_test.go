//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// row returns the line of bakeryctl hosts for a host.
func (h *host) row(id int) string {
	h.t.Helper()
	for line := range strings.Lines(must(h.t, h.programs.bakeryctl, "--socket", h.socket, "hosts", "--all")) {
		if words := strings.Fields(line); len(words) > 0 && words[0] == fmt.Sprint(id) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// TestEvict_SilentHost_ReleasesItsLocks: with policy manual no host enters before evict, and then
// immediately.
func TestEvict_SilentHost_ReleasesItsLocks(t *testing.T) {
	t.Parallel()
	s := briefSpace(t, "--policy", "manual")
	a, b := s.host(1), s.host(2)
	j := s.firstAndNext(a, b)
	require.Contains(t, b.row(1), "live")
	require.Contains(t, b.row(2), "live")
	off := a.powerOff()
	eventually(t, "host 1 is shown as silent", func() bool { return strings.Contains(b.row(1), "silent") })
	until(off + 3*briefLease)
	j.outside("next")
	require.Contains(t, b.row(1), "silent")
	require.Equal(t, 1, b.lock("-n", "x", "--", "true").code)
	evicted := sinceBoot()
	r := b.ctl("evict", "1", "--yes")
	require.Zero(t, r.code, r.stderr)
	next := j.entered("next")
	measured(t, "evict to next holder inside", next.enter-evicted)
	require.Greater(t, next.enter, evicted)
	require.Contains(t, b.row(1), "dead")
	// The evicted machine may come back.
	a.up()
	require.Contains(t, b.row(1), "live")
	require.Zero(t, a.lock("-n", "y", "--", "true").code)
	require.Equal(t, 1, a.lock("-n", "x", "--", "true").code)
	j.exclusive()
}

// TestEvict_LiveHost_LeavesFirst: it is asked to leave, stops its holders and leaves, and no other
// host enters before that.
func TestEvict_LiveHost_LeavesFirst(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"manual", "lease"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			s := briefSpace(t, "--policy", policy)
			a, b := s.host(1), s.host(2)
			j := s.journal("x")
			holder := a.insist("x", "first")
			b.settles(a, "x")
			b.waits("x", "next", a)
			evicted := sinceBoot()
			r := b.ctl("evict", "1", "--yes")
			require.Zero(t, r.code, r.stderr)
			holder.exits(75)
			a.exits(0)
			next := j.entered("next")
			measured(t, "evict of a living host to next holder inside, lease "+briefLease.String(), next.enter-evicted)
			require.NotZero(t, j.find("first").term)
			require.Contains(t, b.row(1), "left")
			j.exclusive()
		})
	}
}

// fence writes a fence command: the script runs with the host's id in $ID, and one file records the
// calls of all hosts.
func (s *space) fence(id int, script string) (flags []string) {
	s.t.Helper()
	path := filepath.Join(s.dir, fmt.Sprintf("fence-%d", id))
	text := fmt.Sprintf("#!/bin/sh\nID=%d\ncd %s\necho \"$ID $*\" >>fenced\n%s\n", id, s.dir, script)
	require.NoError(s.t, os.WriteFile(path, []byte(text), 0o700))
	return []string{"--fence", "exec", "--fence-exec", path}
}

// fencing returns the ids of the hosts that called the fence command, in order.
func (s *space) fencing() (ids []string) {
	b, _ := os.ReadFile(filepath.Join(s.dir, "fenced"))
	for line := range strings.Lines(string(b)) {
		ids = append(ids, strings.Fields(line)[0])
	}
	return ids
}

// TestFence: with policy fence no host enters before the fence command has succeeded.
func TestFence(t *testing.T) {
	t.Parallel()
	s := briefSpace(t, "--policy", "fence")
	a, b := s.host(1, s.fence(1, "exit 1")...), s.host(2, s.fence(2, "while ! [ -e off ]; do sleep 0.02; done")...)
	j := s.firstAndNext(a, b)
	off := a.powerOff()
	eventually(t, "host 1 is being fenced", func() bool { return len(s.fencing()) > 0 })
	require.Greater(t, sinceBoot(), off+briefLease)
	for range 3 { // host 2 reads all records each time
		s.renewed(2)
	}
	j.outside("next")
	require.Len(t, s.fencing(), 1)
	confirmed := sinceBoot()
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "off"), nil, 0o600))
	next := j.entered("next")
	measured(t, "fence command ended to next holder inside", next.enter-confirmed)
	require.Greater(t, next.enter, confirmed)
	j.exclusive()
}

// TestFenceTakenOver: another host fences if the first one's fence command fails.
func TestFenceTakenOver(t *testing.T) {
	t.Parallel()
	s := briefSpace(t, "--policy", "fence")
	const first = `ln -s $ID tried 2>/dev/null; [ "$(readlink tried)" != $ID ]` // the first host's command always fails
	a := s.host(1, s.fence(1, "exit 1")...)
	b, c := s.host(2, s.fence(2, first)...), s.host(3, s.fence(3, first)...)
	j := s.firstAndNext(a, b)
	require.NotZero(t, c.lock("-n", "x", "--", "true").code)
	off := a.powerOff()
	next := j.entered("next")
	measured(t, "host SIGKILLed to next holder inside, first fence command fails, lease "+briefLease.String(), next.enter-off)
	other := func(id string) bool { return id != s.fencing()[0] }
	require.True(t, slices.ContainsFunc(s.fencing(), other), "no other host went on: %v", s.fencing())
	j.exclusive()
}

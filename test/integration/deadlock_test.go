//go:build integration

package integration

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// nested returns a script that takes a lock within another one.
func (h *host) nested(name, command string) string {
	return fmt.Sprintf("%s lock --socket %s %s -- %s", h.programs.bakeryctl, h.socket, name, command)
}

// isStuck waits until a host's status shows why a lock's queue does not move.
func (h *host) isStuck(name, why string) {
	h.t.Helper()
	eventually(h.t, "status shows that "+why, func() bool { return h.report(name).Stuck == why })
	require.Contains(h.t, h.ctl("status").stdout, why)
}

func TestDeadlock_LockInsideItself_IsReported(t *testing.T) {
	t.Parallel()
	s := briefSpace(t)
	h := s.host(1)
	for name, script := range map[string]string{
		"directly":         "exec " + h.nested("directly", "true"),
		"below-a-shell":    h.nested("below-a-shell", "true") + "; true",
		"below-other-lock": h.nested("other-lock", h.nested("below-other-lock", "true")),
	} {
		holder := h.takeFor(name, script)
		pid := holder.cmd.Process.Pid
		eventually(t, "the warning", func() bool {
			return strings.Contains(holder.said(), fmt.Sprintf("bakeryctl: warning: process %d, an ancestor of this one, holds %q, ", pid, name))
		})
		h.isStuck(name, fmt.Sprintf("deadlock: process %d of host 1 (%s) holds %[3]q and waits for %[3]q: end a waiter",
			pid, h.status().ThisHost.Name, name))
	}
}

func TestDeadlock_OppositeOrderOnTwoHosts_IsReportedOnBoth(t *testing.T) {
	t.Parallel()
	hosts := briefSpace(t).hosts(2)
	names := []string{"a", "b"}
	var holders []*process
	var edges []string
	for i, h := range hosts {
		own, other := names[i], names[1-i]
		p := h.takeFor(own, "echo $BAKERY_TOKEN; read line; "+h.nested(other, "true"))
		p.entered()
		holders = append(holders, p)
		edges = append(edges, fmt.Sprintf("process %d of host %s (%s) holds %q and waits for %q",
			p.cmd.Process.Pid, h.id, h.status().ThisHost.Name, own, other))
	}
	for _, p := range holders {
		_, err := p.stdin.WriteString("\n")
		require.NoError(t, err)
	}
	for _, h := range hosts {
		for i, name := range names {
			h.isStuck(name, "deadlock: "+edges[i]+"; "+edges[1-i]+": end a waiter")
		}
	}
	require.NotContains(t, holders[0].said()+holders[1].said(), "warning", "another host may let go")
	waiter := hosts[0].report("b").Local[0].PID
	require.NoError(t, syscall.Kill(waiter, syscall.SIGTERM)) // as the problem recommends
	holders[0].exits(128 + int(syscall.SIGTERM))
	holders[1].exits(0)
}

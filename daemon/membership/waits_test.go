package membership

import (
	"bytes"
	"errors"
	"log/slog"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/layout"
)

// TestMember_EarlierHostDidNotLeave_SaysWhoseItIsAndWhenItJoins: by the ids in its record. The machine id alone may be that of
// a copy of this machine.
func TestMember_EarlierHostDidNotLeave_SaysWhoseItIsAndWhenItJoins(t *testing.T) {
	machine, boot, before := [16]byte{1}, [16]byte{2}, [16]byte{3}
	for name, c := range map[string]struct {
		state layout.HostState
		boot  [16]byte
		other bool // another host is live
		want  string
	}{
		"killed while it joined": {layout.StateJoining, boot, false,
			"an earlier bakeryd of this machine had begun to join as host 1 (db1) and is silent: nothing to do, this one joins by itself"},
		"killed while it was live": {layout.StateLive, boot, false,
			"an earlier bakeryd of this machine was live as host 1 (db1) and is silent: nothing to do, this one joins by itself"},
		"killed and declared dead": {layout.StateLive, boot, true, "an earlier bakeryd of this machine was live as host 1"},
		"it lost its lease":        {layout.StateLive, boot, false, "this bakeryd was live as host 1 (db1) until it lost its lease: nothing to do, it joins again by itself"},
		"the machine lost power": {layout.StateLive, before, false,
			"host 1 (db1) has the machine id of this machine, did not leave and is silent: nothing to do, this one joins by itself; " +
				"if that is another machine, a copy of this one, choose another host id"},
		"no boot id": {layout.StateJoining, [16]byte{}, false, "host 1 (db1) has the machine id of this machine, did not leave"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := space(t)
				if c.other {
					live(t, s, s.Disk.Open(), func(cfg *Config) { cfg.Lease.ID = 2 })
				}
				s.PutHost(layout.HostRecord{ID: 1, Name: "db1", State: c.state, Incarnation: 7, Sequence: 1, MachineID: machine, BootID: c.boot})
				time.Sleep(s.SB.Lease / 3) // the other host has read it, and will declare it dead first
				var log bytes.Buffer
				mb := live(t, s, s.Disk.Open(), func(cfg *Config) {
					cfg.Identity.MachineID, cfg.Identity.BootID = machine, c.boot
					if name == "it lost its lease" {
						cfg.Earlier = 7
					}
					if c.boot == before {
						cfg.Identity.BootID = boot
					}
					cfg.Log, cfg.Lease.Self = slog.New(slog.NewTextHandler(&log, nil)), cfg.Identity.HostRecord()
				})
				synctest.Wait()
				require.Regexp(t, `(?m)^time=\S+ level=WARN msg="joining takes longer, waiting" join_in=\S+ reason="`+regexp.QuoteMeta(c.want), log.String())
				found := regexp.MustCompile(`(?s)time=(\S+) level=WARN msg="joining takes longer, waiting" join_in=(\S+) .*time=(\S+) level=INFO msg="live in lockspace"`).
					FindStringSubmatch(log.String())
				at := func(text string) time.Time {
					when, err := time.Parse(time.RFC3339Nano, text)
					require.NoError(t, err)
					return when
				}
				left, err := time.ParseDuration(found[2])
				require.NoError(t, err)
				took := at(found[3]).Sub(at(found[1]))
				require.LessOrEqual(t, took, left+mb.times().Budget(), "the last read of the claim comes after it")
				require.Greater(t, took, left*9/10)
			})
		})
	}
}

func TestDelayOf_SlowClaim_NeedsNoExplanation(t *testing.T) {
	mb := new(Member)
	require.Equal(t, "a write of an earlier claim of the host id may still land", mb.delayOf(lease.Delayed{Reason: lease.ErrSlowClaim}).reason)
	require.Equal(t, "another one", mb.delayOf(lease.Delayed{Reason: errors.New("another one")}).reason)
}

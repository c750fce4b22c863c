package check

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// checked is a lockspace to be checked.
type checked struct{ *lockspacetest.Lockspace }

func newChecked(t *testing.T) *checked { return &checked{lockspacetest.NewFilled(t)} }

// renew has a host renew until the end of the test.
func (c *checked) renew(ids ...int) {
	stop, done := make(chan struct{}), sync.WaitGroup{}
	for _, id := range ids {
		r := c.HostRecord(id)
		done.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(c.SB.Lease / 20):
					r.Sequence++
					c.PutHost(r)
				}
			}
		})
	}
	c.T.Cleanup(func() { close(stop); done.Wait() })
}

func (c *checked) check() []Finding {
	c.T.Helper()
	done, err := Check(c.T.Context(), c.Disk.OpenReadOnly(), Options{})
	require.NoError(c.T, err)
	return done.Findings
}

func TestCheckClean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t)
		before := lockspacetest.Contents(t, c.Disk)
		done, err := Check(t.Context(), c.Disk.OpenReadOnly(), Options{})
		require.NoError(t, err)
		require.Equal(t, before, lockspacetest.Contents(t, c.Disk))
		require.Empty(t, done.Findings)
		require.Equal(t, []int{4, 3, 22}, []int{done.Hosts, done.Locks, done.Records})
	})
}

// TestCheckFarJoiner: a host that the others do not cover yet takes no tickets, and is no finding.
func TestCheckFarJoiner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t)
		c.PutHost(layout.HostRecord{ID: 5, State: layout.StateLive, ReadHorizon: 5})
		c.renew(1, 5)
		require.Empty(t, c.check())
	})
}

func TestCheckFindings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change   func(c *checked)
		severity Severity
		what     string
		problem  string
		remedy   string
		others   int // number of other findings
	}{
		"superblock damaged": {func(c *checked) { lockspacetest.Damage(c.T, c.Disk.Open(), 0) },
			SeverityError, "superblock", "damaged record", "from the copy", 0},
		"copy damaged": {func(c *checked) { lockspacetest.Damage(c.T, c.Disk.Open(), c.Geo.Superblock(1)) },
			SeverityError, "copy of the superblock", "damaged record", "from the superblock", 0},
		"copy of another lockspace": {func(c *checked) {
			other := c.SB
			other.UUID[5]++
			c.Write(c.Geo.Superblock(1), func(buf []byte) error { return other.Encode(buf, 1) })
		}, SeverityError, "copy of the superblock", "belongs to lockspace", "only the operator", 0},
		"host damaged": {func(c *checked) { lockspacetest.Damage(c.T, c.Disk.Open(), c.Geo.Host(1)) },
			SeverityError, "record of host 1", "damaged record", "if not, bakeryctl check --repair writes it", 0},
		"entry damaged": {func(c *checked) { lockspacetest.Damage(c.T, c.Disk.Open(), c.Geo.Entry(3)) },
			SeverityError, "directory entry of lock 3", "damaged record", "bakeryctl check --repair asks the running hosts to restore it", 0},
		"entry misplaced": {func(c *checked) {
			e := layout.Entry{Lock: 3, Name: "z", Permits: 1, Creation: c.Now}
			c.Write(c.Geo.Entry(4), func(buf []byte) error { return c.SB.Space().EncodeEntry(buf, e) })
		}, SeverityError, "directory entry of lock 4", "belongs elsewhere", "running hosts", 0},
		"entry of an earlier lockspace": {func(c *checked) {
			s := c.SB.Space()
			s.UUID[3] = 77
			c.Write(c.Geo.Entry(4), func(buf []byte) error {
				return s.EncodeEntry(buf, layout.Entry{Lock: 4, Name: "z", Permits: 1, Creation: c.Now})
			})
		}, SeverityError, "directory entry of lock 4", "uuid", "running hosts", 0},
		"slot damaged": {func(c *checked) { lockspacetest.Damage(c.T, c.Disk.Open(), c.Geo.Slot(1, 1)) },
			SeverityError, "slot of host 1 in lock 1", "damaged record", "nothing needed: host 1 rewrites it when another host needs it; if it is dead, another host declares it dead", 0},
		"slot damaged, policy fence": {func(c *checked) {
			c.SetPolicy(layout.PolicyFence)
			lockspacetest.Damage(c.T, c.Disk.Open(), c.Geo.Slot(1, 1))
		},
			SeverityError, "slot of host 1 in lock 1", "damaged record", "nothing needed: host 1 rewrites it when another host needs it; if it is dead, another host fences it", 0},
		"slot damaged, policy manual": {func(c *checked) {
			c.SetPolicy(layout.PolicyManual)
			lockspacetest.Damage(c.T, c.Disk.Open(), c.Geo.Slot(1, 1))
		},
			SeverityError, "slot of host 1 in lock 1", "damaged record", "if it is dead, run bakeryctl evict 1", 0},
		"host damaged, policy manual": {func(c *checked) {
			c.SetPolicy(layout.PolicyManual)
			lockspacetest.Damage(c.T, c.Disk.Open(), c.Geo.Host(1))
		},
			SeverityError, "record of host 1", "damaged record", "make sure that host 1 is off, then bakeryctl check --repair", 0},
		"slot damaged, of a joiner": {func(c *checked) {
			c.PutHost(layout.HostRecord{ID: 5, State: layout.StateJoining, ReadHorizon: 5})
			lockspacetest.Damage(c.T, c.Disk.Open(), c.Geo.Slot(1, 5))
		}, SeverityWarning, "slot of host 5 in lock 1", "not such a record", "nothing needed: host 5 is joining and rewrites it, or", 0},
		"slot and host damaged": {func(c *checked) {
			lockspacetest.Damage(c.T, c.Disk.Open(), c.Geo.Host(1))
			lockspacetest.Damage(c.T, c.Disk.Open(), c.Geo.Slot(1, 1))
		}, SeverityError, "record of host 1", "damaged record", "bakeryctl check --repair", 1},
		"slot damaged, unused": {func(c *checked) { lockspacetest.Damage(c.T, c.Disk.Open(), c.Geo.Slot(1, 5)) },
			SeverityWarning, "slot of host 5 in lock 1", "not such a record", "never joined", 0},
		"slot damaged, of a dead host": {func(c *checked) { lockspacetest.Damage(c.T, c.Disk.Open(), c.Geo.Slot(1, 4)) },
			SeverityWarning, "slot of host 4 in lock 1", "damaged record", "reads as idle", 0},
		"slot damaged, of one that left": {func(c *checked) { lockspacetest.Damage(c.T, c.Disk.Open(), c.Geo.Slot(1, 3)) },
			SeverityWarning, "slot of host 3 in lock 1", "not such a record", "reads as idle", 0},
		"slot damaged, where no lock is": {func(c *checked) { lockspacetest.Damage(c.T, c.Disk.Open(), c.Geo.Slot(6, 1)) },
			SeverityWarning, "slot of host 1 in lock 6", "not such a record", "no lock is there", 0},
		"slot damaged, of the internal lock": {func(c *checked) { lockspacetest.Damage(c.T, c.Disk.Open(), c.Geo.Slot(0, 4)) },
			SeverityWarning, "slot of host 4 in lock 0", "not such a record", "nothing needed: host 4 is gone", 0},
		"slot damaged, of the internal lock, up": {func(c *checked) { lockspacetest.Damage(c.T, c.Disk.Open(), c.Geo.Slot(0, 1)) },
			SeverityError, "slot of host 1 in lock 0", "damaged record", "nothing needed: host 1 rewrites it", 0},
		"highest": {func(c *checked) {
			c.PutHost(layout.HostRecord{ID: 1, State: layout.StateLive, ReadHorizon: 3})
			c.renew(1)
		}, SeverityError, "record of host 1", "covers hosts up to 3, and host 4 takes locks", "restart", 0},
		"one incarnation twice": {func(c *checked) { c.PutHost(layout.HostRecord{ID: 5, State: layout.StateLeft, Incarnation: 103}) },
			SeverityError, "record of host 5", "incarnation of host 3", "restart", 0},
		"verdict on a host that never joined": {func(c *checked) {
			c.PutHost(layout.HostRecord{ID: 3, State: layout.StateLeft, ReadHorizon: 3, Verdicts: []layout.Verdict{{Host: 5, Incarnation: 9}}})
		}, SeverityWarning, "record of host 3", "host 5, which never joined", "nothing", 0},
		"two of one name": {func(c *checked) { c.WriteEntry(layout.Entry{Lock: 4, Name: "x", Permits: 1, Creation: c.Now + 99}) },
			SeverityError, "directory entry of lock 4", "name x, as the entry of lock 1", "dump", 0},
		"too many permits": {func(c *checked) { c.WriteEntry(layout.Entry{Lock: 4, Name: "z", Permits: 6, Creation: c.Now + 99}) },
			SeverityWarning, "directory entry of lock 4", "lock z has 6 permits, the lockspace has 5 hosts", "nothing", 0},
		"creation ahead": {func(c *checked) { c.WriteEntry(layout.Entry{Lock: 4, Name: "z", Permits: 1, Creation: c.Now * 2}) },
			SeverityWarning, "directory entry of lock 4", "years ahead", "clocks", 0},
		"number ahead": {func(c *checked) {
			c.PutSlot(layout.Slot{Lock: 1, Host: 3, Creation: c.Now, Ticket: layout.MakeTicket(c.Now*2, 3)})
		}, SeverityWarning, "slot of host 3 in lock 1", "years ahead", "clocks", 0},
		"slot of a stranger": {func(c *checked) {
			c.PutSlot(layout.Slot{Lock: 1, Host: 5, Creation: c.Now, Ticket: layout.MakeTicket(c.Now+1, 5)})
		}, SeverityError, "slot of host 5 in lock 1", "never joined", "host 5", 0},
		"not idle, and left": {func(c *checked) {
			c.PutSlot(layout.Slot{Lock: 1, Host: 3, Phase: layout.Waiting, Creation: c.Now, Ticket: layout.MakeTicket(c.Now+1, 3)})
		}, SeverityNote, "slot of host 3 in lock 1", "waiting, and its host has left", "nothing", 0},
		"a ticket from before": {func(c *checked) {
			c.PutSlot(layout.Slot{Lock: 3, Host: 1, Phase: layout.Waiting, Creation: c.Now + 60, Ticket: layout.MakeTicket(c.Now+60, 1)})
		}, SeverityError, "slot of host 1 in lock 3", "before its lock was created", "restart", 0},
		"internal lock of another creation": {func(c *checked) {
			c.PutSlot(layout.Slot{Lock: 0, Host: 1, Creation: 2, Ticket: layout.MakeTicket(c.Now, 1)})
		}, SeverityError, "slot of host 1 in lock 0", "creation 2, want 1", "restart", 0},
		"value of a lost ticket": {func(c *checked) {
			c.PutSlot(layout.Slot{Lock: 3, Host: 1, Creation: c.Now + 60, Ticket: layout.MakeTicket(c.Now+70, 1), Value: []byte("v"), ValueToken: layout.MakeTicket(c.Now+71, 2)})
		}, SeverityWarning, "slot of host 1 in lock 3", "above every ticket", "nothing", 0},
		"entry lost": {func(c *checked) { c.Write(c.Geo.Entry(3), func(buf []byte) error { clear(buf); return nil }) },
			SeverityError, "directory entry of lock 3", "its creation is 0, and the slot of host 1 has creation", "all hosts", 0},
		"entry undone": {func(c *checked) { c.WriteEntry(layout.Entry{Lock: 3, Name: "y", Permits: 2, Creation: c.Now + 40}) },
			SeverityError, "directory entry of lock 3", "was lost or undone", "all hosts", 0},
		"removal undone": {func(c *checked) { c.WriteEntry(layout.Entry{Lock: 2, Name: "z", Permits: 2, Creation: c.Now}) },
			SeverityError, "directory entry of lock 2", "was lost or undone", "all hosts", 0},
		"remover gone": {func(c *checked) {
			c.PutSlot(layout.Slot{Lock: 1, Host: 4, Phase: layout.Held, Creation: c.Now + 9, Ticket: layout.MakeTicket(c.Now+3, 4)})
		}, SeverityNote, "slot of host 4 in lock 1", "host 4 began to remove lock x and ended", "nothing", 0},
		"held by an earlier entry": {func(c *checked) {
			c.PutSlot(layout.Slot{Lock: 3, Host: 1, Phase: layout.Held, Creation: c.Now + 30, Ticket: layout.MakeTicket(c.Now+50, 1)})
			c.renew(1)
		}, SeverityError, "slot of host 1 in lock 3", "that lock was removed", "stop the commands", 0},
		"held by a removed entry": {func(c *checked) {
			c.PutSlot(layout.Slot{Lock: 2, Host: 2, Phase: layout.Waiting, Creation: c.Now + 30, Ticket: layout.MakeTicket(c.Now+50, 2)})
			c.renew(2)
		}, SeverityError, "slot of host 2 in lock 2", "that lock was removed", "stop the commands", 0},
		"two holders": {func(c *checked) {
			c.PutSlot(layout.Slot{Lock: 1, Host: 2, Phase: layout.Held, Creation: c.Now, Ticket: layout.MakeTicket(c.Now+2, 2)})
			c.renew(1, 2)
		}, SeverityError, "slot of host 1 in lock 1", "lock x has 2 exclusive and 0 shared holders, and 1 permits", "stop the commands", 1},
		"reader and a writer": {func(c *checked) {
			c.PutSlot(layout.Slot{Lock: 3, Host: 2, Phase: layout.Held, Mode: layout.Shared, Creation: c.Now + 60, Ticket: layout.MakeTicket(c.Now+71, 2)})
			c.renew(1, 2)
		}, SeverityError, "slot of host 1 in lock 3", "1 exclusive and 1 shared", "stop the commands", 1},
		"intent that is none": {func(c *checked) {
			c.PutSlot(layout.Slot{Lock: 0, Host: 1, Creation: 1, Ticket: layout.MakeTicket(c.Now, 1), Value: []byte("junk")})
		}, SeverityError, "slot of host 1 in lock 0", "does not decode, so no lock can be created", "SIGINT", 0},
		"intent that is none, of a dead host": {func(c *checked) {
			c.PutSlot(layout.Slot{Lock: 0, Host: 4, Creation: 1, Ticket: layout.MakeTicket(c.Now, 4), Value: []byte("junk")})
		}, SeverityWarning, "slot of host 4 in lock 0", "does not decode", "nothing needed: host 4 has ended", 0},
		"intent of a dead host": {func(c *checked) {
			c.Intend(4, layout.Entry{Lock: 4, Name: "z", Permits: 1, Creation: c.Now + 80})
		}, SeverityWarning, "slot of host 4 in lock 0", "ended while it wrote entry 4, to create lock z", "host 4 has joined", 0},
		"intent that has landed": {func(c *checked) {
			c.Intend(4, layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: c.Now})
		}, SeverityNote, "slot of host 4 in lock 0", "ended after it wrote entry 1", "nothing", 0},
		"intent that failed": {func(c *checked) { c.Intend(1, layout.Entry{Lock: 2, Creation: c.Now + 90}) },
			SeverityWarning, "slot of host 1 in lock 0", "failed to write entry 2, to free its place", "before it creates", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChecked(t)
				test.change(c)
				found := c.check()
				require.Len(t, found, 1+test.others, "%+v", found)
				require.Equal(t, test.severity, found[0].Severity, "%+v", found[0])
				require.Equal(t, test.what, found[0].What)
				require.Contains(t, found[0].Problem, test.problem)
				require.Contains(t, found[0].Remedy, test.remedy)
				if found[0].Kind != lockspace.KindSuperblock {
					require.Positive(t, found[0].Offset)
				}
			})
		})
	}
}

// TestCheckBelievesTheDead: a contradiction that a dead host may have left is no finding unless the
// host is seen to renew.
func TestCheckBelievesTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t)
		c.PutHost(layout.HostRecord{ID: 1, State: layout.StateLive, ReadHorizon: 2})
		c.PutSlot(layout.Slot{Lock: 1, Host: 2, Phase: layout.Held, Creation: c.Now, Ticket: layout.MakeTicket(c.Now+2, 2)})
		c.PutSlot(layout.Slot{Lock: 2, Host: 2, Phase: layout.Waiting, Creation: c.Now + 30, Ticket: layout.MakeTicket(c.Now+50, 2)})
		c.renew(2)
		found := c.check()
		require.Len(t, found, 1, "%+v", found)
		require.Contains(t, found[0].Problem, "that lock was removed")
	})
}

// TestCheckReadsAgain: a record that a host is writing, and a sector that fails once, are no
// findings. A sector that always fails is one.
func TestCheckReadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t)
		f := disktest.NewFaulty(c.Disk.OpenReadOnly(), disktest.FaultyOptions{Seed: 1})
		for _, at := range []int64{c.Geo.Superblock(1), c.Geo.Host(1), c.Geo.Entry(1), c.Geo.Slot(1, 1)} {
			f.Inject(disktest.Fault{Op: blockdev.OpRead, From: at, To: at + 512, After: 1, Times: 1, Returns: disktest.Garbage}) // not in the first read, which finds the superblock
		}
		f.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(3, 2), To: c.Geo.Slot(3, 2) + 512, Err: unix.EIO})
		done, err := Check(t.Context(), f, Options{})
		require.NoError(t, err)
		require.Len(t, done.Findings, 1, "%+v", done.Findings)
		require.Contains(t, done.Findings[0].Problem, unix.EIO.Error())
	})
}

func TestCheckDeviceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t)
		for after := range 6 {
			f := disktest.NewFaulty(c.Disk.OpenReadOnly(), disktest.FaultyOptions{})
			f.Inject(disktest.Fault{Op: blockdev.OpRead, After: after, Err: unix.ENXIO})
			_, err := Check(t.Context(), f, Options{})
			require.ErrorIs(t, err, unix.ENXIO, "after %d", after)
		}
		_, err := Check(t.Context(), disktest.NewMemory(1<<20, 512, 512).Open(), Options{})
		require.ErrorIs(t, err, lockspace.ErrNoLockspace)
	})
}

// TestCheckStride checks a lockspace that was copied to a disk with larger blocks.
func TestCheckStride(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t)
		disk := disktest.NewMemory(c.Disk.Open().Info().Size, 512, 4096)
		require.NoError(t, disk.Open().Write(lockspacetest.Contents(t, c.Disk), 0))
		done, err := Check(t.Context(), disk.OpenReadOnly(), Options{})
		require.NoError(t, err)
		require.Len(t, done.Findings, 1, "%+v", done.Findings)
		require.Equal(t, SeverityWarning, done.Findings[0].Severity)
		require.Contains(t, done.Findings[0].Problem, "below the physical block size")
	})
}

// TestCheckHostile: no valid record makes Check panic.
func TestCheckHostile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t)
		for lock := 0; lock <= 3; lock++ {
			for host := 1; host <= 5; host++ {
				for i, creation := range []uint64{0, 1, layout.MaxCreation} {
					c.PutSlot(layout.Slot{Lock: lock, Host: host, Incarnation: uint64(100 + host - i), Creation: creation, Phase: layout.Phase(i + 1),
						Ticket: layout.MakeTicket(layout.MaxNumber, host), ValueToken: layout.MakeTicket(layout.MaxNumber, 1), Sequence: math.MaxUint64})
				}
			}
		}
		c.WriteEntry(layout.Entry{Lock: 1, Name: "x", Permits: layout.MaxHosts, Creation: layout.MaxCreation})
		c.Spoil(c.Geo.Entry(2))
		require.NotEmpty(t, c.check())
	})
}

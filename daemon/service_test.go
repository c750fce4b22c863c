package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/server"
	"github.com/bakeryd/bakeryd/daemon/waiting"
	"github.com/bakeryd/bakeryd/daemon/watchdog"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/processtest"
	"github.com/bakeryd/bakeryd/test/standstill"
	"github.com/bakeryd/bakeryd/test/watchdogtest"
)

// running is a service that runs, with its device.
type running struct {
	*served
	svc    *Service
	dog    *watchdogtest.Hardware
	stop   context.CancelFunc // SIGTERM
	ended  chan error
	joined chan *Host

	mu   sync.Mutex
	disk *disktest.Faulty // of the last term
}

func (c *cluster) run(id int, change ...func(*Config)) *running {
	c.t.Helper()
	r := c.begin(id, change...)
	r.term()
	return r
}

// begin runs a service that may not join soon.
func (c *cluster) begin(id int, change ...func(*Config)) *running {
	c.t.Helper()
	dir := c.t.TempDir()
	r := &running{ended: make(chan error, 1), joined: make(chan *Host, 100), dog: watchdogtest.New(c.clock.Now)}
	cfg := Config{Devices: []string{"memory"}, HostID: id, Name: "db", RuntimeDir: dir, StateDir: dir, Keep: true, Watchdog: "a watchdog", Clock: c.clock,
		Logger: slog.New(slog.NewTextHandler(c.t.Output(), nil)),
		Open: func() (blockdev.Device, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.disk = disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
			return r.disk, nil
		}}
	for _, f := range change {
		f(&cfg)
	}
	r.svc = NewService(cfg, func(d *Host) { r.joined <- d })
	r.svc.cfg.Machine.Watchdog = r.dog.Open
	if c.real() { // the driver's shortest time-out outlasts a stall
		r.svc.cfg.Machine.Watchdog = func(path string, want time.Duration) (watchdog.Device, error) {
			return r.dog.Open(path, max(want, standstill.Outlives(4*time.Second)))
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.ended <- r.svc.Run(ctx) }()
	serve := serveInBubble
	if c.real() {
		serve = serveCurrent
	}
	r.served = serve(c.t, r.svc.Serving, func(cfg *server.Config) { cfg.Events, cfg.Last = r.svc.Events(), r.svc.Last })
	c.t.Cleanup(func() {
		if r.ended != nil {
			r.leaves()
		}
		if !c.real() && r.d != nil {
			endOfProcess(r.d)
		}
	})
	return r
}

// term waits for the next term.
func (r *running) term() *Host {
	r.t.Helper()
	select {
	case r.d = <-r.joined:
	case err := <-r.ended:
		r.t.Fatalf("the service has ended: %v", err)
	case <-time.After(generous):
		r.t.Fatal("the host does not join")
	}
	return r.d
}

// leaves ends the service properly.
func (r *running) leaves() {
	r.t.Helper()
	r.svc.Drain()
	r.ends(nil)
}

func (r *running) ends(want error) {
	r.t.Helper()
	r.stop()
	within(r.t, "the end of the service", func() { require.ErrorIs(r.t, <-r.ended, want) })
	r.ended = nil
}

func (r *running) ask(n int, extra string) *testSession {
	s := &testSession{t: r.t, id: string(rune('0'+n)) + "0000000000000000000000000000000", extra: extra}
	s.conn, s.r = r.post(s.body("0"))
	return s
}

// TestHangThenRejoin: hanging IO delays neither the end of the lease nor, after its return, the
// next join.
func TestHangThenRejoin(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		// else the watchdog resets the host on a machine that has no time for the test
		c.lasting(6 * time.Second)
		r := c.run(1)
		first := r.d.mem.Incarnation()
		holder, token := r.ask(1, "").granted()
		release := r.disk.Hang(disktest.Fault{})
		require.NotEmpty(t, holder.until("lost").Message)
		require.LessOrEqual(t, r.d.leaseLeft(), time.Duration(0))
		_, refused := r.post(`{"name": "y"}`)
		require.Equal(t, http.StatusServiceUnavailable, refused.StatusCode, "nothing is granted")
		why, err := io.ReadAll(refused.Body)
		require.NoError(t, err)
		require.Contains(t, string(why), "the lease was lost: the lease ran out: IO hangs: reading the host table, for ")
		holder.leave()
		select {
		case <-r.joined:
			t.Fatal("joined again while IO hangs")
		case <-time.After(4 * driver.SettleAfter):
		}
		release()
		again := r.term()
		require.NotEqual(t, first, again.mem.Incarnation())
		next := r.ask(2, "")
		require.Greater(t, next.until("granted").Token, token)
		next.leave()
		require.False(t, wasReset(r), "nothing was left running")
	})
}

// unclosable is a device of which the kernel reports errors when it is closed.
type unclosable struct{ blockdev.Device }

func (d unclosable) Close() error { return errors.Join(d.Device.Close(), unix.ENOTCONN) }

// TestService_ClosingTheDeviceFails_JoinsAgain: closing a file whose server has ended reports that. No holder
// was left behind.
func TestService_ClosingTheDeviceFails_JoinsAgain(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		r := c.run(1, func(cfg *Config) {
			open := cfg.Open
			cfg.Open = func() (blockdev.Device, error) {
				dev, err := open()
				return unclosable{dev}, err
			}
		})
		first := r.d.mem.Incarnation()
		fault := r.disk.Inject(disktest.Fault{Err: unix.ENOTCONN})
		<-r.d.Lost()
		fault.Release()
		require.NotEqual(t, first, r.term().mem.Incarnation())
		r.leaves()
		require.Equal(t, layout.StateLeft, c.HostRecord(1).State)
	})
}

func wasReset(r *running) bool { _, reset := r.dog.Reset(); return reset }

// strand makes a command outlive its lease: the test itself, which is never killed. The disk hangs
// until release.
func (r *running) strand() (end, release func()) {
	r.t.Helper()
	holder := r.ask(1, `, "witness": true`)
	end = processtest.HoldFIFO(r.t, holder.until("granted").Witness)
	release = r.disk.Hang(disktest.Fault{})
	holder.until("lost")
	holder.leave()
	return end, release
}

// TestWatchdogBitesIfACommandStays: a process may survive SIGKILL.
func TestWatchdogBitesIfACommandStays(t *testing.T) {
	c := realCluster(t, 8, 4)
	// Messages about commands are logged in the background, possibly after the test.
	r := c.run(1, func(cfg *Config) { cfg.Logger = slog.New(slog.DiscardHandler) })
	end, release := r.strand()
	eventually(t, "the reset", func() bool { return wasReset(r) })
	at, _ := r.dog.Reset()
	deadline := r.d.mem.Moments().Deadline
	require.Greater(t, at, deadline)
	feeds := r.dog.Feeds()
	require.Less(t, feeds[len(feeds)-1], deadline+r.d.times().Watchdog()/2, "fed for the last time before the end of the lease")
	end()
	release()
	r.stop()
	within(t, "the end of a service whose machine would have been reset", func() { <-r.ended })
	r.ended = nil
	r.d.mem.Wait() // this logs returned IO
}

// TestWatchdogIsPublishedAndDisarmed: other hosts wait for it, from the first record on.
func TestWatchdogIsPublishedAndDisarmed(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		r := c.run(1)
		require.True(t, r.dog.Armed())
		h := r.status().Hosts[0]
		require.True(t, h.WatchdogArmed)
		require.Equal(t, r.d.times().Watchdog().Milliseconds(), h.WatchdogMS)
		r.leaves()
		require.False(t, r.dog.Armed())
	})
}

// TestTermWithAHolderIsHandedOver: SIGTERM does not end a hold.
func TestTermWithAHolderIsHandedOver(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		r := c.run(1)
		holder, _ := r.ask(1, "").granted()
		r.ends(ErrHandedOver)
		require.True(t, r.dog.Armed(), "a successor feeds it")
		r.d.handover.Close()
		term, kept := readHandover(t, r.d, c.clock.Now())
		require.Equal(t, r.d.mem.Incarnation(), term.Incarnation)
		require.Len(t, kept, 1)
		require.Equal(t, layout.StateLive, c.HostRecord(1).State)
		holder.leave()
		require.NoError(t, r.d.Close(t.Context()))
	})
}

func TestTermWithNothingHeldLeaves(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		r := c.run(1)
		r.ends(nil)
		require.Equal(t, layout.StateLeft, c.HostRecord(1).State)
		require.False(t, r.dog.Armed())
		require.NoFileExists(t, r.d.handover.Path)
	})
}

func TestDrainWithAHolderLeaves(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		r := c.run(1)
		holder, _ := r.ask(1, "").granted()
		r.svc.Drain()
		holder.until("lost")
		holder.leave()
		r.ends(nil)
		require.Equal(t, layout.StateLeft, c.HostRecord(1).State)
	})
}

// TestService_Joins_SaysWhatItWaitsFor: until it serves, to clients and to its caller.
func TestService_Joins_SaysWhatItWaitsFor(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		opens := make(chan struct{})
		r := c.begin(1, func(cfg *Config) {
			open := cfg.Open
			cfg.Open = func() (blockdev.Device, error) {
				<-opens
				return open()
			}
		})
		eventually(t, "it opens the disk", func() bool { return r.svc.Waiting().For == "the disks to answer: memory" })
		_, err := r.svc.Joined()
		require.ErrorIs(t, err, api.ErrJoining)
		require.ErrorContains(t, err, "it is still joining, waiting for the disks to answer: memory")
		close(opens)
		r.term()
		require.Empty(t, r.svc.Waiting())
	})
}

// TestService_JoinsAgain_ErrorIsThatOfTheAttemptBefore: it must not look as if the present one had failed, too.
func TestService_JoinsAgain_ErrorIsThatOfTheAttemptBefore(t *testing.T) {
	s := NewService(Config{Devices: []string{"x"}, HostID: 1}, nil)
	j := newJoiner(s.cfg)
	j.stage.For("the claim of host id 1", "")
	s.setTerm(j, nil, errors.New("no disks"))
	_, err := s.Joined()
	require.EqualError(t, err, "not joined to the lockspace: it is still joining, waiting for the claim of host id 1; the attempt before failed: no disks")
	j.stage.By(func() waiting.Reason {
		return waiting.Reason{For: "the claim of host id 1", Left: 13100 * time.Millisecond}
	})
	_, err = s.Joined()
	require.ErrorContains(t, err, "it is still joining, for 14 s at most, waiting for the claim of host id 1; the attempt before")
	s.pause()
	_, err = s.Joined()
	require.EqualError(t, err, "not joined to the lockspace: joining fails and is retried every 5s: no disks")
	require.ErrorIs(t, err, api.ErrUnavailable)
}

// TestService_DisksDoNotAnswerAtTheStart_JoinsWhenTheyDo: an error that no time corrects ends it.
func TestService_DisksDoNotAnswerAtTheStart_JoinsWhenTheyDo(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		var tries int
		silent := func(then error) func(*Config) {
			tries = 0
			return func(cfg *Config) {
				open := cfg.Open
				cfg.Open = func() (blockdev.Device, error) {
					switch tries++; {
					case tries < 3:
						return nil, fmt.Errorf("%w; a: %w within 2s", lockspace.ErrSilent, lockspace.ErrNoAnswer)
					case then != nil:
						return nil, then
					}
					return open()
				}
			}
		}
		r := c.begin(1, silent(nil))
		eventually(t, "an attempt fails", func() bool {
			return r.svc.Waiting().Do == waiting.CheckDisks && r.svc.Waiting().For != "the disks to answer: memory"
		})
		_, err := r.svc.Joined()
		require.ErrorContains(t, err, "joining fails and is retried every 5s: no member disk answers; a: no answer within 2s")
		r.term()
		require.Equal(t, 3, tries)
		r.leaves()
		r = c.begin(2, silent(lockspace.ErrNoLockspace))
		within(t, "the end of the service", func() { require.ErrorIs(t, <-r.ended, lockspace.ErrNoLockspace) })
		r.ended = nil
	})
}

// TestService_WrongPathAtTheStart_IsRefused although another disk does not answer: no time corrects it.
func TestService_WrongPathAtTheStart_IsRefused(t *testing.T) {
	wrong := fmt.Errorf("%w: no lockspace was found; a: %w within 2s; b: %w", lockspace.ErrDisks, lockspace.ErrNoAnswer, unix.ENOENT)
	var s *Service
	tries := 0
	s = NewService(Config{Devices: []string{"a", "b"}, HostID: 1, Open: func() (blockdev.Device, error) {
		if tries++; tries > 1 {
			s.Drain()
		}
		return nil, wrong
	}}, nil)
	require.ErrorIs(t, s.Run(t.Context()), wrong)
	require.Equal(t, 1, tries)
}

func TestService_NothingIsWaitedForYet_ErrorHasNoReason(t *testing.T) {
	s := NewService(Config{Devices: []string{"x"}, HostID: 1}, nil)
	s.setTerm(newJoiner(s.cfg), nil, nil)
	_, err := s.Joined()
	require.EqualError(t, err, "not joined to the lockspace: it is still joining")
	s.setTerm(newJoiner(s.cfg), nil, errors.New("no disks"))
	_, err = s.Joined()
	require.EqualError(t, err, "not joined to the lockspace: it is still joining; the attempt before failed: no disks")
}

// TestDrainWhileTheFirstJoinFails: that is no error, however soon Run goes on after Drain.
func TestDrainWhileTheFirstJoinFails(t *testing.T) {
	var s *Service
	s = NewService(Config{Devices: []string{"x"}, HostID: 1, Open: func() (blockdev.Device, error) {
		s.Drain()
		return nil, errors.New("no device")
	}}, nil)
	require.NoError(t, s.Run(t.Context()))
}

// TestDrainDoesNotReleaseWhoDoesNotStop: to other hosts, this host has crashed.
func TestDrainDoesNotReleaseWhoDoesNotStop(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		r := c.run(1)
		holder, _ := r.ask(1, "").granted()
		r.svc.Drain()
		holder.until("lost")
		r.ends(context.DeadlineExceeded)
		require.True(t, r.dog.Armed())
		require.NotEqual(t, layout.Idle, c.Slot(1, 1).Phase)
		holder.leave()
	})
}

// whileGuardStandsStill runs end on a host whose guard is blocked, and which holds a lock for a
// command. The command has ended soon after.
func whileGuardStandsStill(t *testing.T, end func(t *testing.T, r *running)) {
	command, group := contained(t, "1")
	inBubble(t, func(t *testing.T) {
		stalled := make(chan struct{}, 1)
		r := newCluster(t, 8, 4).run(1, func(cfg *Config) { cfg.Clock = stalling{cfg.Clock, stalled} })
		holder, _ := r.ask(1, "").granted()
		held, _ := r.d.sessions.Holding()
		held[0].Regroup(handover.Session{Cgroup: group.Dir})
		stalled <- struct{}{}
		end(t, r)
		// In virtual time, no time would pass while the command ends.
		for end := clock.Boottime.Now() + generous; command.Alive(); runtime.Gosched() {
			require.Less(t, clock.Boottime.Now(), end, "the command runs on")
		}
		<-stalled
		holder.leave()
		require.NoError(t, r.d.Close(t.Context()))
	})
}

// TestDrain_GuardStandsStill_CommandsAreKilledBeforeTheEnd: no other process kills them later if
// their wrapper is stopped.
func TestDrain_GuardStandsStill_CommandsAreKilledBeforeTheEnd(t *testing.T) {
	whileGuardStandsStill(t, func(t *testing.T, r *running) {
		r.svc.Drain()
		r.ends(context.DeadlineExceeded)
	})
}

// TestTerm_StandsStillBeyondTheLease_CommandsAreKilledBeforeTheEnd: no next process can continue a
// lock whose lease is over.
func TestTerm_StandsStillBeyondTheLease_CommandsAreKilledBeforeTheEnd(t *testing.T) {
	whileGuardStandsStill(t, func(t *testing.T, r *running) {
		time.Sleep(3 * r.d.disk.SB.Lease) // of virtual time
		require.Greater(t, r.d.clock.Now(), r.d.mem.Moments().Deadline, "the lease is over")
		r.ends(api.ErrLeaseLost)
	})
}

// TestDrain_LeaseIsLostMeanwhile_NoEndBesideACommand: the end of a lease does not end the commands
// of its holders.
func TestDrain_LeaseIsLostMeanwhile_NoEndBesideACommand(t *testing.T) {
	r := realCluster(t, 8, 4).run(1)
	holder := r.ask(1, `, "witness": true`)
	defer processtest.HoldFIFO(t, holder.until("granted").Witness)()
	r.svc.Drain()
	holder.until("lost")
	r.disk.Crash()
	err := <-r.ended
	r.ended = nil
	require.ErrorContains(t, err, `"x" is still held by process`)
	require.FileExists(t, r.d.handover.Path, "a successor finds what is left")
	require.True(t, r.dog.Armed() || wasReset(r), "it is not disarmed")
}

// TestDeadHostsLockIsInherited: a crashed host is declared dead, and its lock goes to the next
// waiter.
func TestDeadHostsLockIsInherited(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		holder, token := m.ask(1, "").granted()
		other := c.host(2)
		m.kill()
		dies := m.d.mem.Moments().Deadline
		h := acquire(t, other, locks.Request{Name: "x"})
		require.Greater(t, h.Token(), token)
		require.Greater(t, c.clock.Now(), dies, "not before the holder's own deadline")
		t.Logf("%v after the end of the lease", c.clock.Now()-dies)
		require.NoError(t, h.Release())
		require.Len(t, c.HostRecord(2).Verdicts, 1)
		holder.leave()
	})
}

// TestDrainStopsOrphans: their wrapper, which would stop them, is gone.
func TestDrainStopsOrphans(t *testing.T) {
	c := realCluster(t, 8, 4)
	n := newNotebook(t)
	r := c.run(1, n.in)
	holder := r.ask(1, `, "witness": true`)
	witness := holder.until("granted").Witness
	command := exec.Command("sh", "-c", `trap "echo stopping; exit 0" TERM; echo running; while :; do sleep 0.01; done`)
	w, err := os.OpenFile(witness, os.O_WRONLY, 0)
	require.NoError(t, err)
	command.ExtraFiles = []*os.File{w}
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	require.NoError(t, w.Close())
	said := bufio.NewReader(out)
	line, err := said.ReadString('\n')
	require.NoError(t, err, line)
	holder.leave()
	eventually(t, "the hold is an orphan", sessionOf(r.d, holder.id).IsOrphan)
	r.leaves()
	line, err = said.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "stopping\n", line)
	require.NoError(t, command.Wait())
	require.Contains(t, n.lock(events.Kill).Reason, ": bakeryd is shutting down")
	require.Equal(t, layout.StateLeft, c.HostRecord(1).State)
}

// TestWatchdogOfALateSuccessor: opening the watchdog feeds it, so commands beyond the lease must
// end first. Then it is fed, however long joining takes.
func TestWatchdogOfALateSuccessor(t *testing.T) {
	c := realCluster(t, 8, 4)
	m := c.mortal(1)
	holder := m.ask(1, `, "witness": true`)
	// the test itself, which is never killed
	command, err := os.OpenFile(holder.until("granted").Witness, os.O_WRONLY, 0)
	require.NoError(t, err)
	m.kill()
	<-m.d.Lost()
	r := c.begin(1, func(cfg *Config) { cfg.RuntimeDir, cfg.StateDir = m.dir, m.dir })
	eventually(t, "the successor finds what is left", func() bool {
		j, _ := r.svc.term()
		return j != nil && j.left.Load() != nil
	})
	require.False(t, r.dog.Armed())
	require.NoError(t, command.Close())
	r.term()
	require.True(t, r.dog.Armed())
	require.False(t, wasReset(r))
}

// TestWatchdogIsNotFedAtTheEnd: if processes run on without a lease.
func TestWatchdogIsNotFedAtTheEnd(t *testing.T) {
	c := realCluster(t, 8, 4)
	r := c.run(1)
	end, release := r.strand()
	over := r.d.mem.Moments().Deadline + r.d.times().Watchdog()/2
	eventually(t, "the end of the lease", func() bool { return clock.Boottime.Now() >= over })
	r.ends(api.ErrLeaseLost)
	feeds := r.dog.Feeds()
	require.Less(t, feeds[len(feeds)-1], over)
	end()
	release()
}

// TestService_LeaseIsLostDuringAResume_JoinsAgain: the reads of a resume go on, because an end of
// bakeryd would leave the commands of the previous one without anything that stops them.
func TestService_LeaseIsLostDuringAResume_JoinsAgain(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		holder := m.ask(1, "")
		g := holder.until("granted")
		m.kill()
		r := c.begin(1, func(cfg *Config) {
			cfg.RuntimeDir, cfg.StateDir = m.dir, m.state
			open, first := cfg.Open, true
			cfg.Open = func() (blockdev.Device, error) {
				dev, err := open()
				if f, ok := dev.(*disktest.Faulty); ok && first {
					first = false
					f.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Host(1), To: c.Geo.Host(2), Delay: 2 * c.SB.Lease})
					f.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(0, 1), To: c.Geo.Slot(4, 2), After: 1, Delay: c.SB.Lease})
				}
				return dev, err
			}
		})
		resumed := r.term()
		require.True(t, resumed.mem.Resumed())
		<-resumed.Lost()
		require.NotEqual(t, resumed.mem.Incarnation(), r.term().mem.Incarnation())
		m.served = r.served
		holder.again(m, g.Token.String())
		require.Equal(t, http.StatusGone, holder.r.StatusCode)
	})
}

// TestTermBetweenTwoTermsDisarms: nothing is held then.
func TestTermBetweenTwoTermsDisarms(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		refused := make(chan bool, 1)
		r := c.run(1, func(cfg *Config) {
			open, first := cfg.Open, true
			cfg.Open = func() (blockdev.Device, error) {
				if first {
					first = false
					return open()
				}
				refused <- true
				return nil, unix.ENXIO
			}
		})
		r.disk.Inject(disktest.Fault{Err: unix.EIO})
		within(t, "the attempt to join again", func() { <-refused })
		r.ends(nil)
		require.False(t, r.dog.Armed())
	})
}

// TestRejoinWaitsForWhoIsAboutToStop: by joining again, the host would immediately give its locks
// to other hosts.
func TestRejoinWaitsForWhoIsAboutToStop(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		r := c.run(1)
		first := r.d
		holder, _ := r.ask(1, "").granted()
		fault := r.disk.Inject(disktest.Fault{Err: unix.EIO})
		holder.until("lost")
		fault.Release()
		r.term()
		require.Greater(t, c.clock.Now(), first.mem.Moments().Deadline+first.times().Margin())
		holder.leave()
	})
}

// TestTryAfterADeath: a client that only tries does not wait, and still gets a dead host's lock.
func TestTryAfterADeath(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		holder, _ := m.ask(1, "").granted()
		other := c.host(2)
		m.kill()
		within(t, "the lock of a dead host", func() {
			for {
				h, err := other.Acquire(t.Context(), locks.Request{Name: "x", Try: true})
				if err == nil {
					require.NoError(t, h.Release())
					return
				}
				require.ErrorIs(t, err, api.ErrBusy)
				time.Sleep(time.Millisecond)
			}
		})
		holder.leave()
	})
}

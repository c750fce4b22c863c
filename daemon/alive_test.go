package daemon

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// beats receives the calls of Alive.
type beats chan struct{}

func (b beats) config(every time.Duration) func(*Config) {
	return func(c *Config) {
		c.AliveEvery = every
		c.Alive = func() {
			select {
			case b <- struct{}{}:
			default:
			}
		}
	}
}

// come waits for a number of further calls.
func (b beats) come(t *testing.T, times int, when string) {
	t.Helper()
	for range times {
		within(t, "a sign of life "+when, func() { <-b })
	}
}

// TestAlive: Alive is called while the host joins, holds, has a hung device, has lost its lease,
// waits for the device, and joins again.
func TestAlive(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.lasting(3 * time.Second)
		told := make(beats)
		r := c.begin(1, told.config(50*time.Millisecond))
		told.come(t, 1, "while it joins")
		r.term()
		holder, _ := r.ask(1, "").granted()
		told.come(t, 20, "while it holds")
		release := r.disk.Hang(disktest.Fault{})
		eventually(t, "a renewal hangs", func() bool { return r.d.devices.Opened.Stats().Oldest > 100*time.Millisecond })
		told.come(t, 5, "while the device hangs")
		holder.until("lost")
		told.come(t, 5, "with the lease lost and a holder left")
		holder.leave()
		told.come(t, 5, "while IO is under way still")
		release()
		r.term()
		told.come(t, 5, "after it has joined again")
	})
}

// TestAliveByRenewals: the loop does not turn more often for Alive if renewals are frequent enough.
func TestAliveByRenewals(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.lasting(3 * time.Second)
		told := make(beats)
		r := c.run(1, told.config(time.Hour))
		before := r.d.mem.Moments().Deadline
		for range 3 {
			told.come(t, 1, "by renewals")
			require.Eventually(t, func() bool { return r.d.mem.Moments().Deadline > before }, generous, time.Millisecond)
			before = r.d.mem.Moments().Deadline
		}
	})
}

// TestAliveWhereJoiningFails: the service waits and retries.
func TestAliveWhereJoiningFails(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		told := make(beats)
		gone := errors.New("the device is gone")
		fails := make(chan bool, 1)
		r := c.run(1, told.config(20*time.Millisecond), func(cfg *Config) {
			open := cfg.Open
			cfg.Open = func() (blockdev.Device, error) {
				select {
				case <-fails:
					return nil, gone
				default:
					return open()
				}
			}
		})
		fails <- true
		r.d.mem.LoseFor(gone)
		require.Eventually(t, func() bool {
			_, err := r.svc.Joined()
			return err != nil && errors.Is(err, gone)
		}, generous, time.Millisecond)
		told.come(t, 10, "before the next attempt")
		r.term()
	})
}

// stalling is a clock whose alarms do not ring while stalled is full.
type stalling struct {
	clock.Clock
	stalled chan struct{} // has room for one
}

func (c stalling) NewAlarm() (clock.Alarm, error) {
	a, err := c.Clock.NewAlarm()
	return stallingAlarm{a, c.stalled}, err
}

type stallingAlarm struct {
	clock.Alarm
	stalled chan struct{}
}

func (a stallingAlarm) Wait() error {
	err := a.Alarm.Wait()
	a.stalled <- struct{}{}
	<-a.stalled
	return err
}

// TestNotAlive: Alive is not called while the loop does not turn, even if everything else
// continues.
func TestNotAlive(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		told, stalled := make(beats), make(chan struct{}, 1)
		every := 10 * time.Millisecond
		c.run(1, told.config(every), func(cfg *Config) { cfg.Clock = stalling{cfg.Clock, stalled} })
		told.come(t, 1, "by renewals")
		stalled <- struct{}{}
		select { // the turn in progress
		case <-told:
		case <-time.After(20 * every):
		}
		select {
		case <-told:
			t.Fatal("Alive was called while the loop does not turn")
		case <-time.After(20 * every):
		}
		<-stalled
		told.come(t, 1, "when the loop continues, or that of the next term")
	})
}

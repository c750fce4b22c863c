package bench

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/load"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

const (
	// delay is how long every request of the disk below takes.
	delay = 2 * time.Millisecond

	// brief is how long measurements run in tests: at least one batch.
	brief = time.Millisecond
)

// disk is one lock on a disk in memory, which admits hosts in the order of their requests. Each
// grant and each release takes the requests that it takes on a real disk; all are counted.
type disk struct {
	dev            blockdev.Device
	free           chan struct{} // has a value while the lock is free; waiters are served in order
	number         atomic.Uint64
	reads, writes  atomic.Int64
	inside, broken atomic.Int32
	refuse         atomic.Pointer[error] // error of every further Lock
}

func newDisk() *disk {
	dev := disktest.NewFaulty(disktest.NewMemory(64<<10, 512, 512).Open(), disktest.FaultyOptions{})
	dev.Inject(disktest.Fault{Delay: delay})
	d := &disk{dev: dev, free: make(chan struct{}, 1)}
	d.free <- struct{}{}
	return d
}

// user is a host that uses the disk.
type user struct {
	*disk
	id  int
	buf []byte
	all []byte
}

func (d *disk) user(id int) *user {
	return &user{disk: d, id: id, buf: blockdev.Alloc(512), all: blockdev.Alloc(1024)}
}

func (d *disk) host(id int) *host {
	u := d.user(id)
	return &host{name: "a test", lock: u.lock, fresh: u.lock, floor: u.floor}
}

func (h *user) write() time.Duration {
	h.writes.Add(1)
	begun := time.Now()
	if err := h.dev.Write(h.buf, int64(512*h.id)); err != nil {
		panic(err)
	}
	return time.Since(begun)
}

func (h *user) read() time.Duration {
	h.reads.Add(1)
	begun := time.Now()
	if err := h.dev.Read(h.all, 0); err != nil {
		panic(err)
	}
	return time.Since(begun)
}

func (h *user) floor(ctx context.Context, rounds int) (*measuring.Floor, error) {
	f := &measuring.Floor{Slots: 2}
	for range rounds {
		f.Rounds = append(f.Rounds, measuring.FloorRound{Claim: h.write(), Look: h.read(), Release: h.write()})
	}
	return f, context.Cause(ctx)
}

func (h *user) lock(ctx context.Context) (layout.Ticket, func() error, error) {
	if err := h.refuse.Load(); err != nil {
		return 0, nil, *err
	}
	select {
	case <-h.free:
	case <-ctx.Done():
		return 0, nil, context.Cause(ctx)
	}
	if h.inside.Add(1) != 1 {
		h.broken.Add(1)
	}
	h.write()
	h.read()
	return layout.MakeTicket(h.number.Add(1), h.id), h.unlock, nil
}

func (h *user) unlock() error {
	h.write()
	h.inside.Add(-1)
	h.free <- struct{}{}
	return nil
}

func sh(script ...string) command { return command{"/bin/sh", append([]string{"sh", "-c"}, script...)} }

// newTest returns a run on the hosts given, the first of which is a bakeryd. It has all commands.
func newTest(ctx context.Context, lasts time.Duration, bakeryd *host, inside ...*host) *run {
	r := newRun(ctx, Options{Duration: lasts})
	r.bakeryd, r.inside = bakeryd, inside
	var toy sync.Mutex
	r.toy = func(ctx context.Context) (layout.Ticket, func() error, error) {
		if ctx.Err() != nil {
			return 0, nil, context.Cause(ctx)
		}
		toy.Lock()
		return 0, func() error { toy.Unlock(); return nil }, nil
	}
	r.locked, r.flock, r.alone = sh(":"), sh(":"), sh(":")
	r.progress = render.StartProgress(io.Discard)
	return r
}

func (r *run) done(t *testing.T) *Report {
	t.Helper()
	require.NoError(t, r.measure())
	return r.res
}

// TestRun makes every measurement, on a disk with known delay.
func TestRun(t *testing.T) {
	t.Parallel()
	d := newDisk()
	r := newTest(t.Context(), brief, d.host(1), d.host(2), d.host(3)).done(t)
	require.Zero(t, d.broken.Load(), "one client at a time")
	require.Empty(t, r.Skipped)
	require.Equal(t, 2, r.Highest)

	request := delay.Microseconds()
	require.EqualValues(t, batchRounds, r.Floor.Count, "the floor of the first measurement")
	require.GreaterOrEqual(t, r.Floor.P50US, 3*request)
	require.GreaterOrEqual(t, r.Floor.WriteP50US, request)
	require.GreaterOrEqual(t, r.Floor.ReadP50US, request)
	for _, l := range []*lockTimes{&r.Uncontended.lockTimes, r.InProcess} {
		require.EqualValues(t, batchRounds, l.Count)
		require.GreaterOrEqual(t, l.P50US, 3*request)
		require.GreaterOrEqual(t, l.FloorP50US, 3*request)
		require.InEpsilon(t, float64(l.P50US)/float64(l.FloorP50US), l.Ratio, 0.01)
		require.Zero(t, l.PassedOn)
	}
	require.Equal(t, r.Uncontended.ToyP50US, r.Toy.P50US, "the toy of the first measurement")
	require.EqualValues(t, batchRounds, r.Toy.Count)
	require.Less(t, r.Uncontended.AddedUS, r.Uncontended.P50US)
	require.EqualValues(t, batchRounds, r.Reacquire.Count)
	require.GreaterOrEqual(t, r.Reacquire.P50US, 3*request)
	require.Zero(t, r.Reacquire.WithoutIO)
	h := r.HandOver
	require.EqualValues(t, 2000, h.HoldUS)
	require.Equal(t, "two hosts in a test", h.Between)
	require.Positive(t, h.Count)
	require.GreaterOrEqual(t, h.P50US, 3*request, "one release, and one grant")
	require.GreaterOrEqual(t, h.FloorP50US, 3*request)
	require.InEpsilon(t, float64(h.P50US)/float64(h.FloorP50US), h.Ratio, 0.01)

	most := int64(time.Second / (3 * delay))
	require.LessOrEqual(t, r.HandOff.InProcessPerSecond, most, "the limit of the disk")
	require.Positive(t, r.HandOff.InProcessPerSecond)
	require.Equal(t, r.HandOff.PerSecond, r.HandOff.ByClients[1].PerSecond)
	require.Equal(t, r.HandOff.Ratio, r.HandOff.ByClients[1].Ratio)
	require.Equal(t, r.Toy.HandOffPerSecond, r.HandOff.ByClients[1].ToyPerSecond)
	for i, c := range r.HandOff.ByClients {
		require.Equal(t, crowds[i], c.Clients)
		require.LessOrEqual(t, c.PerSecond, most)
		require.Greater(t, c.ToyPerSecond, most, "the toy does not use the disk")
		require.InDelta(t, float64(c.PerSecond)/float64(c.ToyPerSecond), c.Ratio, 0.001)
		require.GreaterOrEqual(t, c.Wait.Count, int64(c.Clients))
		require.GreaterOrEqual(t, c.Wait.MaxUS, int64(c.Clients)*2*request, "the last of all clients waited for the others")
	}

	require.Positive(t, r.Wrapper.P50US)
	require.Positive(t, r.Wrapper.TrueP50US)
	require.Equal(t, r.Wrapper.P50US-r.Wrapper.FlockP50US, *r.Wrapper.OverFlockUS)
	for _, d := range []dist{r.Floor.dist, r.Uncontended.dist, r.InProcess.dist, *r.Toy.dist, r.Reacquire.dist, r.HandOver.dist, r.HandOff.ByClients[1].Wait, r.Wrapper.dist} {
		require.IsNonDecreasing(t, []int64{0, d.P50US, d.P90US, d.P99US, d.P999US, d.MaxUS})
		require.LessOrEqual(t, d.MeanUS, d.MaxUS)
	}
}

// TestRun_FloorAndLock_Alternate as often as the time allows.
func TestRun_FloorAndLock_Alternate(t *testing.T) {
	t.Parallel()
	d := newDisk()
	b := newTest(t.Context(), 3*batchRounds*3*delay, d.host(1))
	b.Only = []string{uncontended}
	r := b.done(t)
	turns := r.Floor.Count / batchRounds
	require.GreaterOrEqual(t, turns, int64(1))
	require.Equal(t, turns*batchRounds, r.Uncontended.Count)
	require.EqualValues(t, (turns+1)*(2*batchRounds+1), d.reads.Load(), "including an uncounted first batch, and an uncounted round of each batch")
	require.EqualValues(t, 2*d.reads.Load(), d.writes.Load())
}

// members returns the members of v's JSON object.
func members(t *testing.T, v any) map[string]json.RawMessage {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	var m map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(text, &m))
	return m
}

// TestJSON pins the names in JSON, which programs use.
func TestJSON(t *testing.T) {
	t.Parallel()
	d := newDisk()
	r := newTest(t.Context(), brief, d.host(1), d.host(2)).done(t)
	dist := []string{"count", "mean_us", "p50_us", "p90_us", "p99_us", "p999_us", "max_us"}
	all := members(t, r)
	for name, want := range map[string][]string{
		"floor":       append([]string{"write_p50_us", "read_p50_us"}, dist...),
		"toy":         append([]string{"handoff_per_second"}, dist...),
		"uncontended": append([]string{"floor_p50_us", "ratio", "passed_on", "added_us", "toy_p50_us", "added_ratio"}, dist...),
		"in_process":  append([]string{"floor_p50_us", "ratio", "passed_on"}, dist...),
		"reacquire":   append([]string{"without_io", "toy_p50_us", "ratio"}, dist...),
		"handover":    append([]string{"between", "hold_us", "floor_p50_us", "ratio"}, dist...),
		"handoff":     {"per_second", "in_process_per_second", "clients", "ratio", "by_clients"},
		"wrapper":     append([]string{"true_p50_us", "flock_p50_us", "over_flock_us"}, dist...),
	} {
		var got []string
		for member, value := range members(t, all[name]) {
			got = append(got, member)
			switch member {
			case "ratio", "added_ratio":
				require.Regexp(t, `^-?\d+(\.\d+)?$`, string(value), "%s.%s", name, member)
			case "between", "by_clients":
			default:
				require.Regexp(t, `^-?\d+$`, string(value), "%s.%s", name, member)
			}
		}
		require.ElementsMatch(t, want, got, name)
	}
	require.JSONEq(t, `[]`, string(all["skipped"]))
	require.Len(t, all, 15)
	var crowds []json.RawMessage
	require.NoError(t, json.Unmarshal(members(t, all["handoff"])["by_clients"], &crowds))
	require.ElementsMatch(t, []string{"clients", "per_second", "toy_per_second", "ratio", "wait", "toy_wait"},
		slices.Collect(maps.Keys(members(t, crowds[0]))))
}

// TestRun_MeasurementWithoutMeans_IsSkipped, and one that was not asked for is not mentioned.
func TestRun_MeasurementWithoutMeans_IsSkipped(t *testing.T) {
	t.Parallel()
	d := newDisk()
	b := newTest(t.Context(), brief, d.host(1))
	b.flock = command{}
	b.why = map[string]string{inProcess: "no id", handOver: "no second id", flockName: "no flock"}
	r := b.done(t)
	require.Equal(t, []omission{{inProcess, "no id"}, {handOver, "no second id"}, {"wrapper.flock", "no flock"}}, r.Skipped)
	require.Nil(t, r.InProcess)
	require.Nil(t, r.HandOver)
	require.NotContains(t, members(t, r), "in_process")
	require.NotContains(t, members(t, r.HandOff), "in_process_per_second")
	require.NotContains(t, members(t, r.Wrapper), "flock_p50_us")
	require.NotContains(t, members(t, r.Wrapper), "over_flock_us")

	b = newTest(t.Context(), brief, d.host(1), d.host(2))
	b.Only = []string{handOff}
	r = b.done(t)
	require.Equal(t, []string{"toy", "handoff", "skipped"}, keys(members(t, r)))
	require.Equal(t, []string{"handoff_per_second"}, slices.Collect(maps.Keys(members(t, r.Toy))))
	require.Empty(t, r.Skipped, "the others were not asked for")

	b = newTest(t.Context(), brief, nil, d.host(2))
	b.Only = []string{inProcess}
	r = b.done(t)
	require.Equal(t, r.Floor.P50US, r.InProcess.FloorP50US)
	require.Empty(t, r.Skipped)
}

// TestRun_NoMeasurementHasMeans_IsAnError that has the reason of each one that was asked for.
func TestRun_NoMeasurementHasMeans_IsAnError(t *testing.T) {
	t.Parallel()
	b := newTest(t.Context(), brief, newDisk().host(1))
	b.Only = []string{inProcess, handOver}
	b.why = map[string]string{inProcess: "no id", handOver: "no second id"}
	err := b.measure()
	require.ErrorIs(t, err, errNothing)
	require.EqualError(t, err, "nothing could be measured; in_process: no id; handover: no second id")
	require.Equal(t, cli.ExitUnavailable, failure(t.Context(), err).(*cli.Failure).Code)
}

func keys(m map[string]json.RawMessage) (all []string) {
	for _, k := range []string{"floor", "toy", "uncontended", "in_process", "reacquire", "handover", "handoff", "wrapper", "skipped"} {
		if m[k] != nil {
			all = append(all, k)
		}
	}
	return all
}

// TestFails: any failure ends the run and all waits, and is returned.
func TestFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, name := range []string{uncontended, inProcess, reacquire, handOver, handOff} {
		d := newDisk()
		d.refuse.Store(&broken)
		b := newTest(t.Context(), time.Hour, d.host(1), d.host(2))
		b.Only = []string{name}
		err := b.measure()
		require.ErrorIs(t, err, broken)
		require.ErrorContains(t, err, name)
		require.Zero(t, d.inside.Load())
	}
	b := newTest(t.Context(), time.Hour, newDisk().host(1))
	b.Only, b.locked = []string{wrapper}, sh("echo no room >&2; exit 66")
	require.ErrorContains(t, b.measure(), "wrapper: sh -c echo no room >&2; exit 66: exit status 66: no room")
}

// TestInterrupted: afterwards nothing is held and nothing waits.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	for _, name := range Names {
		d := newDisk()
		ctx, cancel := context.WithCancelCause(t.Context())
		begun := filepath.Join(t.TempDir(), "begun")
		b := newTest(ctx, time.Hour, d.host(1), d.host(2))
		b.Only, b.locked = []string{name}, sh(`: >"$0"; exec sleep 1h`, begun)
		go func() {
			for { // until a grant can be interrupted
				_, err := os.Stat(begun)
				if err == nil || name != wrapper && d.number.Load() > 3 || ctx.Err() != nil {
					break
				}
				time.Sleep(time.Millisecond)
			}
			cancel(enough)
		}()
		require.ErrorIs(t, b.measure(), enough, name)
		require.Zero(t, d.inside.Load(), name)
	}
}

// handedOn is a lock that its host keeps for the client: only the first grant has a new ticket.
func handedOn(lock load.Lock) load.Lock {
	n := 0
	return func(ctx context.Context) (layout.Ticket, func() error, error) {
		ticket, unlock, err := lock(ctx)
		if n++; n > 1 && n != 10 {
			ticket = ticket.Grant(1)
		}
		return ticket, unlock, err
	}
}

// TestLock_FurtherGrantOfATicket_IsNotCounted: it cost no request.
func TestLock_FurtherGrantOfATicket_IsNotCounted(t *testing.T) {
	t.Parallel()
	l := newLockTimes()
	counted, err := l.batch(t.Context(), handedOn(newDisk().host(1).lock))
	require.NoError(t, err)
	require.Len(t, counted, 1)
	require.EqualValues(t, 1, l.times.Count())
	require.EqualValues(t, batchRounds-1, l.PassedOn)
}

// TestComesToNothing: a measurement that counts nothing ends with an error.
func TestComesToNothing(t *testing.T) {
	t.Parallel()
	r := &run{Options: Options{Duration: brief}, extra: 20 * time.Millisecond}
	turns := 0
	require.ErrorIs(t, r.repeat(newTimes(), func() error { turns++; return nil }), errNothing)
	require.Positive(t, turns)
}

func TestTimes(t *testing.T) {
	times := newTimes()
	for i := 1; i <= 1000; i++ {
		times.Add(time.Duration(i) * time.Microsecond)
	}
	times.Add(2 * time.Hour)
	times.Add(-1) // of a clock that stood still
	require.EqualValues(t, 1002, times.Count())
	require.InDelta(t, 500*time.Microsecond, times.At(50), float64(time.Microsecond))
	require.InDelta(t, 990*time.Microsecond, times.At(99), float64(2*time.Microsecond))
	require.EqualValues(t, (2 * time.Hour).Microseconds(), distOf(times).MaxUS)
	us := func(n int) time.Duration { return time.Duration(n) * time.Microsecond }
	counts := times.Counts([]time.Duration{us(101), us(501), us(2000)})
	require.Len(t, counts, 4)
	require.InDelta(t, 101, counts[0], 2)
	require.InDelta(t, 400, counts[1], 2)
	require.InDelta(t, 500, counts[2], 2)
	require.EqualValues(t, 1, counts[3])
	require.EqualValues(t, 0, testing.AllocsPerRun(100, func() { times.Add(us(3)) }))
}

// TestUncontended_DiskBecomesSlower_AddsTheSame: the difference is that within a turn.
func TestUncontended_DiskBecomesSlower_AddsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := time.Millisecond
		h := &host{floor: func(context.Context, int) (*measuring.Floor, error) {
			disk += 10 * time.Millisecond
			return &measuring.Floor{Rounds: []measuring.FloorRound{{Claim: disk}}}, nil
		}}
		h.fresh = func(context.Context) (layout.Ticket, func() error, error) {
			time.Sleep(disk + 5*time.Millisecond)
			return 0, func() error { return nil }, nil
		}
		r := newTest(t.Context(), 10*time.Second, h)
		toy := r.toy
		r.toy = func(ctx context.Context) (layout.Ticket, func() error, error) {
			time.Sleep(4 * time.Millisecond)
			return toy(ctx)
		}
		r.Only = []string{uncontended}
		u := r.done(t).Uncontended
		require.EqualValues(t, 5000, u.AddedUS)
		require.EqualValues(t, 4000, u.ToyP50US)
		require.InDelta(t, 1.25, u.AddedRatio, 0.001)
	})
}

func TestRatio(t *testing.T) {
	require.InDelta(t, 1.25, ratio(125, 100), 0)
	require.InDelta(t, 0.333, ratio(1, 3), 0)
	require.Zero(t, ratio(1, 0))
}

func TestBatch_OtherHostAsksLate_Ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := make(chan struct{}, 1)
		after := func(delay time.Duration) load.Lock {
			return func(context.Context) (layout.Ticket, func() error, error) {
				time.Sleep(delay)
				held <- struct{}{}
				return 1, func() error { <-held; return nil }, nil
			}
		}
		r := relay{compared: compared{times: newTimes()}}
		require.NoError(t, r.batch(t.Context(), after(0), after(5*relayHold)))
		require.Empty(t, held)
	})
}

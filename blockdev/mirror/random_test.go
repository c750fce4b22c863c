package mirror_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// Members fail, hang, are slow, damage copies, go missing and are replaced, but forget nothing: a read
// never misses a write that had returned.
func TestSet_RandomFaults_IsRegularRegister(t *testing.T) {
	const quickly = 20 * time.Millisecond
	vary := func(r *rig) {
		r.opts.Retry, r.opts.Timeout, r.opts.Hung = quickly, quickly, quickly/2
		for _, delay := range []time.Duration{1, 2, 4, 8} {
			r.always = append(r.always, disktest.Fault{Delay: delay * time.Millisecond, Chance: 0.25})
		}
	}
	for seed := range uint64(60) {
		bubbleWith(t, 3+2*int(seed%2), vary, func(t *testing.T, r *rig) {
			writers := newWriters(r, seed)
			writers.done.Go(func() { r.replaceRandom(rand.New(rand.NewPCG(seed, writerCount+1))) })
			dice := rand.New(rand.NewPCG(seed, 0))
			for range 100 {
				time.Sleep(time.Duration(dice.IntN(8)) * time.Millisecond)
				r.injectRandom(dice)
			}
			writers.done.Wait()
			require.Greater(t, writers.read, writerCount*writerCount*writerRounds/4, "seed %d: too little can be read", seed)
			for i := range r.disks {
				r.missing[i].Store(false)
				r.member(i).RemoveFaults()
			}
			time.Sleep(10 * quickly)
			for i := range r.disks {
				require.Zero(t, r.state(i).Behind)
				for record := range writers.written {
					require.Equal(t, writerRounds, r.onDisk(i, record+1), "seed %d", seed)
				}
			}
		})
	}
}

// injectRandom makes a random fault of a random member.
func (r *rig) injectRandom(dice *rand.Rand) {
	i := dice.IntN(len(r.disks))
	f := at(1+dice.IntN(writerCount), disktest.Fault{Times: 1 + dice.IntN(3)})
	switch dice.IntN(12) {
	case 0:
		f.Err = unix.EIO
	case 1:
		f.Op, f.Err, f.Landed = blockdev.OpWrite, unix.EIO, 100
	case 2:
		f.Op, f.Err, f.Landed = blockdev.OpWrite, unix.EIO, disktest.All
	case 3:
		f.Hang = true
	case 4: // it goes missing
		f = disktest.Fault{Err: unix.ENODEV}
		r.missing[i].Store(true)
		time.AfterFunc(time.Duration(dice.IntN(50))*time.Millisecond, func() { r.missing[i].Store(false) })
	default:
		f.Delay = time.Duration(dice.IntN(30)) * time.Millisecond
	}
	injected := r.member(i).Inject(f)
	if f.Hang {
		time.AfterFunc(time.Duration(dice.IntN(100))*time.Millisecond, injected.Release)
	}
}

// replaceRandom replaces random members, with pauses.
func (r *rig) replaceRandom(dice *rand.Rand) {
	pause := func() { time.Sleep(time.Duration(dice.IntN(50)) * time.Millisecond) }
	for range 3 {
		pause()
		i, contents := dice.IntN(len(r.disks)), map[int][]byte{}
		r.vacate(i)
		for record := 1; record <= writerCount; {
			pause()
			p := blockdev.Alloc(stride)
			if err := r.Read(p, int64(record*stride)); err != nil {
				continue
			}
			if versionIn(p, int64(record*stride)) > 0 {
				codec{}.Place(p, i)
			}
			contents[record] = p
			record++
		}
		pause()
		r.renew(i, contents)
	}
}

const writerCount, writerRounds = 3, 60

// writers write one record each, and read all of them.
type writers struct {
	done    sync.WaitGroup
	mu      sync.Mutex       // guards the fields below
	begun   [writerCount]int // by record: the version whose write began last
	written [writerCount]int // the greatest version whose write returned nil
	read    int              // number of versions that were read
}

func newWriters(r *rig, seed uint64) *writers {
	ws := &writers{}
	for w := range writerCount {
		ws.done.Go(func() {
			dice := rand.New(rand.NewPCG(seed, uint64(w)+1))
			for v := 1; v <= writerRounds; v++ {
				time.Sleep(time.Duration(dice.IntN(3)) * time.Millisecond)
				ws.round(r, w, v, seed)
			}
		})
	}
	return ws
}

// round writes a version, then reads and checks the records.
func (ws *writers) round(r *rig, w, v int, seed uint64) {
	ws.mu.Lock()
	ws.begun[w] = v
	ws.mu.Unlock()
	err := r.put(w+1, uint64(v))
	ws.mu.Lock()
	if err == nil {
		ws.written[w] = v
	}
	since := ws.written
	ws.mu.Unlock()
	if err != nil {
		time.Sleep(20 * time.Millisecond)
	}
	got, err := r.get(1, writerCount)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for other := range ws.written {
		if err != nil || got[other] == -1 {
			continue
		}
		ws.read++
		if got[other] < since[other] || got[other] > ws.begun[other] {
			r.t.Errorf("seed %d: record %d: version %d was read after the write of %d returned", seed, other, got[other], since[other])
		}
	}
}

package mirror_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/test/disktest"
)

const (
	stride  = 512
	records = 128
	timeout = 5 * time.Second
	retry   = time.Second
	hung    = time.Second
)

// eio is a fault of every request.
var eio = disktest.Fault{Err: unix.EIO}

var zeroes [4096]byte

// codec has records of 40 bytes: checksum, position, address, version, value.
type codec struct{}

func (codec) Version(block []byte, off int64, position int) (mirror.Version, error) {
	if bytes.Equal(block, zeroes[:len(block)]) {
		return mirror.Version{}, nil
	}
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(block[at:]) }
	if binary.LittleEndian.Uint32(block) != crc32.ChecksumIEEE(block[4:40]) || word(8) != uint64(off) || word(4)&0xff != uint64(position) {
		return mirror.Version{}, errors.New("no record")
	}
	return mirror.Version{Epoch: word(16), Counter: word(24)}, nil
}

func (codec) Place(block []byte, position int) {
	block[4] = byte(position)
	binary.LittleEndian.PutUint32(block, crc32.ChecksumIEEE(block[4:40]))
}

// encode makes block a record.
func encode(block []byte, off int64, v mirror.Version) []byte {
	clear(block)
	binary.LittleEndian.PutUint64(block[8:], uint64(off))
	binary.LittleEndian.PutUint64(block[16:], v.Epoch)
	binary.LittleEndian.PutUint64(block[24:], v.Counter)
	codec{}.Place(block, 0)
	return block
}

// rig is a set of disks in memory as one host sees them, each with faults. Record 0 is the
// superblock.
type rig struct {
	*mirror.Set
	t       testing.TB
	disks   []*disktest.Memory
	missing []atomic.Bool
	always  []disktest.Fault // of every disk that is opened

	mu      sync.Mutex         // guards disks, members and opened while a disk may be opened again
	members []*disktest.Faulty // as opened last; nil if missing
	opened  []*disktest.Faulty // all
	opts    mirror.Options
}

func newRig(t testing.TB, n int) *rig {
	var disks []*disktest.Memory
	for range n {
		disks = append(disks, disktest.NewMemory(records*stride, stride, stride))
	}
	r := newHost(t, disks)
	for i := range n {
		r.label(i)
	}
	return r
}

// newHost returns the disks as one more host sees them.
func newHost(t testing.TB, disks []*disktest.Memory) *rig {
	r := &rig{t: t, disks: disks, members: make([]*disktest.Faulty, len(disks)), missing: make([]atomic.Bool, len(disks))}
	r.opts = mirror.Options{Stride: stride, Size: records * stride, Codec: codec{}, Timeout: timeout, Patience: timeout, Hung: hung, Retry: retry, Check: func(i int, dev blockdev.Device) error {
		p := blockdev.Alloc(stride)
		if err := dev.Read(p, 0); err != nil {
			return err
		}
		if v, err := (codec{}).Version(p, 0, i); err != nil || v.Epoch != 7 {
			return fmt.Errorf("it is not disk %d of the set", i)
		}
		return nil
	}}
	return r
}

// label writes the superblock of a disk.
func (r *rig) label(i int) {
	p := encode(blockdev.Alloc(stride), 0, mirror.Version{Epoch: 7})
	codec{}.Place(p, i)
	require.NoError(r.t, r.disks[i].Open().Write(p, 0))
}

// open opens the set.
func (r *rig) open() (*mirror.Set, error) {
	var list []mirror.Member
	for i := range r.disks {
		list = append(list, r.memberAt(i, fmt.Sprintf("disk%d", i)))
	}
	return mirror.Open(list, r.opts)
}

// memberAt returns the disk at a position.
func (r *rig) memberAt(i int, name string) mirror.Member {
	return mirror.Member{Name: name, ID: [16]byte{1, byte(i)}, Open: func() (blockdev.Device, error) {
		if r.missing[i].Load() {
			return nil, unix.ENOENT
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.members[i] = disktest.NewFaulty(r.disks[i].Open(), disktest.FaultyOptions{Seed: uint64(i)})
		r.opened = append(r.opened, r.members[i])
		for _, f := range r.always {
			r.members[i].Inject(f)
		}
		return r.members[i], nil
	}}
}

var errVacant = errors.New("it is vacant")

// vacate replaces a disk by none.
func (r *rig) vacate(i int) {
	r.Replace(i, mirror.Member{Name: "none", Open: func() (blockdev.Device, error) { return nil, errVacant }})
}

// renew replaces a disk by one with contents, by record. The others there were never written.
func (r *rig) renew(i int, contents map[int][]byte) {
	r.mu.Lock()
	r.disks[i] = disktest.NewMemory(records*stride, stride, stride)
	r.mu.Unlock()
	r.label(i)
	for record, p := range contents {
		require.NoError(r.t, r.disks[i].Open().Write(p, int64(record*stride)))
	}
	r.Replace(i, r.memberAt(i, "new disk"))
}

// bubble runs a test on an open set of n disks, with a clock of its own.
func bubble(t *testing.T, n int, test func(t *testing.T, r *rig)) {
	t.Helper()
	bubbleWith(t, n, func(*rig) {}, test)
}

// bubbleWith is bubble with a change of the rig before it is opened.
func bubbleWith(t *testing.T, n int, change func(*rig), test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, n)
		change(r)
		var err error
		r.Set, err = r.open()
		require.NoError(t, err)
		defer func() { // also if the test fails: no goroutine may remain
			r.mu.Lock()
			for _, m := range r.opened {
				m.RemoveFaults()
			}
			r.mu.Unlock()
			if err := r.Close(); !errors.Is(err, blockdev.ErrClosed) {
				require.NoError(t, err)
			}
		}()
		test(t, r)
	})
}

// put writes a version of a record.
func (r *rig) put(record int, counter uint64) error {
	off := int64(record * stride)
	return r.Write(encode(blockdev.Alloc(stride), off, mirror.Version{Epoch: 1, Counter: counter}), off)
}

// versionIn returns the counter of a record in a block of any position, or -1 if it is none.
func versionIn(block []byte, off int64) int {
	v, err := codec{}.Version(block, off, int(block[4]))
	if err != nil {
		return -1
	}
	return int(v.Counter)
}

// get reads count records, and returns their counters.
func (r *rig) get(record, count int) (counters []int, err error) {
	p, off := blockdev.Alloc(count*stride), int64(record*stride)
	err = r.Read(p, off)
	for at := 0; at < len(p); at += stride {
		counters = append(counters, versionIn(p[at:at+stride], off+int64(at)))
	}
	return counters, err
}

// onDisk returns the counter of a record on one disk.
func (r *rig) onDisk(i, record int) int {
	p, off := blockdev.Alloc(stride), int64(record*stride)
	require.NoError(r.t, r.disks[i].Open().Read(p, off))
	if v, err := (codec{}).Version(p, off, i); err == nil {
		return int(v.Counter)
	}
	return -1
}

// damage makes a copy unreadable.
func (r *rig) damage(i, record int) {
	require.NoError(r.t, r.disks[i].Open().Write(disktest.Random(1, stride), int64(record*stride)))
}

// requireGet requires a record to have a counter.
func (r *rig) requireGet(record, counter int) {
	r.t.Helper()
	got, err := r.get(record, 1)
	require.NoError(r.t, err)
	require.Equal(r.t, []int{counter}, got)
}

// member returns a disk as it was opened last.
func (r *rig) member(i int) *disktest.Faulty {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members[i]
}

// state returns the state of a member once everything waits.
func (r *rig) state(i int) mirror.Status {
	synctest.Wait()
	return r.Members()[i]
}

// at returns a fault that hits only one record.
func at(record int, f disktest.Fault) disktest.Fault {
	f.From, f.To = int64(record*stride), int64((record+1)*stride)
	return f
}

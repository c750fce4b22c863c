package blockdev_test

import (
	"errors"
	"hash/maphash"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// mirrorStorage is three disks in memory that every host opens as one.
func mirrorStorage(testing.TB) storage {
	const stride = 4096
	var disks []*disktest.Memory
	for range 3 {
		disks = append(disks, disktest.NewMemory(testSize, 512, 4096))
	}
	versions := &writeOrder{versions: map[blockContent]uint64{}}
	return storage{logical: stride, open: func(t testing.TB, readOnly bool) blockdev.Device {
		var members []mirror.Member
		for _, m := range disks {
			members = append(members, mirror.Member{Name: "memory", Open: func() (blockdev.Device, error) {
				if readOnly {
					return m.OpenReadOnly(), nil
				}
				return m.Open(), nil
			}})
		}
		s, err := mirror.Open(members, mirror.Options{
			Stride: stride, Size: testSize, Codec: versions, ReadOnly: readOnly,
			Check:   func(int, blockdev.Device) error { return nil },
			Timeout: waitLimit, Retry: time.Second,
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return versionedDevice{s, versions}
	}}
}

// writeOrder is a codec of blocks without versions: a content has the version of its last write.
type writeOrder struct {
	mu       sync.Mutex // guards the fields below
	last     uint64
	versions map[blockContent]uint64
}

type blockContent struct {
	off  int64
	hash uint64
}

var seed = maphash.MakeSeed()

func (o *writeOrder) Version(block []byte, off int64, _ int) (mirror.Version, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v, ok := o.versions[blockContent{off, maphash.Bytes(seed, block)}]
	if !ok && block[0] != 0 {
		return mirror.Version{}, errors.New("was never written")
	}
	return mirror.Version{Counter: v}, nil
}

func (o *writeOrder) Place([]byte, int) {}

// written gives the content of the blocks in p the next version.
func (o *writeOrder) written(p []byte, off int64, stride int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last++
	for at := 0; at+stride <= len(p) && off >= 0; at += stride {
		o.versions[blockContent{off + int64(at), maphash.Bytes(seed, p[at:at+stride])}] = o.last
	}
}

// versionedDevice gives every content that is written a version. A record has one writer at a time:
// a write returns when the next host may write.
type versionedDevice struct {
	*mirror.Set
	versions *writeOrder
}

func (d versionedDevice) Write(p []byte, off int64) error {
	d.versions.written(p, off, d.Info().LogicalBlock)
	err := d.Set.Write(p, off)
	for d.Drop(off, int64(len(p))) != 0 {
		runtime.Gosched()
	}
	return err
}

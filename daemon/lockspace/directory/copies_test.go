package directory_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

var space = layout.Space{UUID: layout.UUID{1}, Geometry: layout.Geometry{Stride: 512, Hosts: 2, Locks: 4}, Several: true}

// members are three disks that one host sees.
type members struct {
	*mirror.Set
	t     *testing.T
	disks [3]*disktest.Faulty
}

func onMembers(t *testing.T, f func(t *testing.T, m *members, dir *directory.Directory)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &members{t: t}
		var list []mirror.Member
		for i := range m.disks {
			m.disks[i] = disktest.NewFaulty(disktest.NewMemory(space.Geometry.Size(), 512, 512).Open(), disktest.FaultyOptions{})
			list = append(list, mirror.Member{Name: fmt.Sprint("disk", i), Open: func() (blockdev.Device, error) { return m.disks[i], nil }})
		}
		var err error
		m.Set, err = mirror.Open(list, mirror.Options{Stride: 512, Size: space.Geometry.Size(), Codec: lockspacetest.Codec{Space: space}, Timeout: time.Second, Patience: time.Second, Retry: time.Second,
			Check: func(int, blockdev.Device) error { return nil }})
		require.NoError(t, err)
		defer func() {
			for _, d := range m.disks {
				d.RemoveFaults()
			}
			require.NoError(t, m.Close())
		}()
		f(t, m, directory.New(m.Set, space))
	})
}

// put writes an entry on some disks. Its version is its creation id.
func (m *members) put(e layout.Entry, disks ...int) {
	m.t.Helper()
	e.Token = layout.MakeTicket(e.Creation, 1)
	for _, i := range disks {
		buf := blockdev.Alloc(512)
		require.NoError(m.t, space.EncodeEntry(buf, e))
		layout.PlaceCopy(buf, i+1)
		require.NoError(m.t, m.disks[i].Write(buf, space.Geometry.Entry(e.Lock)))
	}
}

func entry(lock int, creation uint64) layout.Entry {
	return layout.Entry{Lock: lock, Name: fmt.Sprint("lock", lock), Permits: 1, Creation: creation}
}

func TestRead_OnMembers_MajorityShowsNewest(t *testing.T) {
	onMembers(t, func(t *testing.T, m *members, dir *directory.Directory) {
		m.put(entry(1, 1), 0, 1, 2)
		m.put(entry(2, 1), 0, 2)
		m.put(entry(2, 2), 1)
		m.put(entry(3, 2), 0, 1)
		m.put(entry(3, 1), 2)
		m.disks[2].Inject(disktest.Fault{Delay: time.Millisecond}) // the others come first
		e, err := dir.Read(1)
		require.NoError(t, err)
		require.Equal(t, entry(1, 1), e)
		e, err = dir.ReadVersion(3)
		require.NoError(t, err)
		require.Equal(t, layout.MakeTicket(2, 1), e.Token)
		e, err = dir.Read(2)
		require.ErrorIs(t, err, directory.ErrUnsettled)
		require.True(t, directory.Undecodable(err))
		require.Equal(t, entry(2, 2), e)
		e, err = dir.Read(4)
		require.NoError(t, err)
		require.True(t, e.Blank())
		s, err := dir.Scan()
		require.NoError(t, err)
		require.ErrorIs(t, s.Damaged, directory.ErrUnsettled)
		require.Equal(t, []int{2}, s.Bad)
		require.Equal(t, []layout.Entry{entry(2, 2)}, s.Unsettled)
		require.Equal(t, []layout.Entry{entry(1, 1), entry(3, 2), {Lock: 4}}, s.Entries)
	})
}

// A member that hangs delays only the read of what is unsettled without it.
func TestRead_MemberHangs_WaitsForUnsettledOnly(t *testing.T) {
	onMembers(t, func(t *testing.T, m *members, dir *directory.Directory) {
		m.put(entry(1, 1), 0, 1)
		m.put(entry(2, 2), 0)
		hung := m.disks[2].Inject(disktest.Fault{Hang: true})
		began := time.Now()
		_, err := dir.Read(1)
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		_, err = dir.Read(2)
		require.ErrorIs(t, err, directory.ErrUnsettled)
		require.Equal(t, time.Second, time.Since(began))
		hung.Release()
	})
}

// One bad sector of a member is one lost copy, also in a read of the whole directory.
func TestScan_BadSectorsOfMembers_AreLostCopies(t *testing.T) {
	onMembers(t, func(t *testing.T, m *members, dir *directory.Directory) {
		m.put(entry(1, 2), 0, 1)
		m.put(entry(1, 1), 2)
		m.put(entry(2, 1), 0, 1, 2)
		bad := func(disk, lock int) {
			at := space.Geometry.Entry(lock)
			m.disks[disk].Inject(disktest.Fault{Op: blockdev.OpRead, From: at, To: at + 512, Err: unix.EIO})
		}
		bad(1, 2)
		s, err := dir.Scan()
		require.NoError(t, err)
		require.NoError(t, s.Damaged)
		require.Equal(t, entry(1, 2), s.Entries[0])
		require.Equal(t, entry(2, 1), s.Entries[1])
		bad(0, 3)
		s, err = dir.Scan()
		require.NoError(t, err)
		require.NoError(t, s.Damaged)
		bad(0, 2)
		s, err = dir.Scan()
		require.NoError(t, err)
		require.Equal(t, []int{2}, s.Bad)
		require.Empty(t, s.Unsettled)
	})
}

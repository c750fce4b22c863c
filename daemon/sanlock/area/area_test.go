package area

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/fusetest"
)

var (
	aLockspace = Record{Kind: Lockspace, Lockspace: "ls", IOTimeout: 15}
	aResource  = Record{Kind: Resource, Lockspace: "ls", Name: "res"}
)

func TestAreas_Write_IsReadWithDefaultsOfTheDevice(t *testing.T) {
	for name, c := range map[string]struct {
		path  func(t *testing.T) string
		align int
		flags uint32
	}{
		"file":      {func(t *testing.T) string { return newFile(t, 40*mebi) }, mebi, 0x110},
		"loop 512":  {func(t *testing.T) string { return loop(t, newFile(t, 40*mebi), 512) }, mebi, 0x110},
		"loop 4096": {func(t *testing.T) string { return loop(t, newFile(t, 40*mebi), 4096) }, 8 * mebi, 0x280},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, path := newAreas(), c.path(t)
			align, err := a.Align(t.Context(), root, path)
			require.NoError(t, err)
			require.Equal(t, c.align, align)
			_, err = read(a, Lockspace, path, 0, 0)
			requireCode(t, codeMagic, err)

			for i, r := range []Record{aLockspace, aResource} {
				wrote, err := write(a, r, path, int64(i*align))
				require.NoError(t, err)
				require.NotZero(t, wrote.Nonce)
				r.UUID, r.Flags, r.Nonce = uuid, c.flags, wrote.Nonce
				require.Equal(t, r, wrote)
				for _, flags := range []uint32{0, c.flags, 0x280} {
					got, err := read(a, r.Kind, path, int64(i*align), flags)
					require.NoError(t, err)
					require.Equal(t, wrote, got)
				}
				again, err := write(a, r, path, int64(i*align))
				require.NoError(t, err)
				require.NotEqual(t, wrote.Nonce, again.Nonce)
			}
			_, err = read(a, Resource, path, 0, 0)
			requireCode(t, codeMagic, err, "of the other kind")
		})
	}
}

// TestAreas_Update_ChangesTheVersionOnly: values of the resource are still those of this nonce.
func TestAreas_Update_ChangesTheVersionOnly(t *testing.T) {
	a, path := newAreas(), newFile(t, 4*mebi)
	want, err := write(a, aResource, path, mebi)
	require.NoError(t, err)
	want.Lver = 7
	require.NoError(t, a.Update(t.Context(), root, want, path, mebi))
	got, err := read(a, Resource, path, mebi, 0)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestAreas_Clear_RecordIsGone(t *testing.T) {
	a, path := newAreas(), newFile(t, 4*mebi)
	for i, r := range []Record{aLockspace, aResource} {
		off := int64(i * mebi)
		_, err := write(a, r, path, off)
		require.NoError(t, err)
		require.NoError(t, a.Clear(t.Context(), root, r.Kind, path, uint64(off), 0))
		_, err = read(a, r.Kind, path, off, 0)
		requireCode(t, codeMagic, err)
	}
	requireCode(t, -1, a.Clear(t.Context(), root, Resource, path, 0, 0x10))
	_, err := a.Write(t.Context(), root, Record{Kind: Resource, Flags: 0x100}, path, 0)
	requireCode(t, -1, err)
}

// TestAreas_EndOfDevice_HasCodesOfSanlock: the codes are those that sanlock 3.8.5 returns on such
// devices, with which lvmlockd finds the end of its volume.
func TestAreas_EndOfDevice_HasCodesOfSanlock(t *testing.T) {
	const size = 20*mebi + mebi/2
	big, nospace, invalid := -int32(unix.EMSGSIZE), -int32(unix.ENOSPC), -int32(unix.EINVAL)
	for _, c := range []struct {
		sector          int
		off             int64 // from the end
		wr, wr512, wr4K int32 // write_resource without flags, with 512/1M, with 4K/1M
		wl, read, rd512 int32 // write_lockspace; read_resource without flags, with 512/1M
	}{
		{512, 0, nospace, nospace, nospace, nospace, big, big},
		{512, -512, big, big, big, big, big, codeMagic},
		{512, -4096, big, big, big, big, codeMagic, codeMagic},
		{512, -mebi, 0, 0, 0, 0, codeMagic, codeMagic},
		{512, -mebi + 4096, big, big, big, big, codeMagic, codeMagic},
		{512, 80 * mebi, nospace, nospace, nospace, nospace, big, big},
		{4096, 0, nospace, nospace, nospace, nospace, big, invalid},
		{4096, -512, invalid, invalid, invalid, invalid, invalid, invalid},
		{4096, -4096, big, big, big, big, codeMagic, invalid},
		// sanlock writes 512/1M here, and cannot read it.
		{4096, -mebi, big, invalid, 0, big, codeMagic, invalid},
	} {
		path, a := loop(t, newFile(t, size), c.sector), newAreas()
		off := size + c.off
		_, err := read(a, Resource, path, off, 0)
		requireCode(t, c.read, err, c, "read")
		_, err = read(a, Resource, path, off, 0x110)
		requireCode(t, c.rd512, err, c, "read 512")
		for flags, want := range map[uint32]int32{0: c.wr, 0x110: c.wr512, 0x210: c.wr4K} {
			_, err := write(a, Record{Kind: Resource, Flags: flags}, path, off)
			requireCode(t, want, err, c, flags)
		}
		_, err = write(a, aLockspace, path, off)
		requireCode(t, c.wl, err, c, "write_lockspace")
	}
}

func TestAreas_Unaligned_IsInvalid(t *testing.T) {
	a, path := newAreas(), newFile(t, 4*mebi)
	for _, off := range []int64{1, 100, 256, mebi + 1} {
		_, err := write(a, aResource, path, off)
		requireCode(t, -int32(unix.EINVAL), err)
		_, err = read(a, Resource, path, off, 0)
		requireCode(t, -int32(unix.EINVAL), err)
	}
	for _, off := range []int64{512, 4096, mebi + 512} { // sanlock accepts them too
		_, err := write(a, aResource, path, off)
		require.NoError(t, err)
	}
	_, err := a.Write(t.Context(), root, aResource, path, 1<<63)
	require.Error(t, err)
	_, err = a.Read(t.Context(), root, Resource, path, 1<<63+512, 0)
	require.Error(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 4*mebi, info.Size())
}

// TestAreas_ShortFile_IsExtended: clients make empty files, and let sanlock give them their size.
func TestAreas_ShortFile_IsExtended(t *testing.T) {
	a, path := newAreas(), newFile(t, 0)
	align, err := a.Align(t.Context(), root, path)
	require.NoError(t, err)
	require.Equal(t, mebi, align)
	_, err = read(a, Lockspace, path, 0, 0)
	requireCode(t, -int32(unix.EMSGSIZE), err)
	for _, c := range []struct {
		off, size int64
		record    Record
	}{{0, mebi, aLockspace}, {10 * mebi, 11 * mebi, aResource}, {2 * mebi, 11 * mebi, aResource}} {
		wrote, err := write(a, c.record, path, c.off)
		require.NoError(t, err)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, c.size, info.Size())
		got, err := read(a, c.record.Kind, path, c.off, 0)
		require.NoError(t, err)
		require.Equal(t, wrote, got)
	}
}

// TestAreas_WriteOverSanlock_ReplacesWhatItReads: of a lockspace that is every sector, of a
// resource the first.
func TestAreas_WriteOverSanlock_ReplacesWhatItReads(t *testing.T) {
	a, path := newAreas(), newFile(t, 0)
	old := bytes.Repeat([]byte{0x10, 0x20, 0x21, 0x12}, 20*mebi/4)
	require.NoError(t, os.WriteFile(path, old, 0o600))
	_, err := read(a, Lockspace, path, 8*mebi, 0)
	requireCode(t, codeMagic, err)
	require.ErrorContains(t, err, "belongs to sanlock")
	for _, r := range []Record{aLockspace, aResource} {
		for _, flags := range []uint32{0x110, 0x210, 0x280} {
			require.NoError(t, os.WriteFile(path, old, 0o600))
			r.Flags = flags
			_, err := write(a, r, path, 8*mebi)
			require.NoError(t, err)
			now, err := os.ReadFile(path)
			require.NoError(t, err)
			align, sector := int(alignOf(flags)), sectorOf(flags)
			require.True(t, bytes.Equal(now[:8*mebi], old[:8*mebi]))
			require.Equal(t, "BKAR", string(now[8*mebi:8*mebi+4]))
			replaced := sector
			if r.Kind == Lockspace {
				replaced = align
			}
			require.Equal(t, make([]byte, replaced-sectorSize), now[8*mebi+sectorSize:8*mebi+replaced])
			require.True(t, bytes.Equal(now[8*mebi+replaced:], old[8*mebi+replaced:]))
		}
	}
}

// TestAreas_WriteFailsHalfway_IsNoRecord neither of bakeryd nor of sanlock.
func TestAreas_WriteFailsHalfway_IsNoRecord(t *testing.T) {
	path, faults := faultyLoop(t, 4*mebi)
	a := newAreas()
	_, err := write(a, aLockspace, path, mebi)
	require.NoError(t, err)
	faults.Set(fusetest.State{Fail: fusetest.Trouble{Writes: true, From: mebi + 4096, To: 2 * mebi}})
	_, err = write(a, aLockspace, path, mebi)
	requireCode(t, -int32(unix.EIO), err)
	require.ErrorContains(t, err, "area at 1048576 of "+path)
	require.NotContains(t, err.Error(), "/proc")
	faults.Repair()
	_, err = read(a, Lockspace, path, mebi, 0)
	requireCode(t, codeMagic, err)
}

func TestAreas_OtherBakeryLockspace_IsNamed(t *testing.T) {
	path := newFile(t, 4*mebi)
	other := New(Config{UUID: layout.UUID{9}})
	_, err := write(other, aResource, path, 0)
	require.NoError(t, err)
	got, err := read(newAreas(), Resource, path, 0, 0)
	require.ErrorIs(t, err, ErrUUID)
	requireCode(t, codeLockspace, err)
	require.ErrorContains(t, err, uuid.String())
	require.ErrorContains(t, err, layout.UUID{9}.String())
	require.Zero(t, got, "its names mean other locks")
}

// TestAreas_CannotOpen_HasCodesOfSanlock: of a lockspace it is one code.
func TestAreas_CannotOpen_HasCodesOfSanlock(t *testing.T) {
	a, dir := newAreas(), t.TempDir()
	fifo, loops := filepath.Join(dir, "fifo"), filepath.Join(dir, "loops")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	require.NoError(t, os.Symlink("loops", loops))
	for path, want := range map[string]unix.Errno{
		filepath.Join(dir, "missing"):   unix.ENOENT,
		loops:                           unix.ELOOP,
		dir:                             unix.EINVAL,
		fifo:                            unix.EINVAL, // and does not wait for another end
		"/dev/null":                     unix.EINVAL,
		"/dev/tty":                      unix.EINVAL,
		"":                              unix.EINVAL,
		"relative":                      unix.EINVAL,
		"/" + strings.Repeat("a", 1023): unix.EINVAL,
		"/a\x00b":                       unix.EINVAL,
	} {
		_, err := read(a, Resource, path, 0, 0)
		requireCode(t, -int32(want), err, path)
		_, err = write(a, aResource, path, 0)
		requireCode(t, -int32(want), err, path)
		_, err = read(a, Lockspace, path, 0, 0)
		requireCode(t, -int32(unix.ENODEV), err, path)
		_, err = write(a, aLockspace, path, 0)
		requireCode(t, -int32(unix.ENODEV), err, path)
		_, err = a.Align(t.Context(), root, path)
		requireCode(t, -int32(unix.ENODEV), err, path)
	}
	require.NoFileExists(t, filepath.Join(dir, "missing"))
}

func TestAreas_ReadOnlyDevice_IsRead(t *testing.T) {
	a, file := newAreas(), newFile(t, 4*mebi)
	wrote, err := write(a, aResource, file, 0)
	require.NoError(t, err)
	path := loop(t, file, 512, "--read-only")
	got, err := read(a, Resource, path, 0, 0)
	require.NoError(t, err)
	require.Equal(t, wrote, got)
	_, err = write(a, aResource, path, 0)
	requireCode(t, -int32(unix.EPERM), err)
}

// TestAreas_Concurrent_RecordIsWhole: a reader finds one of the records, or none while a lockspace
// is replaced.
func TestAreas_Concurrent_RecordIsWhole(t *testing.T) {
	a, path := newAreas(), newFile(t, 4*mebi)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 5 {
				_, err := write(a, aLockspace, path, 0)
				assert.NoError(t, err)
				r, err := read(a, Lockspace, path, 0, 0)
				assert.True(t, r.Lockspace == "ls" || codeIn(err) == codeMagic, err)
			}
		})
	}
	group.Wait()
	_, err := read(a, Lockspace, path, 0, 0)
	require.NoError(t, err)
	require.Empty(t, a.requests)
}

func TestAreas_CallerEnds_Returns(t *testing.T) {
	path, faults := faultyLoop(t, 4*mebi)
	a := newAreas()
	faults.Set(fusetest.State{Hang: fusetest.All})
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() { _, err := a.Read(ctx, root, Resource, path, 0, 0); done <- err }()
	require.Eventually(t, func() bool { return faults.Hanging() > 0 }, waitLimit, waitTick)
	gone := errors.New("client is gone")
	cancel(gone)
	err := <-done
	require.ErrorIs(t, err, gone)
	requireCode(t, codeTimeout, err)
}

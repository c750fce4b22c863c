package fusetest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// opened returns a file over an image of eight bytes, with the faults of a path and of the disk.
func opened(t *testing.T) (f *File, path, disk *Faults) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	require.NoError(t, os.WriteFile(image, []byte("........"), 0o600))
	path, disk = &Faults{}, &Faults{}
	f, err := Open(image, path, disk)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f, path, disk
}

func (f *File) write(t *testing.T, text string, off int64) syscall.Errno {
	t.Helper()
	n, errno := f.Write(t.Context(), nil, []byte(text), off)
	if errno == 0 {
		require.EqualValues(t, len(text), n)
	}
	return errno
}

func (f *File) contents(t *testing.T) string {
	t.Helper()
	r, errno := f.Read(t.Context(), nil, make([]byte, 8), 0)
	require.Zero(t, errno)
	text, _ := r.Bytes(nil)
	return string(text)
}

func TestFile_Fail_HitsSelectedRequests(t *testing.T) {
	f, path, disk := opened(t)
	for _, at := range []*Faults{path, disk} {
		at.Set(State{Fail: Trouble{Writes: true, From: 2, To: 4}})
		require.Zero(t, f.write(t, "ab", 0))
		require.Equal(t, syscall.EIO, f.write(t, "cd", 1))
		require.Equal(t, syscall.EIO, f.write(t, "ef", 3))
		require.Zero(t, f.write(t, "gh", 4))
		require.Equal(t, "ab..gh..", f.contents(t))
		at.Repair()
	}
	require.Zero(t, f.write(t, "cd", 1))
	require.Zero(t, f.WroteTwice())
}

func TestFile_HangAndDelay_RequestsAreLate(t *testing.T) {
	f, path, disk := opened(t)
	synctest.Test(t, func(t *testing.T) {
		disk.Set(State{Hang: Trouble{Writes: true}})
		path.Set(State{Slow: All, Delay: time.Minute})
		wrote := make(chan syscall.Errno)
		began := time.Now()
		for range 2 {
			go func() { wrote <- f.write(t, "ab", 0) }()
		}
		require.Equal(t, "........", f.contents(t))
		require.Equal(t, time.Minute, time.Since(began))
		synctest.Wait()
		require.Equal(t, 2, disk.Hanging())
		disk.Repair()
		require.Zero(t, <-wrote)
		require.Zero(t, <-wrote)
		require.Zero(t, disk.Hanging())
		require.Equal(t, 1, f.WroteTwice())
		path.Repair()
		require.Equal(t, "ab......", f.contents(t))
		n, most := f.Slow(began, time.Now())
		require.Equal(t, 3, n)
		require.Equal(t, time.Minute, most)
		n, _ = f.Slow(time.Now(), time.Now().Add(time.Hour))
		require.Zero(t, n)
	})
}

func TestFile_Cut_WritesThatHungLandLater(t *testing.T) {
	f, path, _ := opened(t)
	synctest.Test(t, func(t *testing.T) {
		path.Set(State{Hang: Trouble{Writes: true}})
		wrote := make(chan syscall.Errno)
		go func() { wrote <- f.write(t, "ab", 0) }()
		synctest.Wait()
		path.Change(func(s *State) { s.Cut = true })
		require.Equal(t, syscall.EIO, <-wrote)
		path.Repair()
		require.Equal(t, "........", f.contents(t))
		n, err := f.Land()
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, "ab......", f.contents(t))
		n, err = f.Land()
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

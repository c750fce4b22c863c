package blockdev_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/test/disktest"
)

func TestCreate(t *testing.T) {
	path := filepath.Join(diskDir(t), "image")
	want := disktest.Random(1, 4096)
	require.NoError(t, blockdev.Create(path, bytesLong(testSize), func(dev blockdev.Device) error {
		require.NoFileExists(t, path, "not visible before it is filled")
		require.Equal(t, path, dev.Info().Path)
		return dev.Write(want, 4096)
	}))

	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	require.Equal(t, uint32(unix.S_IFREG|0o600), st.Mode)
	require.EqualValues(t, testSize, st.Size)
	require.EqualValues(t, 1, st.Nlink)
	require.Less(t, st.Blocks*512, int64(testSize), "sparse")
	require.Equal(t, want, mustRead(t, mustOpen(t, path, blockdev.Options{}), 4096, 4096))
}

func TestCreateFailures(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		size int64
		fill func(blockdev.Device) error
		want error
	}{
		"fill fails":      {testSize, func(blockdev.Device) error { return boom }, boom},
		"fill closes":     {testSize, func(dev blockdev.Device) error { return dev.Close() }, blockdev.ErrClosed},
		"no size":         {0, noFill, blockdev.ErrTooSmall},
		"negative size":   {-4096, noFill, blockdev.ErrTooSmall},
		"less than block": {512, noFill, blockdev.ErrTooSmall},
		"odd size":        {testSize + 1, noFill, blockdev.ErrAlignment},
		"enormous":        {1 << 62, noFill, unix.EFBIG},
	} {
		t.Run(name, func(t *testing.T) {
			dir := diskDir(t)
			path := filepath.Join(dir, "image")
			err := blockdev.Create(path, bytesLong(c.size), c.fill)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, "create "+path+": ")
			require.NotContains(t, err.Error(), ".image.", "the temporary name is nobody's business")
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, entries)
		})
	}
	require.ErrorIs(t, blockdev.Create(filepath.Join(diskDir(t), "no", "image"), bytesLong(testSize), noFill), os.ErrNotExist)
}

// TestCreate_DirectoryOfAnotherUser_IsNamed: no hint can concern a device.
func TestCreate_DirectoryOfAnotherUser_IsNamed(t *testing.T) {
	dir := diskDir(t)
	require.NoError(t, os.Chmod(dir, 0o500))
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		_ = unix.Setfsuid(65534)
		failed <- blockdev.Create(filepath.Join(dir, "image"), bytesLong(testSize), noFill)
	}()
	err := <-failed
	require.ErrorIs(t, err, blockdev.ErrDirectory)
	require.ErrorIs(t, err, os.ErrPermission)
	require.EqualError(t, err, "create "+filepath.Join(dir, "image")+": cannot create a file in its directory: permission denied")
}

func TestCreateLeavesNothingAfterPanic(t *testing.T) {
	dir := diskDir(t)
	require.Panics(t, func() {
		_ = blockdev.Create(filepath.Join(dir, "image"), bytesLong(testSize), func(blockdev.Device) error { panic("boom") })
	})
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestCreateExisting(t *testing.T) {
	dir := diskDir(t)
	for name, make := range map[string]func(path string) error{
		"file":          func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) },
		"directory":     func(path string) error { return os.Mkdir(path, 0o700) },
		"dangling link": func(path string) error { return os.Symlink("nowhere", path) },
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, make(path))
		require.ErrorIs(t, blockdev.Create(path, bytesLong(testSize), noFill), os.ErrExist, name)
	}
	got, err := os.ReadFile(filepath.Join(dir, "file"))
	require.NoError(t, err)
	require.Equal(t, "precious", string(got))

	// It appears while Create fills its own file.
	path := filepath.Join(dir, "late")
	err = blockdev.Create(path, bytesLong(testSize), func(blockdev.Device) error { return os.WriteFile(path, []byte("precious"), 0o600) })
	require.ErrorIs(t, err, os.ErrExist)
}

func TestCreateInWorkingDirectory(t *testing.T) {
	dir := diskDir(t)
	t.Chdir(dir)
	require.NoError(t, blockdev.Create("image", bytesLong(testSize), noFill))
	require.FileExists(t, filepath.Join(dir, "image"))
}

// Of several concurrent calls one succeeds, and no process sees an incomplete file.
func TestCreateAtOnce(t *testing.T) {
	path := filepath.Join(diskDir(t), "image")
	const creators = 8
	contents := make([][]byte, creators)
	errs := make([]error, creators)
	var creating, watching sync.WaitGroup
	done := make(chan struct{})
	watching.Go(func() {
		for {
			if st, err := os.Stat(path); err == nil && st.Size() != testSize {
				t.Errorf("seen with %d bytes", st.Size())
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for i := range creators {
		contents[i] = disktest.Random(uint64(i), 4096)
		creating.Go(func() {
			errs[i] = blockdev.Create(path, bytesLong(testSize), func(dev blockdev.Device) error { return dev.Write(contents[i], 0) })
		})
	}
	creating.Wait()
	close(done)
	watching.Wait()

	var winner []byte
	for i, err := range errs {
		if err == nil {
			require.Nil(t, winner, "two succeeded")
			winner = contents[i]
			continue
		}
		require.ErrorIs(t, err, os.ErrExist)
	}
	require.Equal(t, winner, mustRead(t, mustOpen(t, path, blockdev.Options{}), 0, 4096))
}

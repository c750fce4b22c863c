package area

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/fusetest"
)

// opened returns the number of descriptors of this process for a file.
func opened(t *testing.T, path string) (n int) {
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && to == path {
			n++
		}
	}
	return n
}

// TestAreas_DeviceHangs_CallersReturn: a few requests stay with the device, further ones are
// refused, and no write is made while one may still land.
func TestAreas_DeviceHangs_CallersReturn(t *testing.T) {
	path, faults := faultyLoop(t, 4*mebi)
	a := New(Config{UUID: uuid, Limit: time.Second})
	wrote, err := write(newAreas(), aResource, path, 0)
	require.NoError(t, err)
	require.Zero(t, opened(t, path))

	faults.Set(fusetest.State{Hang: fusetest.Trouble{Writes: true}})
	_, err = write(a, aResource, path, 0)
	requireCode(t, codeTimeout, err)
	require.ErrorContains(t, err, "no answer within 1s")
	_, err = write(a, aResource, path, mebi)
	requireCode(t, codeTimeout, err)
	require.ErrorContains(t, err, "no answer to 1 earlier requests for it")
	require.Eventually(t, func() bool { got, err := read(a, Resource, path, 0, 0); return err == nil && got == wrote },
		waitLimit, waitTick, "reads are still answered")

	faults.Set(fusetest.State{Hang: fusetest.All})
	for hung := 1; ; hung++ {
		_, err = read(a, Resource, path, 0, 0)
		requireCode(t, codeTimeout, err)
		if strings.Contains(err.Error(), "no answer to 4 earlier requests for it") {
			break
		}
		require.Less(t, hung, maxHungOfPath)
	}
	other := newFile(t, 4*mebi)
	_, err = write(newAreas(), aResource, other, 0)
	require.NoError(t, err, "another path is answered")

	faults.Repair()
	require.Eventually(t, func() bool { _, err := write(a, aResource, path, 0); return err == nil }, waitLimit, waitTick)
	require.Eventually(t, func() bool { return opened(t, path) == 0 }, waitLimit, waitTick)
}

// TestAreas_UserMakesManyPathsThatHang_IsRefused, and other users are not.
func TestAreas_UserMakesManyPathsThatHang_IsRefused(t *testing.T) {
	a := newAreas()
	for i := range maxHungOfUser {
		id, err := a.begin(request{peer: user, path: "/" + strconv.Itoa(i)})
		require.NoError(t, err)
		hung := a.requests[id]
		hung.began = hung.began.Add(-waitLimit)
		a.requests[id] = hung
	}
	_, err := a.begin(request{peer: user, path: "/other"})
	requireCode(t, codeTimeout, err)
	require.ErrorContains(t, err, "and to 64 of user 65534")
	id, err := a.begin(request{path: "/other", write: true})
	require.NoError(t, err)
	a.end(id)
	a.end(1)
	_, err = a.begin(request{peer: user, path: "/other"})
	require.NoError(t, err)
}

package area

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestPeer_Rights_AreThoseForFiles: no capability of this process overrides them.
func TestPeer_Rights_AreThoseForFiles(t *testing.T) {
	needRoot(t)
	for name, c := range map[string]struct {
		peer        Peer
		uid, gid    int
		mode        os.FileMode
		read, write unix.Errno
	}{
		"root's file":               {user, 0, 0, 0o600, unix.EACCES, unix.EACCES},
		"readable":                  {user, 0, 0, 0o644, 0, unix.EACCES},
		"own file":                  {user, 65534, 0, 0o600, 0, 0},
		"own, without permission":   {user, 65534, 0, 0o000, unix.EACCES, unix.EACCES},
		"group":                     {user, 0, 65534, 0o660, 0, 0},
		"group without permission":  {user, 0, 65534, 0o606, unix.EACCES, unix.EACCES},
		"supplementary group":       {Peer{65534, 65534, []int{7, 8}}, 0, 8, 0o640, 0, unix.EACCES},
		"no supplementary group":    {Peer{65534, 65534, []int{7}}, 0, 8, 0o660, unix.EACCES, unix.EACCES},
		"group of root is not kept": {user, 0, 0, 0o060, unix.EACCES, unix.EACCES},
		"root":                      {root, 65534, 65534, 0o000, 0, 0},
	} {
		a, path := newAreas(), newFile(t, mebi)
		_, err := write(a, aResource, path, 0)
		require.NoError(t, err)
		require.NoError(t, os.Chown(path, c.uid, c.gid))
		require.NoError(t, os.Chmod(path, c.mode))
		_, err = a.Read(t.Context(), c.peer, Resource, path, 0, 0)
		requireCode(t, -int32(c.read), err, name)
		_, err = a.Write(t.Context(), c.peer, aResource, path, 0)
		requireCode(t, -int32(c.write), err, name)
		requireCode(t, -int32(c.write), a.Clear(t.Context(), c.peer, Resource, path, 0, 0), name)
	}
	requireRightsOfProcess(t)
}

// TestPeer_Directory_HidesWhatIsBelow also from the check that a file exists, and from extension.
func TestPeer_Directory_HidesWhatIsBelow(t *testing.T) {
	needRoot(t)
	a, path := newAreas(), newFile(t, 0)
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o700))
	for _, path := range []string{path, path + ".missing"} {
		_, err := a.Read(t.Context(), user, Resource, path, 0, 0)
		requireCode(t, -int32(unix.EACCES), err)
		_, err = a.Write(t.Context(), user, aResource, path, 0)
		requireCode(t, -int32(unix.EACCES), err)
		_, err = a.Write(t.Context(), user, aLockspace, path, 0)
		requireCode(t, -int32(unix.ENODEV), err)
		require.ErrorIs(t, err, unix.EACCES)
		require.ErrorContains(t, err, "as user 65534")
		_, err = a.Align(t.Context(), user, path)
		requireCode(t, -int32(unix.ENODEV), err)
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Zero(t, info.Size())
	requireRightsOfProcess(t)
}

// requireRightsOfProcess waits until no thread has another user, group or groups. The first thread
// of a process cannot end: Go leaves it alone instead.
func requireRightsOfProcess(t *testing.T) {
	t.Helper()
	rights := func(file string) (lines string) {
		status, _ := os.ReadFile(file) // a thread that has ended has none
		for line := range strings.Lines(string(status)) {
			if name, _, _ := strings.Cut(line, ":"); slices.Contains([]string{"Uid", "Gid", "Groups", "CapEff"}, name) {
				lines += line
			}
		}
		return lines
	}
	own := rights("/proc/thread-self/status")
	require.Contains(t, own, "Uid:\t0\t0\t0\t0")
	require.Eventually(t, func() bool {
		threads, err := os.ReadDir("/proc/self/task")
		require.NoError(t, err)
		return !slices.ContainsFunc(threads, func(thread os.DirEntry) bool {
			found := rights(filepath.Join("/proc/self/task", thread.Name(), "status"))
			return thread.Name() != strconv.Itoa(os.Getpid()) && found != "" && found != own
		})
	}, waitLimit, waitTick)
}

// TestPeer_ProcessIsNotRoot_OtherUsersAreRefused: it cannot take their rights. As root, it runs
// itself as a user.
func TestPeer_ProcessIsNotRoot_OtherUsersAreRefused(t *testing.T) {
	path := os.Getenv("AREA_FILE")
	if path == "" {
		path = newFile(t, mebi)
	}
	if os.Geteuid() == 0 {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), "AREA_FILE="+path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: "+t.Name())
		return
	}
	a, own := newAreas(), Peer{UID: os.Geteuid(), GID: os.Getegid()}
	for _, peer := range []Peer{own, root} {
		_, err := a.Write(t.Context(), peer, aResource, path, 0)
		require.NoError(t, err)
	}
	_, err := a.Read(t.Context(), Peer{UID: 65533, GID: 65533}, Resource, path, 0, 0)
	requireCode(t, -int32(unix.EPERM), err)
	require.ErrorContains(t, err, "run bakeryd as root")
}

package policy

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/test/logtest"
)

func TestPolicyFileThatIsRefused(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	_, err := Open(filepath.Join(t.TempDir(), "none"), log)
	require.ErrorIs(t, err, access.ErrPolicy)
	require.ErrorContains(t, err, "/none: no such file or directory")

	for what, c := range map[string]struct {
		spoil   func(path string) error
		message string
	}{
		"the group can write":                  {func(path string) error { return os.Chmod(path, 0o664) }, "policy: has mode 0664, so others can write to it: chmod go-w"},
		"all can write":                        {func(path string) error { return os.Chmod(path, 0o602) }, "policy: has mode 0602"},
		"all users can write to the directory": {func(path string) error { return os.Chmod(filepath.Dir(path), 0o1777) }, "policy: its directory "},
		"a directory":                          {func(path string) error { return os.Rename(path, path+"2") }, "no such file"},
		"a wrong line":                         {func(path string) error { return os.WriteFile(path, []byte("\nallow root *\n"), 0o644) }, `policy:2: unknown word "root": want allow user`},
		"too long":                             {func(path string) error { return os.Truncate(path, access.MaxSize+1) }, "more than 1048576 bytes"},
		"a FIFO": {func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return unix.Mkfifo(path, 0o600)
		}, "policy: not a file"},
		"no file": {func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		}, "policy: not a file: give --policy-file the path of one"},
	} {
		path := writePolicy(t, "allow user 5 *\n")
		_, err := Open(path, log)
		require.NoError(t, err)
		require.NoError(t, c.spoil(path))
		_, err = Open(path, log)
		require.ErrorIs(t, err, access.ErrPolicy, what)
		require.ErrorContains(t, err, c.message, what)
	}
}

func TestPolicyFileOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIP: needs root, to give a file away")
	}
	path := writePolicy(t, "allow user 5 *\n")
	require.NoError(t, os.Chown(path, strangerID, 0))
	_, err := Open(path, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "policy: belongs to uid 54321, which could write to it: chown root")
	require.NoError(t, os.Chown(path, 0, strangerID))
	require.NoError(t, os.Chown(filepath.Dir(path), strangerID, 0))
	_, err = Open(path, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "belongs to uid 54321")
}

// TestPolicyFileBySymlink: the path may be a link to another file, if only root can write to both
// directories.
func TestPolicyFileBySymlink(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	target := writePolicy(t, "allow user 5 *\n")
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(target, link))
	_, err := Open(link, log)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o777))
	_, err = Open(link, log)
	require.ErrorContains(t, err, "its directory "+dir+" has mode 0777, so others can write to it")
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Chmod(filepath.Dir(target), 0o775))
	_, err = Open(link, log)
	require.ErrorContains(t, err, "its directory "+filepath.Dir(target))
	require.NoError(t, os.Remove(link))
	require.NoError(t, os.Symlink(link, link))
	_, err = Open(link, log)
	require.ErrorContains(t, err, "too many levels of symbolic links")
}

// TestReload: an invalid file changes nothing, and is one line in the log.
func TestReload(t *testing.T) {
	log := new(logtest.Log)
	path := writePolicy(t, "allow user 5 a\n")
	p, err := Open(path, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	may := func(uid int, lock string) bool {
		return access.Rules{Owner: -2, NobodyUID: -1, NobodyGID: -1, Policy: p.Current.Load()}.Decide(access.Caller{UID: uid, GID: uid}, access.Lock, lock) == nil
	}
	require.True(t, may(5, "a"))
	require.NoError(t, os.WriteFile(path, []byte("allow user 5 b\nalow user 5 a\n"), 0o644))
	p.Reload()
	require.True(t, may(5, "a"))
	require.False(t, may(5, "b"), "not the half of it")
	require.False(t, p.Valid())
	require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"))
	require.Contains(t, log.String(), `level=ERROR msg="reloading the policy failed, the previous one stays in force" err="policy file `+path+`:2: unknown word \"alow\": want`)
	require.NoError(t, os.Remove(path))
	p.Reload()
	require.True(t, may(5, "a"))
	require.Equal(t, 2, strings.Count(log.String(), "level=ERROR"))
	require.NoError(t, os.WriteFile(path, []byte("allow user 5 b\nallow user no-such-user-here c\n"), 0o644))
	p.Reload()
	require.True(t, p.Valid())
	require.False(t, may(5, "a"))
	require.True(t, may(5, "b"))
	require.Contains(t, log.String(), `level=WARN msg="a line of the policy allows nothing until the policy is reloaded: create the user or group, or give its number" line="`+path+`:2: user \"no-such-user-here\": not known on this host"`)
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("allow group no-such-group-here c\n", 500)), 0o644))
	before := strings.Count(log.String(), "\n")
	p.Reload()
	require.Equal(t, maxUnknown+2, strings.Count(log.String(), "\n")-before)
	require.Contains(t, log.String(), "lines=480")
}

// TestReloadUnderWay: a request during a reload gets one policy or the other.
func TestReloadUnderWay(t *testing.T) {
	path := writePolicy(t, "allow user 5 a b\n")
	p, err := Open(path, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for until := time.Now().Add(50 * time.Millisecond); time.Now().Before(until); {
			p.Reload()
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		rules := access.Rules{Owner: -2, NobodyUID: -1, NobodyGID: -1, Policy: p.Current.Load()}
		require.NoError(t, rules.Decide(access.Caller{UID: 5, GID: 5}, access.Lock, "b"))
	}
}

// TestFile_InvalidAtStart_AllowsNothingUntilReload.
func TestFile_InvalidAtStart_AllowsNothingUntilReload(t *testing.T) {
	log := new(logtest.Log)
	path := writePolicy(t, "alow user 5 a\n")
	p, err := Open(path, slog.New(slog.NewTextHandler(log, nil)))
	require.ErrorIs(t, err, access.ErrPolicy)
	rules := func() access.Rules {
		return access.Rules{Owner: -2, NobodyUID: -1, NobodyGID: -1, Policy: p.Current.Load()}
	}
	require.Error(t, rules().Decide(access.Caller{UID: 5, GID: 5}, access.Lock, "a"))
	p.Reload()
	require.Contains(t, log.String(), `msg="only root and bakeryd's own user may take locks until`)
	require.NotContains(t, log.String(), "stays in force")
	require.NoError(t, os.WriteFile(path, []byte("allow user 5 a\n"), 0o644))
	p.Reload()
	require.NoError(t, rules().Decide(access.Caller{UID: 5, GID: 5}, access.Lock, "a"))
	require.True(t, p.Valid())
}

// TestFile_Changed: also a file that was removed, or made.
func TestFile_Changed(t *testing.T) {
	path := writePolicy(t, "allow user 5 a\n")
	p, err := Open(path, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.False(t, p.Changed())
	for _, change := range []func() error{
		func() error { return os.WriteFile(path, []byte("allow user 5 a b\n"), 0o644) },
		func() error { return os.Remove(path) },
		func() error { return os.WriteFile(path, []byte("allow user 5 a b\n"), 0o644) },
		func() error { return os.Chtimes(path, time.Time{}, time.Unix(1, 0)) },
	} {
		require.NoError(t, change())
		require.True(t, p.Changed())
		p.Reload()
		require.False(t, p.Changed())
	}
}

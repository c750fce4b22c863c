//go:build integration

package integration

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/client"
)

// admitted is the group that may open the socket. It replaces the group bakery, which this machine
// may lack.
const admitted = 54330

// localUser is a user with groups.
type localUser struct {
	uid, gid uint32
	groups   []uint32
}

// named returns a user that every system has, with these groups.
func named(t *testing.T, name string, groups ...uint32) localUser {
	t.Helper()
	u, err := user.Lookup(name)
	require.NoError(t, err)
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	require.NoError(t, err)
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	require.NoError(t, err)
	return localUser{uint32(uid), uint32(gid), groups}
}

func groupNamed(t *testing.T, name string) uint32 {
	t.Helper()
	g, err := user.LookupGroup(name)
	require.NoError(t, err)
	gid, err := strconv.ParseUint(g.Gid, 10, 32)
	require.NoError(t, err)
	return uint32(gid)
}

// command returns a command that the user runs.
func (u localUser) command(h *host, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(h.t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = "/", testEnv
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: u.uid, Gid: u.gid, Groups: u.groups}}
	return cmd
}

// ctl runs bakeryctl as the user and waits for its end.
func (u localUser) ctl(h *host, args ...string) (r result, pid int) {
	h.t.Helper()
	var stdout, stderr strings.Builder
	cmd := u.command(h, append([]string{h.programs.bakeryctl, "--socket", h.socket}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(h.t, cmd.Start())
	_ = cmd.Wait()
	return result{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}, cmd.Process.Pid
}

// holder starts a command under a lock as the user and waits until it runs; end ends it.
func (u localUser) holder(h *host, name string) (end func() error) {
	h.t.Helper()
	cmd := u.command(h, h.programs.bakeryctl, "lock", "--socket", h.socket, name, "--", "sh", "-c", "echo runs; read line; true")
	stdin, err := cmd.StdinPipe()
	require.NoError(h.t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(h.t, err)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	require.NoError(h.t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		_ = cmd.Wait()
	}
	require.Equal(h.t, "runs\n", line, "it says: %s", &stderr)
	return func() error { stdin.Close(); return cmd.Wait() }
}

// open lets the group admitted use the socket.
func (h *host) open() {
	h.t.Helper()
	require.NoError(h.t, os.Chmod(base, 0o711))
	require.NoError(h.t, os.Chown(h.socket, -1, admitted))
}

func (s *space) policy(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(s.dir, "policy")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	require.NoError(t, os.Chmod(path, 0o644))
	return path
}

// TestAccess_RealUsers_GetWhatThePolicyAllows: bakeryd takes the identity from the kernel.
func TestAccess_RealUsers_GetWhatThePolicyAllows(t *testing.T) {
	t.Parallel()
	s := briefSpace(t)
	path := s.policy(t, "allow user games backup-*\nallow group staff web db/*\n")
	h := s.host(1, "--policy-file", path)
	h.open()
	staff := groupNamed(t, "staff")
	games, member := named(t, "games", admitted), named(t, "daemon", admitted, staff)
	outside := named(t, "games")

	may := func(u localUser, lock string) {
		t.Helper()
		r, _ := u.ctl(h, "lock", lock, "--", "id", "-u")
		require.Zero(t, r.code, r.stderr)
		require.Equal(t, fmt.Sprintln(u.uid), r.stdout)
	}
	mayNot := func(u localUser, action, lock string, args ...string) result {
		t.Helper()
		r, pid := u.ctl(h, args...)
		require.Equal(t, 77, r.code, r.stderr)
		require.Empty(t, r.stdout)
		require.Contains(t, r.stderr, fmt.Sprintf("(uid %d) may not ", u.uid))
		require.Contains(t, r.stderr, "\nhint: ")
		logged := fmt.Sprintf(`level=WARN msg="access refused" uid=%d gid=%d pid=%d action=%s`, u.uid, u.gid, pid, action)
		eventually(t, logged, func() bool { return strings.Contains(h.said(), logged) })
		if lock != "" {
			require.Contains(t, h.said(), "lock="+lock)
		}
		return r
	}

	may(games, "backup-1")
	r := mayNot(games, "lock", "web", "lock", "web", "--", "true")
	require.Contains(t, r.stderr, fmt.Sprintf("bakeryctl: lock \"web\": user games (uid %d) may not lock \"web\": no line of %s allows it\n", games.uid, path))
	require.Contains(t, r.stderr, `hint: as root: add the line "allow user games web" to it, then run systemctl reload bakeryd`)
	may(member, "web")
	may(member, "db/1")
	mayNot(member, "lock", "backup-1", "lock", "-n", "-E", "5", "backup-1", "--", "true")
	mayNot(member, "lock", "backup-1", "hold", "backup-1")
	mayNot(games, "create", "web2", "create", "web2")
	mayNot(games, "request", "web", "request", "web")
	mayNot(games, "remove", "backup-1", "rm", "backup-1")
	mayNot(games, "evict", "", "evict", "1", "--yes")
	for _, args := range [][]string{{"status"}, {"locks"}, {"hosts"}, {"events"}, {"status", "--json"}} {
		r, _ := games.ctl(h, args...)
		require.Zero(t, r.code, "every user may read: %s", r.stderr)
	}
	r, _ = outside.ctl(h, "status")
	require.Equal(t, 69, r.code, "without the group the socket cannot be opened: %s", r.stderr)
	require.Zero(t, h.ctl("rm", "backup-1").code, "root may do everything")

	// A command holds its lock by a FIFO, which other users cannot open or end.
	end := games.holder(h, "backup-2")
	r, _ = member.ctl(h, "status", "--json")
	require.Zero(t, r.code)
	fifos, err := filepath.Glob(filepath.Join(h.dir, "*.fifo"))
	require.NoError(t, err)
	require.Len(t, fifos, 1)
	out, err := member.command(h, "sh", "-c", `exec 3<>"$1"`, "sh", fifos[0]).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "Permission denied")
	session := strings.TrimSuffix(fifos[0][strings.LastIndex(fifos[0], "-")+1:], ".fifo")
	token := h.report("backup-2").Holders[0].Token
	thief := member.command(h, h.programs.bakeryctl, "value", "set", "mine")
	thief.Env = append(thief.Environ(), "BAKERY_SOCKET="+h.socket, "BAKERY_SESSION="+session, fmt.Sprint("BAKERY_TOKEN=", token), "BAKERY_LOCK=backup-2")
	out, err = thief.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 77, thief.ProcessState.ExitCode(), "%s", out)
	require.Contains(t, string(out), "is another user's")
	require.NoError(t, end())

	h.free("backup-2")
}

// TestPolicy_SIGHUP_ReloadsIt: holds stay, and an invalid file changes nothing. Holds and places
// survive a restart.
func TestPolicy_SIGHUP_ReloadsIt(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	path := s.policy(t, "# none\n")
	h := s.host(1, "--policy-file", path)
	h.open()
	games := named(t, "games", admitted)
	code := func() int {
		t.Helper()
		r, _ := games.ctl(h, "lock", "-w", "10", "x", "--", "true")
		return r.code
	}
	reload := func(text, logged string) {
		t.Helper()
		s.policy(t, text)
		n := strings.Count(h.said(), logged)
		h.signal(syscall.SIGHUP)
		eventually(t, logged, func() bool { return strings.Count(h.said(), logged) > n })
	}
	require.Equal(t, 77, code())
	reload("allow user games x y\n", "policy in force")
	require.Equal(t, 0, code())
	end := games.holder(h, "y")
	reload("allow user games [\n", "the previous one stays in force")
	require.Contains(t, h.said(), path+`:1: \"[\": there are no sets of characters`)
	require.Equal(t, 0, code())
	require.NoError(t, os.Chmod(path, 0o666))
	h.signal(syscall.SIGHUP)
	eventually(t, "a file that others can write to is refused", func() bool { return strings.Contains(h.said(), "has mode 0666, so others can write to it") })
	require.NoError(t, os.Chmod(path, 0o644))
	reload("allow user daemon x\n", "policy in force")
	require.Equal(t, 77, code())

	before := h.report("y").Holders[0].Token
	h.signal(syscall.SIGTERM)
	h.exits(0)
	h.up()
	h.open()
	eventually(t, "the hold is kept, by a user that may not take it now", func() bool {
		l := h.report("y")
		return len(l.Holders) == 1 && l.Holders[0].Token == before
	})
	require.NoError(t, end())
	h.free("y")
	r, _ := games.ctl(h, "lock", "y", "--", "true")
	require.Equal(t, 77, r.code, r.stderr)
}

// TestWrongPolicyFile: a bakeryd that starts with an invalid file keeps its holds, and grants no
// other user than root a lock until the file is fixed.
func TestWrongPolicyFile(t *testing.T) {
	t.Parallel()
	s := briefSpace(t)
	path := s.policy(t, "allow user games *\n")
	h := s.machine("1", "--policy-file", path)
	h.up()
	h.open()
	games := named(t, "games", admitted)
	end := games.holder(h, "held")
	token := h.report("held").Holders[0].Token
	for text, message := range map[string]string{
		"deny user games x\n":      `:1: unknown word \"deny\": want allow user NAME PATTERN..., or allow group NAME PATTERN...`,
		"\nallow group staff \xff": `:2: \"allow group staff \\xff\": not UTF-8: save it as that`,
		"":                         "no such file or directory",
	} {
		s.policy(t, text)
		if text == "" {
			require.NoError(t, os.Remove(path))
		}
		h.signal(syscall.SIGTERM)
		h.exits(0)
		h.up()
		h.open()
		require.Contains(t, h.said(), "only root and bakeryd's own user may take locks until")
		require.Contains(t, h.said(), message)
		eventually(t, "the hold is kept", func() bool {
			l := h.report("held")
			return len(l.Holders) == 1 && l.Holders[0].Token == token
		})
		r, _ := games.ctl(h, "lock", "x", "--", "true")
		require.Equal(t, 77, r.code, r.stderr)
		require.Zero(t, h.lock("x", "--", "true").code)
	}
	require.NoError(t, end())
	s.policy(t, "allow user games *\n")
	h.signal(syscall.SIGHUP)
	eventually(t, "the fixed policy is in force", func() bool {
		r, _ := games.ctl(h, "lock", "x", "--", "true")
		return r.code == 0
	})
}

// TestWithoutAPolicy: any user that can open the socket may take any lock; only root may remove and
// evict. bakeryd survives SIGHUP.
func TestWithoutAPolicy(t *testing.T) {
	t.Parallel()
	s := briefSpace(t)
	h := s.host(1)
	h.open()
	h.signal(syscall.SIGHUP)
	eventually(t, "bakeryd to log the SIGHUP", func() bool { return strings.Contains(h.said(), "SIGHUP ignored") })
	games := named(t, "games", admitted)
	r, _ := games.ctl(h, "lock", "x", "--", "true")
	require.Zero(t, r.code, r.stderr)
	for _, args := range [][]string{{"rm", "x"}, {"evict", "1", "--yes"}, {"bench", "--duration", "100ms"}} {
		r, _ := games.ctl(h, args...)
		require.Equal(t, 77, r.code, "%q: %s", args, r.stderr)
		require.Contains(t, r.stderr, "only root and the user of bakeryd may\nhint: run it as root\n")
	}
	require.NotContains(t, h.ctl("locks").stdout, "bench", "no lock is created that the user could not remove")
	require.Zero(t, h.ctl("rm", "x").code)
}

// TestBakerydOfAnotherUser: bakeryd's own user may do everything, like root.
func TestBakerydOfAnotherUser(t *testing.T) {
	t.Parallel()
	s := briefSpace(t)
	games, other := named(t, "games", admitted), named(t, "daemon", admitted)
	h := s.machine("1")
	h.wrap = []string{"setpriv", "--reuid", "games", "--regid", strconv.Itoa(admitted), "--clear-groups"}
	require.NoError(t, os.Chmod(base, 0o711))
	require.NoError(t, os.Chmod(memory, 0o755))
	require.NoError(t, os.Chown(h.dir, int(games.uid), admitted))
	require.NoError(t, os.Chmod(h.dir, 0o755))
	require.NoError(t, os.Chown(h.dev, int(games.uid), -1))
	h.up()
	require.NoError(t, os.Chown(h.socket, -1, admitted))
	r, _ := other.ctl(h, "lock", "--close", "x", "--", "true")
	require.Zero(t, r.code, r.stderr)
	r, _ = other.ctl(h, "rm", "x")
	require.Equal(t, 77, r.code, r.stderr)
	r, _ = games.ctl(h, "rm", "x")
	require.Zero(t, r.code, r.stderr)
	require.NoError(t, os.Chown(h.dev, 0, -1))
}

// TestGoClientIsRefused on a link, which stays usable.
func TestGoClientIsRefused(t *testing.T) {
	t.Parallel()
	s := briefSpace(t)
	h := s.host(1, "--policy-file", s.policy(t, "allow user games x\n"))
	h.open()
	games := named(t, "games", admitted)
	r, _ := games.ctl(h, "stress", "--backend", "daemon", "--workers", "2", "--iterations", "3", "--name", "x")
	require.Zero(t, r.code, r.stderr)
	r, _ = games.ctl(h, "stress", "--backend", "daemon", "--workers", "2", "--iterations", "3", "--name", "y")
	require.Equal(t, 77, r.code, r.stderr)
	// Root of a user namespace is the user that created it: uid 0 there is another uid here.
	cmd := games.command(h, "unshare", "--user", "--map-root-user", "sh", "-c", `id -u; exec "$@"`, "sh",
		h.programs.bakeryctl, "lock", "--socket", h.socket, "y", "--", "true")
	out, err := cmd.CombinedOutput()
	require.Equal(t, 77, cmd.ProcessState.ExitCode(), "%v: %s", err, out)
	require.Contains(t, string(out), fmt.Sprintf("0\nbakeryctl: lock \"y\": user games (uid %d) may not lock", games.uid))
	_, err = h.client().Lock(t.Context(), "y", client.Options{NonBlock: true})
	require.NoError(t, err, "root may do everything")
}

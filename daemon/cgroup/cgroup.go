// Package cgroup creates a control group (version 2) for a command, and kills all processes in
// it, whatever they closed, executed or forked. It knows cgroups(7) and where they are mounted.
// It never knows locks or why a command must stop. Begin with Of and Make.
package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/process"
)

// ErrNone is returned when a process is in no visible group of version 2. A hybrid hierarchy has
// one, usually mounted on /sys/fs/cgroup/unified.
var ErrNone = errors.New("no cgroup of version 2")

// Group is a control group of a command. A nil Group has no members.
type Group struct {
	Dir string
}

// Parents returns the directories that show the version 2 group of a process. The group of a
// command is made below one of them, so that it stays in the tree of its unit or session.
func Parents(pid int) ([]string, error) {
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parents(string(mounts), string(groups))
}

const prefix = "bakeryctl-"

// Wrapper is a process whose command gets a group, by its number in its own pid namespace.
type Wrapper struct {
	process.ID
	Namespace uint64 // inode number of the pid namespace
	Session   string // first digits of the id in its request to bakeryd; empty: none
}

// Name returns the name of the group for the wrapper's command.
func (w Wrapper) Name() string {
	name := fmt.Sprintf("%s%d-%d-%d", prefix, w.PID, w.Started, w.Namespace)
	if w.Session != "" {
		name += "-" + w.Session
	}
	return name
}

// Named is the inverse of Name.
func Named(name string) (w Wrapper, ok bool) {
	if !strings.HasPrefix(name, prefix) {
		return w, false
	}
	n, _ := fmt.Sscanf(name, prefix+"%d-%d-%d-%s", &w.PID, &w.Started, &w.Namespace, &w.Session)
	return w, n >= 3 && w.Name() == name
}

// Of returns the groups of the command that a process, in whatever pid namespace it is, runs under a
// session: one below each directory that shows the process's own group, whether they exist or not.
// The process may run other commands at the same time, or execute another program that does.
func Of(pid int, session string) (groups []*Group, err error) {
	const digits = 8
	w := Wrapper{Session: session[:min(digits, len(session))]}
	dirs, err := Parents(pid)
	if err == nil {
		w.ID, err = process.Of(pid)
	}
	if err == nil {
		w.PID, w.Namespace, err = process.Innermost(pid)
	}
	for _, dir := range dirs {
		groups = append(groups, &Group{Dir: filepath.Join(dir, w.Name())})
	}
	return groups, err
}

// Make creates the first of the groups of a command that it can, and removes the groups that others
// have left next to it. An existing group is no error. The arguments are the results of Of.
func Make(groups []*Group, err error) (*Group, error) {
	if len(groups) == 0 {
		return nil, cmp.Or(err, ErrNone)
	}
	for _, g := range groups {
		prune(filepath.Dir(g.Dir))
		if err = os.Mkdir(g.Dir, 0o755); err == nil {
			err = os.Chmod(g.Dir, 0o755) // bakeryd.service has UMask=0077, but users may look at it
		}
		if err == nil || errors.Is(err, fs.ErrExist) {
			return g, nil
		}
	}
	return nil, err
}

// prune removes the empty groups of wrappers of this pid namespace that have ended. It keeps the
// group of a running wrapper, which may be about to start its command there.
func prune(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, entry := range entries {
		w, ok := Named(entry.Name())
		if !ok || w.Alive() {
			continue
		}
		if _, here, err := process.Innermost(os.Getpid()); err == nil && w.Namespace == here {
			(&Group{Dir: filepath.Join(parent, entry.Name())}).Remove()
		}
	}
}

// Add moves a process into the group.
func (g *Group) Add(pid int) error {
	return g.write("cgroup.procs", strconv.Itoa(pid))
}

// AllowKill allows a user to kill all processes in the group, which may run as other users. It
// allows no other use of the group.
func (g *Group) AllowKill(uid int) error {
	err := os.Chown(filepath.Join(g.Dir, killFile), uid, -1)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // Linux before 5.14
	}
	return err
}

// Remove removes the group if it is empty, with the empty groups below it.
func (g *Group) Remove() {
	if g == nil || unix.Rmdir(g.Dir) == nil || g.Populated() {
		return // usually nothing is below, and the kernel refuses if a process is in it
	}
	entries, _ := os.ReadDir(g.Dir)
	for _, entry := range entries {
		if entry.IsDir() {
			(&Group{Dir: filepath.Join(g.Dir, entry.Name())}).Remove()
		}
	}
	_ = unix.Rmdir(g.Dir)
}

// Exists reports whether the group exists.
func (g *Group) Exists() bool {
	_, err := os.Stat(g.Dir)
	return err == nil
}

// CheckKill returns an error if this process may not kill the group: cgroups may be mounted
// read-only here, or another user may own the group.
func (g *Group) CheckKill() error {
	err := unix.Access(filepath.Join(g.Dir, killFile), unix.W_OK)
	if errors.Is(err, fs.ErrNotExist) {
		err = unix.Access(filepath.Join(g.Dir, "cgroup.freeze"), unix.W_OK)
	}
	return err
}

// CheckMake returns an error if this process may not create the group. If another process creates
// it, this one may then not be able to kill it, for example where cgroups are mounted read-only.
func (g *Group) CheckMake() error {
	if err := unix.Access(filepath.Dir(g.Dir), unix.W_OK); err != nil {
		return fmt.Errorf("no cgroup may be made in %s: %w", filepath.Dir(g.Dir), err)
	}
	return nil
}

// Populated reports whether a process is in the group or below it. An unreadable group counts as
// removed.
func (g *Group) Populated() bool {
	if g == nil {
		return false
	}
	text, err := os.ReadFile(filepath.Join(g.Dir, "cgroup.events"))
	return err == nil && slices.Contains(strings.Split(string(text), "\n"), "populated 1")
}

// Members returns the processes in the group and below it that have a number in this pid
// namespace.
func (g *Group) Members() []process.ID {
	if g == nil {
		return nil
	}
	var found []process.ID
	for _, pid := range g.pids() {
		if id, err := process.Of(pid); err == nil {
			found = append(found, id)
		}
	}
	// A number that another process took between the two reads is no longer in the group.
	still := g.pids()
	return slices.DeleteFunc(found, func(id process.ID) bool { return !slices.Contains(still, id.PID) })
}

// Kill sends SIGKILL to every process in the group and below it, including those that are being
// forked.
func (g *Group) Kill() error {
	if g == nil {
		return nil
	}
	err := g.write(killFile, "1")
	if errors.Is(err, fs.ErrNotExist) {
		err = g.freezeAndKill()
	}
	return err
}

// killFile is the control file that kills a group. Linux before 5.14 does not have it; a test
// simulates that.
var killFile = "cgroup.kill"

// write writes a control file. It opens the file without O_CREATE, because the kernel refuses
// that with EACCES, which would hide that there is no such file.
func (g *Group) write(file, text string) error {
	f, err := os.OpenFile(filepath.Join(g.Dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// freezeAndKill replaces killFile on Linux before 5.14. A frozen process does not fork, but dies.
// If a group cannot be frozen (before 5.2), the caller repeats it until the group is empty.
func (g *Group) freezeAndKill() error {
	err := g.write("cgroup.freeze", "1")
	if errors.Is(err, fs.ErrNotExist) { // the group may be removed
		err = nil
	}
	return errors.Join(err, process.SignalAll(g.Members(), syscall.SIGKILL))
}

// pids returns the numbers of the processes in the group and below it.
func (g *Group) pids() []int {
	var found []int
	_ = filepath.WalkDir(g.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil // it was just removed, or is of no interest
		}
		text, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for line := range strings.Lines(string(text)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
				found = append(found, pid)
			}
		}
		return nil
	})
	return found
}

// parents returns the directories of the version 2 group in groups, in the format of
// /proc/PID/cgroup, according to mounts, in the format of /proc/PID/mountinfo.
func parents(mounts, groups string) ([]string, error) {
	_, rest, found := strings.Cut("\n"+groups, "\n0::")
	group, _, _ := strings.Cut(rest, "\n")
	if !found || !filepath.IsLocal("."+group) {
		return nil, fmt.Errorf("%w: the process is in none that is visible here", ErrNone)
	}
	var dirs []string
	for line := range strings.Lines(mounts) {
		where, what, _ := strings.Cut(line, " - ")
		f := strings.Fields(where)
		if !strings.HasPrefix(what, "cgroup2 ") || len(f) < 5 {
			continue
		}
		// A mount may show only a part of the hierarchy.
		root, dir := unescapeMount(f[3]), unescapeMount(f[4])
		if below, err := filepath.Rel(root, group); err == nil && filepath.IsLocal(below) {
			dirs = append(dirs, filepath.Join(dir, below))
		}
	}
	if len(dirs) == 0 {
		return nil, fmt.Errorf("%w: none is mounted here", ErrNone)
	}
	return dirs, nil
}

// unescapeMount reverts the kernel's escaping of blanks and backslashes.
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s // the replacer below is a large table
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

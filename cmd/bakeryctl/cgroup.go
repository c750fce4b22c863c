package main

import (
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

// cgroup is a control group (version 2) of the command's own: whoever starts in it can be killed at one blow,
// whatever it does to its parents, sessions and process groups. Those that were moved elsewhere, by sudo for
// one, are still found as descendants. A nil cgroup has no members.
type cgroup struct {
	dir string
	fd  int // of the directory
}

// place is where a group of ours can be made.
type place struct {
	groups  string   // those that this process was in, as in /proc/PID/cgroup
	parents []string // the directories that show the one of version 2
	name    string
}

// findPlace looks for a place below our own group. It returns nil if there is none, and make may still fail: it takes
// a kernel, a mount and rights that not everybody has, and without a group there are still the descendants.
func findPlace() *place {
	groups, err := os.ReadFile(ownGroups)
	if err != nil {
		return nil
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	parents, err := cgroupDirs(string(mounts), string(groups))
	if err != nil {
		return nil
	}
	self, err := process.Of(os.Getpid())
	if err != nil {
		return nil
	}
	for _, parent := range parents {
		pruneCgroups(parent)
	}
	return &place{groups: string(groups), parents: parents, name: cgroupName(self)}
}

const ownGroups = "/proc/self/cgroup"

// make makes a group, or returns nil. The place may have been found hours ago, before we were moved to another group.
func (p *place) make() *cgroup {
	if p == nil {
		return nil
	}
	if groups, err := os.ReadFile(ownGroups); err != nil || string(groups) != p.groups {
		if p = findPlace(); p == nil {
			return nil
		}
	}
	for _, parent := range p.parents {
		dir := filepath.Join(parent, p.name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			continue
		}
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			_ = os.Remove(dir) // if that fails it is pruned some day
			continue
		}
		return &cgroup{dir: dir, fd: fd}
	}
	return nil
}

// remove removes the group once it is empty; before that it does nothing, and leaves it to be pruned.
func (g *cgroup) remove() {
	if g != nil {
		_ = unix.Close(g.fd)
		removeCgroup(g.dir)
	}
}

// empty says whether nobody is left in the group or below it.
func (g *cgroup) empty() bool { return g == nil || !populated(g.dir) }

// members returns handles of everybody in the group and below. They are to be released.
func (g *cgroup) members() map[int]*os.Process {
	if g == nil {
		return nil
	}
	handles := make(map[int]*os.Process)
	for _, pid := range g.pids() {
		if handle, err := os.FindProcess(pid); err == nil {
			handles[pid] = handle
		}
	}
	// Only now that the handles stand for one process each the numbers say something: one that had gone to a
	// stranger meanwhile is not in the group any more.
	still := g.pids()
	for pid, handle := range handles {
		if !slices.Contains(still, pid) {
			_ = handle.Release()
			delete(handles, pid)
		}
	}
	return handles
}

// kill kills everybody in the group and below, those included that are forked just now.
func (g *cgroup) kill() {
	if g != nil && os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0) != nil {
		g.freezeAndKill()
	}
}

// freezeAndKill is for a Linux before 5.14: who is frozen forks no more, but dies.
func (g *cgroup) freezeAndKill() {
	_ = os.WriteFile(filepath.Join(g.dir, "cgroup.freeze"), []byte("1"), 0)
	for _, handle := range g.members() {
		_ = handle.Signal(syscall.SIGKILL)
		_ = handle.Release()
	}
}

// pids returns the numbers of those in the group and below, as far as they have one in our pid namespace.
func (g *cgroup) pids() []int {
	var found []int
	_ = filepath.WalkDir(g.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil // it has just been removed, or is of no interest
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

// populated says whether a process is in the group or below. A group that cannot be looked at has gone.
func populated(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
	return err == nil && slices.Contains(strings.Split(string(text), "\n"), "populated 1")
}

// removeCgroup removes an empty group with the empty groups below it.
func removeCgroup(dir string) {
	if unix.Rmdir(dir) == nil || populated(dir) {
		return // as a rule nothing is below, and the kernel refuses if somebody is in it
	}
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if entry.IsDir() {
			removeCgroup(filepath.Join(dir, entry.Name()))
		}
	}
	_ = unix.Rmdir(dir)
}

const cgroupPrefix = "bakeryctl-"

// cgroupName says whose group it is.
func cgroupName(owner process.ID) string {
	return fmt.Sprintf("%s%d-%d", cgroupPrefix, owner.PID, owner.Started)
}

// cgroupOwner is the inverse of cgroupName.
func cgroupOwner(name string) (owner process.ID, ok bool) {
	if !strings.HasPrefix(name, cgroupPrefix) {
		return process.ID{}, false // the scan below takes longer
	}
	_, err := fmt.Sscanf(name, cgroupPrefix+"%d-%d", &owner.PID, &owner.Started)
	return owner, err == nil && cgroupName(owner) == name
}

// pruneCgroups removes what was left by processes that were killed, or whose command left others running. A group
// of a process that lives is left alone, also if it is empty: it may be about to start its command there.
func pruneCgroups(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, entry := range entries {
		if owner, ok := cgroupOwner(entry.Name()); ok && !owner.Alive() {
			removeCgroup(filepath.Join(parent, entry.Name()))
		}
	}
}

// cgroupDirs finds the directories of the version 2 group in groups, as in /proc/PID/cgroup, by the mounts, as
// in /proc/PID/mountinfo.
func cgroupDirs(mounts, groups string) ([]string, error) {
	group, found := "", false
	for line := range strings.Lines(groups) {
		if !found {
			group, found = strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		}
	}
	if !found || !filepath.IsLocal("."+group) {
		return nil, errors.New("this process is in no cgroup of version 2 that it can see")
	}
	var dirs []string
	for line := range strings.Lines(mounts) {
		where, what, _ := strings.Cut(line, " - ")
		f := strings.Fields(where)
		if !strings.HasPrefix(what, "cgroup2 ") || len(f) < 5 {
			continue
		}
		// A mount may show a part of the hierarchy only.
		root, dir := unescapeMount(f[3]), unescapeMount(f[4])
		if below, err := filepath.Rel(root, group); err == nil && filepath.IsLocal(below) {
			dirs = append(dirs, filepath.Join(dir, below))
		}
	}
	return dirs, nil
}

// unescapeMount undoes what the kernel does to blanks and backslashes.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

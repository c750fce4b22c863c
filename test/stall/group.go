package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bakeryd/bakeryd/daemon/cgroup"
)

// group is a cgroup of version 2. The kernel freezes all that is in it and below it. A process
// that was stopped by a signal stays stopped when the group is thawed.
type group struct {
	dir  string
	file *os.File
}

func newGroup() (*group, error) {
	parents, err := cgroup.Parents(os.Getpid())
	if err != nil {
		return nil, err
	}
	err = cgroup.ErrNone
	for _, parent := range parents {
		g := &group{dir: filepath.Join(parent, fmt.Sprintf("stall-%d", os.Getpid()))}
		if err = os.Mkdir(g.dir, 0o755); err != nil {
			continue
		}
		if g.file, err = os.Open(g.dir); err == nil {
			if err = g.resume(); err == nil {
				return g, nil
			}
		}
		g.close()
	}
	return nil, err
}

func (g *group) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(g.file.Fd())}
}

func (g *group) stop() error   { return g.freeze("1") }
func (g *group) resume() error { return g.freeze("0") }

func (g *group) freeze(is string) error {
	return os.WriteFile(filepath.Join(g.dir, "cgroup.freeze"), []byte(is), 0)
}

// close removes the group and empty ones below it. Processes that still run in it move to the
// parent.
func (g *group) close() {
	g.file.Close()
	members, _ := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	for pid := range strings.FieldsSeq(string(members)) {
		_ = os.WriteFile(filepath.Join(filepath.Dir(g.dir), "cgroup.procs"), []byte(pid), 0)
	}
	(&cgroup.Group{Dir: g.dir}).Remove()
}

// frozen reports whether all processes of the group are frozen.
func (g *group) frozen() (bool, error) {
	events, err := os.ReadFile(filepath.Join(g.dir, "cgroup.events"))
	if err != nil {
		return false, errors.Join(errors.New("read the state of the cgroup"), err)
	}
	return strings.Contains(string(events), "frozen 1"), nil
}

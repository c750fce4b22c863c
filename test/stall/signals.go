package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/process"
)

// descendants are all processes below this one, which adopts their orphans.
type descendants struct {
	stopped []process.ID // by stop
}

func newDescendants() (*descendants, error) {
	return &descendants{}, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

func (*descendants) attributes() *syscall.SysProcAttr { return nil }
func (*descendants) close()                           {}

// stop stops parents before their children, so that a test is stopped before the process that it
// may be about to stop. A process that a test has stopped is skipped, because resume would continue
// it.
func (d *descendants) stop() error {
	seen := map[process.ID]bool{}
	for more := true; more; {
		more = false
		table, err := process.Table()
		if err != nil {
			return err
		}
		for _, p := range process.Descendants(table, []int{os.Getpid()}, process.Stat.Ended) {
			if seen[p.ID] {
				continue
			}
			seen[p.ID], more = true, true
			if p.State != 'T' && p.Signal(unix.SIGSTOP) == nil {
				d.stopped = append(d.stopped, p.ID)
			}
		}
	}
	return nil
}

func (d *descendants) resume() error {
	for _, id := range d.stopped {
		_ = id.Signal(unix.SIGCONT) // it may have been killed
	}
	d.stopped = nil
	return nil
}

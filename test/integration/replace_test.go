//go:build integration

package integration

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/report"
)

// spare is a blank disk, in addition to those of a lockspace on several.
type spare struct {
	*faultyPath
	image string
}

// spares returns blank disks.
func (s *space) spares(n int) (all []spare) {
	s.t.Helper()
	for i := range n {
		image := s.image(members + i)
		require.NoError(s.t, os.WriteFile(image, make([]byte, imageSize), 0o600))
		s.setGuard(image, s.guard)
		all = append(all, spare{s.pathTo(image), image})
	}
	return all
}

// know gives hosts that are down a path to each spare disk. It returns the paths of each host.
func know(hosts []*host, spares []spare) (devices [][]string) {
	for _, h := range hosts {
		var own []string
		for _, d := range spares {
			own = append(own, loopOver(h.t, d.file, h.s.sector))
		}
		h.more = append(h.more, own...)
		devices = append(devices, own)
	}
	return devices
}

// knowing returns n hosts that are up and have a path to each spare disk, and their paths.
func (s *space) knowing(n int, spares []spare) (hosts []*host, devices [][]string) {
	s.t.Helper()
	for id := 1; id <= n; id++ {
		hosts = append(hosts, s.machine(fmt.Sprint(id)))
	}
	devices = know(hosts, spares)
	for _, h := range hosts {
		h.start()
	}
	for _, h := range hosts {
		h.ready()
	}
	return hosts, devices
}

// vacant reports whether a position has no disk.
func vacant(d report.Disk) bool { return d.State == "vacant" }

// replaceDisk replaces a member. From then on its file is another one.
func (h *host) replaceDisk(member int, dev, image string) {
	h.t.Helper()
	r := h.ctl("disk", "replace", fmt.Sprint(member+1), dev)
	require.Zero(h.t, r.code, r.stderr)
	require.Contains(h.t, r.stdout, fmt.Sprintf("replaced disk %d ", member+1))
	h.s.moved(member, image)
}

// moved notes that a member is in another file.
func (s *space) moved(member int, image string) {
	if member == 0 {
		s.file = image
	} else {
		s.more[member-1] = image
	}
}

// clean checks the lockspace by bakeryctl check.
func (s *space) clean() {
	s.t.Helper()
	argv := []string{plain.bakeryctl, "check"}
	for _, file := range s.files() {
		argv = append(argv, loopOver(s.t, file, s.sector))
	}
	r := execute(s.t, argv...)
	require.Zero(s.t, r.code, "%s%s", r.stdout, r.stderr)
	require.Regexp(s.t, "^clean: ", r.stdout)
}

// TestReplace_UnderLoad_NothingIsLost replaces a disk that works and one that fails. Then the last of the
// first disks fails: the new ones are the majority.
func TestReplace_UnderLoad_NothingIsLost(t *testing.T) {
	t.Parallel()
	s, paths := brokenSpace(t)
	spares := s.spares(2)
	hosts, devices := s.knowing(3, spares)
	c := s.traffic(hosts...)
	recover := func(member int) {
		t.Helper()
		for _, h := range hosts {
			h.recovers(member)
		}
		c.progress()
	}
	hosts[0].replaceDisk(1, devices[0][0], spares[0].image)
	recover(1)
	paths[1].trouble("fail", "all")
	c.progress()

	paths[0].trouble("fail", "all")
	for _, h := range hosts {
		h.loses(0, "input/output error")
	}
	hosts[1].replaceDisk(0, devices[1][1], spares[1].image)
	recover(0)

	paths[2].trouble("fail", "all")
	for _, h := range hosts {
		h.loses(2, "input/output error")
	}
	c.progressFor(2 * briefLease)
	paths[2].repair()
	recover(2)
	require.Zero(t, hosts[2].lock("-w", "60", "new", "--", "true").code)
	c.unharmed()
	s.clean()
}

// TestReplace_KilledWhileItCopies_NextRunCompletes: the position is vacant meanwhile, and hosts continue.
func TestReplace_KilledWhileItCopies_NextRunCompletes(t *testing.T) {
	t.Parallel()
	s, _ := brokenSpace(t)
	spares := s.spares(1)
	hosts, devices := s.knowing(2, spares)
	c := s.traffic(hosts...)
	spares[0].trouble("hang", "writes")
	replacing := launch(t, hosts[0].dir, plain.bakeryctl, "--socket", hosts[0].socket, "disk", "replace", "3", devices[0][0])
	for _, h := range hosts {
		h.shows(2, "is vacant", vacant)
	}
	eventually(t, "it copies", func() bool { return strings.Contains(replacing.said(), "copying the lockspace") })
	replacing.signal(syscall.SIGKILL)
	c.progressFor(2 * briefLease)
	spares[0].repair()
	eventually(t, "its request has returned", func() bool { return !replacing.running() })
	for _, h := range hosts {
		h.shows(2, "is vacant", vacant)
	}
	hosts[1].replaceDisk(2, devices[1][0], spares[0].image)
	for _, h := range hosts {
		h.recovers(2)
	}
	c.unharmed()
	s.clean()
}

// TestReplace_Interrupted_SaysHowToContinue ends the command with a signal while it copies.
func TestReplace_Interrupted_SaysHowToContinue(t *testing.T) {
	t.Parallel()
	s, _ := brokenSpace(t)
	spares := s.spares(1)
	hosts, devices := s.knowing(1, spares)
	c := s.traffic(hosts...)
	spares[0].trouble("delay 300ms", "writes")
	replacing := launch(t, hosts[0].dir, plain.bakeryctl, "--socket", hosts[0].socket, "disk", "replace", "3", devices[0][0])
	eventually(t, "it copies", func() bool { return strings.Contains(replacing.said(), "copying the lockspace") })
	replacing.signal(syscall.SIGINT)
	replacing.exits(128 + int(syscall.SIGINT))
	require.Contains(t, replacing.said(), "works without disk 3")
	require.Contains(t, replacing.said(), "run the same command again")
	hosts[0].shows(2, "is vacant", vacant)
	spares[0].repair()
	hosts[0].replaceDisk(2, devices[0][0], spares[0].image)
	hosts[0].recovers(2)
	c.unharmed()
	s.clean()
}

//go:build libvirt

package libvirt

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/fusetest"
)

var web = domain{name: "web"}

func TestDomain_RunsOnOneHost(t *testing.T) {
	t.Parallel()
	l := newLab(t, web)
	a, b := l.hosts[1], l.hosts[2]
	a.virsh("start", "web").ok()
	b.virsh("start", "web").refused()

	// A domain that is paused has no lease.
	a.virsh("suspend", "web").ok()
	b.virsh("start", "web").ok()
	a.virsh("resume", "web").refused()
	require.Equal(t, "paused", a.state("web"))
	b.virsh("destroy", "web").ok()
	a.virsh("resume", "web").ok()
	b.virsh("start", "web").refused()

	saved := filepath.Join(l.dir, "saved")
	a.virsh("save", "web", saved).ok()
	b.virsh("start", "web").ok()
	a.virsh("restore", saved).refused()
	b.virsh("destroy", "web").ok()
	a.virsh("restore", saved).ok()
	b.virsh("start", "web").refused()

	a.virsh("destroy", "web").ok()
	b.virsh("start", "--paused", "web").ok() // registered, without a lease
	a.virsh("start", "web").ok()
	b.virsh("resume", "web").refused()
	b.virsh("destroy", "web").ok()
	b.virsh("start", "web").refused()

	a.shell("kill -9 " + a.pid("web"))
	eventually(t, "the lease of a killed domain is free", func() bool { return b.virsh("start", "web").err == nil })
	a.virsh("start", "web").refused()
}

func TestDomain_Migrates_WithItsLease(t *testing.T) {
	t.Parallel()
	l := newLab(t, web)
	a, b := l.hosts[1], l.hosts[2]
	a.virsh("start", "web").ok()
	way := filepath.Join(l.dir, "way")
	require.NoError(t, os.Mkdir(way, 0o755))
	require.NoError(t, os.Chmod(way, 0o777)) // qemu creates a socket there
	a.virsh("migrate", "web", "--live", "--p2p", "--unsafe", "--desturi", "qemu+unix:///system?socket="+
		filepath.Join(l.dir, "libvirt-2", "libvirt-sock"), "--migrateuri", "unix://"+filepath.Join(way, "qemu")).ok()
	require.Equal(t, "shut off", a.state("web"))
	require.Equal(t, "running", b.state("web"))
	a.virsh("start", "web").refused()
	b.virsh("destroy", "web").ok()
	a.virsh("start", "web").ok()
	b.virsh("start", "web").refused()
}

func TestDomain_SharesItsDisk_ExcludesOthers(t *testing.T) {
	t.Parallel()
	l := newLab(t, domain{name: "read", shared: true}, domain{name: "write", disk: "read"})
	a, b := l.hosts[1], l.hosts[2]
	a.virsh("start", "read").ok()
	o := b.virsh("start", "write")
	require.Error(t, o.err)
	require.Contains(t, o.out, "Failed to acquire lock: Resource temporarily unavailable")
	b.virsh("start", "read").ok()
	b.virsh("destroy", "read").ok()
	a.virsh("destroy", "read").ok()
	b.virsh("start", "write").ok()
	a.virsh("start", "read").refused()
}

// TestCleanup_RemovesFreeLeasesOnly runs the script of the package that removes files of leases: it takes each
// lease, and removes the file under it.
func TestCleanup_RemovesFreeLeasesOnly(t *testing.T) {
	t.Parallel()
	spare := domain{name: "spare"}
	l := newLab(t, web, spare)
	a, b := l.hosts[1], l.hosts[2]
	files := func() int {
		found, err := filepath.Glob(filepath.Join(l.dir, "leases", "*"))
		require.NoError(t, err)
		return len(found) - 1 // one is the lockspace
	}
	a.virsh("start", "web").ok()
	a.virsh("start", "spare").ok()
	a.virsh("destroy", "spare").ok()
	require.Equal(t, 2, files())
	for _, h := range []*host{a, b} {
		h.shell("virt-sanlock-cleanup")
		require.Equal(t, 1, files())
	}
	b.virsh("start", "web").refused()
	b.virsh("start", "spare").ok() // with a new file
	a.virsh("start", "spare").refused()
	a.virsh("destroy", "web").ok()
	b.virsh("start", "web").ok()
}

func TestDisk_AttachedOnOneHost(t *testing.T) {
	t.Parallel()
	spare := domain{name: "spare"}
	l := newLab(t, web, spare)
	a, b := l.hosts[1], l.hosts[2]
	disk := filepath.Join(l.dir, "spare.img")
	a.virsh("start", "web").ok()
	b.virsh("start", "spare").ok()
	a.virsh("attach-disk", "web", disk, "vdb").refused()
	b.virsh("destroy", "spare").ok()
	a.virsh("attach-disk", "web", disk, "vdb").ok()
	b.virsh("start", "spare").refused()
	a.virsh("destroy", "web").ok()
	b.virsh("start", "spare").ok()
	b.virsh("start", "web").ok()
}

func TestRestart_DomainKeepsItsLease(t *testing.T) {
	t.Parallel()
	l := newLab(t, web)
	a, b := l.hosts[1], l.hosts[2]
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		a.virsh("start", "web").ok()
		pid := a.pid("web")
		a.stop("libvirtd", signal)
		a.stop("bakeryd", signal)
		a.restartBakeryd()
		a.startLibvirtd()
		require.Equal(t, "running", a.state("web"))
		require.Equal(t, pid, a.pid("web"))
		b.virsh("start", "web").refused()
		a.virsh("suspend", "web").ok()
		a.virsh("resume", "web").ok()
		b.virsh("start", "web").refused()
		a.virsh("destroy", "web").ok()
		eventually(t, "the lease of a destroyed domain is free", func() bool { return b.virsh("start", "web").err == nil })
		b.virsh("destroy", "web").ok()

		a.virsh("start", "web").ok()
		pid = a.pid("web")
		a.stop("bakeryd", signal)
		a.shell("kill -9 " + pid)
		a.restartBakeryd()
		eventually(t, "the lease of a domain that ended meanwhile is free", func() bool { return b.virsh("start", "web").err == nil })
		b.virsh("destroy", "web").ok()
	}
}

// TestRestart_AfterTheLease_DomainIsStopped: nothing stops the domain of a host without bakeryd and without a
// watchdog. The next bakeryd does, before it joins.
func TestRestart_AfterTheLease_DomainIsStopped(t *testing.T) {
	t.Parallel()
	l := newLab(t, web)
	a, b := l.hosts[1], l.hosts[2]
	a.virsh("start", "web").ok()
	a.stop("bakeryd", syscall.SIGKILL)
	eventually(t, "the domain starts on the other host", func() bool { return b.virsh("start", "web").err == nil })
	require.Equal(t, "running", a.state("web"))
	l.faults.Set(fusetest.State{Hang: fusetest.Trouble{Writes: true}}) // it cannot join
	a.startBakeryd()
	eventually(t, "the domain that lost its lease is stopped", func() bool { return a.state("web") == "shut off" })
	require.Equal(t, "running", b.state("web"))
}

func TestHost_Dies_OtherStartsTheDomain(t *testing.T) {
	t.Parallel()
	l := newLab(t, web)
	a, b := l.hosts[1], l.hosts[2]
	a.virsh("start", "web").ok()
	b.virsh("start", "web").refused()
	died := time.Now()
	a.die()
	eventually(t, "the domain of a dead host starts", func() bool { return b.virsh("start", "web").err == nil })
	t.Logf("measured: the domain started %v after its host died", time.Since(died).Round(100*time.Millisecond))
}

// TestDisk_Hangs_DomainsStop: qemu has ended, or is paused where the domain asks for that, when another host
// starts the domain. A domain that is not paused in time is killed, too.
func TestDisk_Hangs_DomainsStop(t *testing.T) {
	t.Parallel()
	domains := []domain{web, {name: "off", onFailure: "poweroff"}, {name: "hold", onFailure: "pause"}}
	l := newLab(t, domains...)
	a, b := l.hosts[1], l.hosts[2]
	pids := map[string]string{}
	for _, d := range domains {
		a.virsh("start", d.name).ok()
		pids[d.name] = a.pid(d.name)
	}
	l.faults.Set(fusetest.State{Hang: fusetest.All})
	eventually(t, "the domains start on the other host", func() bool { return b.virsh("start", "web").err == nil })
	require.True(t, a.ended(pids["web"]))
	require.True(t, a.ended(pids["off"]))
	hold := a.state("hold")
	t.Logf("measured: the domain that asked to be paused is %s", hold)
	require.Contains(t, []string{"paused", "shut off"}, hold)
	b.virsh("start", "off").ok()
	b.virsh("start", "hold").ok()

	l.faults.Repair()
	// The plug-in joins its lockspace when libvirtd starts, and never again.
	a.stop("libvirtd", syscall.SIGTERM)
	eventually(t, "the host is back", func() bool {
		_, err := a.output(live()...)
		return err == nil
	})
	a.startLibvirtd()
	if hold == "paused" {
		a.virsh("resume", "hold").refused()
		a.virsh("destroy", "hold").ok()
	}
	a.virsh("start", "web").refused()
	b.virsh("destroy", "web").ok()
	a.virsh("start", "web").ok()
}

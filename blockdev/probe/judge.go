package probe

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Findings rates a disk for hosts with the given lease. If programs with facts that sysfs does
// not have are installed, it runs them.
func (s Sys) Findings(ctx context.Context, d *Disk, lease time.Duration) []Finding {
	found := []Finding{d.kind(), d.medium(), d.cache()}
	if m := d.find(KindMultipath); m != nil {
		found = append(found, m.paths(), s.queueing(ctx, m, lease))
	}
	return append(found, d.sessions(lease)...)
}

// kind rates the kind of the device, and whether other hosts can reach it.
func (d *Disk) kind() Finding {
	f := Finding{ID: "kind", Verdict: OK, Detail: d.title()}
	switch {
	case d.Loop != nil:
		f.Verdict, f.Remedy = Warning, useBlock
		f.Detail = fmt.Sprintf("a loop device on %s: %s", d.Loop.File, onlyHere)
		if !d.Loop.DirectIO {
			f.Detail += "; it goes through this host's page cache"
			f.Remedy += "; losetup --direct-io=on passes the cache by"
		}
	case d.find(KindMemory) != nil:
		f.Verdict, f.Remedy = Unfit, useBlock
		f.Detail += ": it is kept in this machine's memory"
	case d.Kind == KindRAID:
		f.Verdict, f.Remedy = Warning, "use one of its members alone, or a clustered mirror of the storage's own"
		f.Detail += ": hosts that assemble it each for themselves do not agree on which member is current"
	case d.Kind == KindMapper:
		f.Verdict, f.Remedy = Warning, "make sure that every host maps the same blocks, without a cache, snapshot or thin pool between"
		f.Detail += ": each host runs device mapper on its own"
	case d.Kind == KindNetwork:
		f.Verdict, f.Remedy = Warning, "switch its client-side write-back cache off (rbd cache = false)"
		f.Detail += ": its client on this host may cache"
	case d.Kind == KindPartition:
		f.Detail += ": persistent reservations are of the whole disk, so fencing is too"
	}
	return f
}

// title describes a device in words.
func (d *Disk) title() string {
	named := func(what string) string {
		if d.Model != "" {
			what += " (" + d.Model + ")"
		}
		return what
	}
	switch d.Kind {
	case KindPartition:
		return named("a partition of " + d.Whole)
	case KindMultipath:
		return "multipath device " + d.Mapper.Name
	case KindMapper:
		kind, _, _ := strings.Cut(d.Mapper.UUID, "-")
		return strings.TrimSpace("device mapper " + kind + " " + d.Mapper.Name)
	case KindNVMe:
		return named("NVMe namespace " + d.Name)
	case KindVirtio:
		return named("virtio disk " + d.Name)
	case KindMemory:
		return "memory disk " + d.Name
	}
	return named(string(d.Kind) + " " + d.Name)
}

func (d *Disk) medium() Finding {
	f := Finding{ID: "medium", Verdict: OK}
	switch {
	case d.Rotational == nil:
		f.Verdict, f.Detail = Unknown, "sysfs does not show whether it rotates"
	case *d.Rotational:
		f.Detail = "it rotates, or says so: a write waits for the platter"
	default:
		f.Detail = "it does not rotate"
	}
	return f
}

// cache rates the cost of a durable write. All writes are made durable (O_DSYNC), whatever the
// cache.
func (d *Disk) cache() Finding {
	f := Finding{ID: "write-cache", Verdict: OK}
	switch {
	case d.WriteCache == "write through":
		f.Detail = "write through: every write is durable when it returns"
	case d.WriteCache == "write back" && d.FUA != nil && *d.FUA:
		f.Detail = "write back, with forced unit access: a durable write is one request"
	case d.WriteCache == "write back":
		f.Detail = "write back, without forced unit access: every durable write waits for a flush of the whole cache"
	default:
		f.Verdict, f.Detail = Unknown, "sysfs does not show whether there is a write cache"
		f.Remedy = "make sure that a write which was acknowledged survives a loss of power"
	}
	return f
}

// paths rates the number of paths to a multipath device.
func (d *Disk) paths() Finding {
	f := Finding{ID: "paths", Verdict: OK}
	var down []string
	for _, p := range d.Below {
		if p.State != "" && p.State != "running" && p.State != "live" {
			down = append(down, p.Name+" is "+p.State)
		}
	}
	n := len(d.Below)
	switch {
	case len(down) > 0:
		f.Verdict, f.Remedy = Warning, "see multipath -ll"
		f.Detail = fmt.Sprintf("%d paths, %d of them running: %s", n, n-len(down), strings.Join(down, ", "))
	case n < 2:
		f.Verdict, f.Remedy = Warning, "add a second path, or find out why it is missing: multipath -ll"
		f.Detail = fmt.Sprintf("%d path: with it, the host loses the lockspace", n)
	default:
		f.Detail = fmt.Sprintf("%d paths, all of them running", n)
	}
	return f
}

// pollingInterval is multipathd's default interval between checks of a path.
const pollingInterval = 5 * time.Second

// queueing rates the handling of requests when no path is left.
func (s Sys) queueing(ctx context.Context, d *Disk, lease time.Duration) Finding {
	f := Finding{ID: "multipath-queueing", Verdict: Unknown, Remedy: "look for queue_if_no_path in multipath -ll"}
	retries := max(1, int(lease/2/pollingInterval))
	limit := fmt.Sprintf("set no_path_retry in multipath.conf to fail, or to a number: %d at %v a check stays within half the lease of %v",
		retries, pollingInterval, lease)
	out, err := s.Run(ctx, "dmsetup", "table", d.Mapper.Name)
	queues, known := parseQueueing(string(out))
	switch {
	case errors.Is(err, exec.ErrNotFound):
		f.Detail = "dmsetup is not installed, so it is not known what happens when no path is left"
		f.Remedy = "install dmsetup, or " + f.Remedy
	case err != nil:
		f.Detail = fmt.Sprintf("dmsetup table %s: %v", d.Mapper.Name, err)
		f.Remedy += "; it takes root"
	case !known:
		f.Detail = fmt.Sprintf("dmsetup table %s shows no multipath target", d.Mapper.Name)
	case queues:
		f.Verdict, f.Remedy = Warning, limit
		f.Detail = "when no path is left requests are queued (queue_if_no_path), without end unless multipathd ends it: " +
			"a host that hangs beyond its lease cannot rejoin before they return, which is worse than an error"
	default:
		f.Verdict, f.Remedy, f.Detail = OK, "", "when no path is left requests fail immediately"
	}
	return f
}

// parseQueueing reports whether a device-mapper table "START LENGTH multipath N FEATURE..."
// queues.
func parseQueueing(table string) (queues, known bool) {
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[2] != "multipath" {
			continue
		}
		known = true
		var n int
		if _, err := fmt.Sscan(fields[3], &n); err != nil || n < 0 || n > len(fields)-4 {
			return false, false
		}
		for _, feature := range fields[4 : 4+n] {
			queues = queues || feature == "queue_if_no_path"
		}
	}
	return queues, known
}

// sessions compares the time that requests hang on a lost connection with the lease. It returns nil
// if there is no connection. If other paths exist, they must be tried well within a lease. If
// none exists, a request may wait for its own path to return, but must not outlast the lease.
func (d *Disk) sessions(lease time.Duration) []Finding {
	var worst *Session
	for _, x := range d.all() {
		if x.Session != nil && x.Session.outlasts(worst) {
			worst = x.Session
		}
	}
	if worst == nil {
		return nil
	}
	f := Finding{ID: "session-timeout", Verdict: OK}
	limit, advice, why := lease-1, lease/2, fmt.Sprintf("the lease of %v", lease)
	if d.find(KindMultipath) != nil {
		limit, advice, why = lease/4, lease/6, fmt.Sprintf("a quarter of the lease of %v, after which another path should have been tried", lease)
	}
	wait, forever := time.Duration(worst.HoldsSec)*time.Second, worst.HoldsSec < 0
	held := fmt.Sprintf("for %v", wait)
	if forever {
		held = "without end"
	}
	f.Detail = fmt.Sprintf("%s %s: when its connection is lost, requests hang %s before they fail", worst.Transport, worst.Name, held)
	if forever || wait > limit {
		f.Verdict = Warning
		f.Detail += ", longer than " + why + ": an error in time is better than a request that may yet land"
		f.Remedy = fmt.Sprintf("set %s to %d s", worst.Setting, max(1, int(advice/time.Second)))
	}
	return []Finding{f}
}

package probe

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// judgeDisk rates the disk for hosts with the lease. If programs with facts that sysfs does not have
// are installed, it runs them.
func (r *Report) judgeDisk(ctx context.Context, s Sys) {
	r.judgeKind()
	r.judgeMedium()
	r.judgeCache()
	if m := r.Disk.find(KindMultipath); m != nil {
		r.judgePaths(m)
		r.judgeQueueing(ctx, s, m.Mapper.Name)
	}
	r.judgeSessions()
}

// judgeKind rates the kind of the device, and whether other hosts can reach it.
func (r *Report) judgeKind() {
	const id = "kind"
	d, title := r.Disk, r.Disk.title()
	switch {
	case d.Loop != nil:
		detail, remedy := fmt.Sprintf("a loop device on %s: %s", d.Loop.File, onlyHere), useBlock
		if !d.Loop.DirectIO {
			detail += "; it goes through this host's page cache"
			remedy += "; losetup --direct-io=on passes the cache by"
		}
		r.add(id, Warning, detail, remedy)
	case d.find(KindMemory) != nil:
		r.add(id, Unfit, title+": it is kept in this machine's memory", useBlock)
	case d.Kind == KindRAID:
		r.add(id, Warning, title+": hosts that assemble it each for themselves do not agree on which member is current",
			"use one of its members alone, or a clustered mirror of the storage's own")
	case d.Kind == KindMapper:
		r.add(id, Warning, title+": each host runs device mapper on its own",
			"make sure that every host maps the same blocks, without a cache, snapshot or thin pool between")
	case d.Kind == KindNetwork:
		r.add(id, Warning, title+": its client on this host may cache",
			"switch its client-side write-back cache off (rbd cache = false)")
	case d.Kind == KindPartition:
		r.add(id, OK, title+": persistent reservations are of the whole disk, so fencing is too", "")
	default:
		r.add(id, OK, title, "")
	}
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
	case KindVirtio: // its vendor is a number
		return "virtio disk " + d.Name
	case KindMemory:
		return "memory disk " + d.Name
	}
	return named(string(d.Kind) + " " + d.Name)
}

func (r *Report) judgeMedium() {
	const id = "medium"
	switch rotates := r.Disk.Rotational; {
	case rotates == nil:
		r.add(id, Unknown, "sysfs does not show whether it rotates", "")
	case *rotates:
		r.add(id, OK, "it rotates, or says so: a write waits for the platter", "")
	default:
		r.add(id, OK, "it does not rotate", "")
	}
}

// judgeCache rates the cost of a durable write. All writes are made durable (O_DSYNC), whatever the
// cache.
func (r *Report) judgeCache() {
	const id = "write-cache"
	switch d := r.Disk; {
	case d.WriteCache == "write through":
		r.add(id, OK, "write through: every write is durable when it returns", "")
	case d.WriteCache == "write back" && d.FUA != nil && *d.FUA:
		r.add(id, OK, "write back, with forced unit access: a durable write is one request", "")
	case d.WriteCache == "write back":
		r.add(id, OK, "write back, without forced unit access: every durable write waits for a flush of the whole cache", "")
	default:
		r.add(id, Unknown, "sysfs does not show whether there is a write cache",
			"make sure that a write which was acknowledged survives a loss of power")
	}
}

// judgePaths rates the number of paths to a multipath device.
func (r *Report) judgePaths(d *Disk) {
	const id = "paths"
	var down []string
	for _, p := range d.Below {
		if p.State != "" && p.State != "running" && p.State != "live" {
			down = append(down, p.Name+" is "+p.State)
		}
	}
	switch n := len(d.Below); {
	case len(down) > 0:
		r.add(id, Warning, fmt.Sprintf("%d paths, %d of them running: %s", n, n-len(down), strings.Join(down, ", ")), "see multipath -ll")
	case n < 2:
		r.add(id, Warning, fmt.Sprintf("%d path: with it, the host loses the lockspace", n),
			"add a second path, or find out why it is missing: multipath -ll")
	default:
		r.add(id, OK, fmt.Sprintf("%d paths, all of them running", n), "")
	}
}

// pollingInterval is multipathd's default interval between checks of a path.
const pollingInterval = 5 * time.Second

// judgeQueueing rates the handling of requests of a multipath device when no path is left.
func (r *Report) judgeQueueing(ctx context.Context, s Sys, name string) {
	const id, look = "multipath-queueing", "look for queue_if_no_path in multipath -ll"
	out, err := s.Run(ctx, "dmsetup", "table", name)
	queues, known := parseQueueing(string(out))
	switch {
	case errors.Is(err, exec.ErrNotFound):
		r.add(id, Unknown, "dmsetup is not installed, so it is not known what happens when no path is left", "install dmsetup, or "+look)
	case err != nil:
		r.add(id, Unknown, fmt.Sprintf("dmsetup table %s: %v", name, err), look+"; it takes root")
	case !known:
		r.add(id, Unknown, fmt.Sprintf("dmsetup table %s shows no multipath target", name), look)
	case queues:
		limit, of := r.outage()
		remedy := fmt.Sprintf("set no_path_retry in multipath.conf to fail: one check at %v is longer than half the %s", pollingInterval, of)
		if n := limit / 2 / pollingInterval; n > 0 {
			remedy = fmt.Sprintf("set no_path_retry in multipath.conf to fail, or to a number: %d at %v a check stays within half the %s", n, pollingInterval, of)
		}
		r.add(id, Warning, "when no path is left requests are queued (queue_if_no_path), without end unless multipathd ends it: "+
			"a host that hangs beyond its lease cannot rejoin before they return, which is worse than an error", remedy)
	default:
		r.add(id, OK, "when no path is left requests fail immediately", "")
	}
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
		n, err := strconv.Atoi(fields[3])
		if err != nil || n < 0 || n > len(fields)-4 {
			return false, false
		}
		queues = queues || slices.Contains(fields[4:4+n], "queue_if_no_path")
	}
	return queues, known
}

// judgeSessions compares the time that requests hang on a lost connection, if there is one, with the
// lease, or with fence-after. If other paths exist, they must be tried well within it. If none exists, a
// request may wait for its own path to return, but must not outlast it.
func (r *Report) judgeSessions() {
	var worst *Session
	for _, d := range r.Disk.all() {
		if d.Session != nil && d.Session.outlasts(worst) {
			worst = d.Session
		}
	}
	if worst == nil {
		return
	}
	whole, of := r.outage()
	limit, advice, why := whole-1, whole/2, "the "+of
	if r.Disk.find(KindMultipath) != nil {
		limit, advice, why = whole/4, whole/6, fmt.Sprintf("a quarter of the %s, after which another path should have been tried", of)
	}
	wait, forever := time.Duration(worst.HoldsMS)*time.Millisecond, worst.HoldsMS < 0
	held := fmt.Sprintf("for %v", wait)
	if forever {
		held = "without end"
	}
	verdict, remedy := OK, ""
	detail := fmt.Sprintf("%s %s: when its connection is lost, requests hang %s before they fail", worst.Transport, worst.Name, held)
	if forever || wait > limit {
		verdict, remedy = Warning, fmt.Sprintf("set %s to %d s", worst.Setting, max(1, int(advice/time.Second)))
		detail += ", longer than " + why + ": an error in time is better than a request that may yet land"
	}
	r.add("session-timeout", verdict, detail, remedy)
}

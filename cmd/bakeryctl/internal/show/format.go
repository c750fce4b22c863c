package show

import (
	"fmt"
	"io"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// Member is a disk of a lockspace on several.
type Member struct {
	Position int         `json:"position"`
	Device   string      `json:"device"`
	UUID     layout.UUID `json:"uuid"`
}

// MembersOf returns the disks of a new lockspace, none if it is on one.
func MembersOf(r *format.Result) (members []Member) {
	for i := range r.Superblock.Members.Positions {
		members = append(members, Member{i + 1, r.Paths[i], r.Superblock.Members.Disks[i]})
	}
	return members
}

// Formatted writes what was formatted.
func Formatted(w io.Writer, r *format.Result) {
	sb, verb := r.Superblock, "formatted"
	if r.Created {
		verb = "created"
	}
	if members := MembersOf(r); len(members) == 0 {
		fmt.Fprintf(w, "%s %s\n", verb, text.Printable(r.Paths[0]))
	} else {
		fmt.Fprintf(w, "%s a lockspace on %d disks\n", verb, len(members))
		for _, m := range members {
			fmt.Fprintf(w, "  disk %d\t%v %s\n", m.Position, m.UUID, text.Printable(m.Device))
		}
	}
	fmt.Fprintf(w, "  uuid\t%v\n  name\t%s\n", sb.UUID, nameOf(sb))
	fmt.Fprintf(w, "  hosts\t%d\n  locks\t%d\n", sb.Geometry.Hosts, sb.Geometry.Locks)
	fmt.Fprintf(w, "  lease\t%v\n  policy\t%v\n", sb.Lease, sb.Policy)
	if sb.FenceAfter > 0 {
		fmt.Fprintf(w, "  fence after\t%v; only what is behind the fence is protected, and a host that is frozen for %[1]v loses its locks\n", sb.FenceAfter)
	}
	fmt.Fprintf(w, "  failover\t%s\n", failover(sb))
	each := ""
	if sb.Members.Several() {
		each = " on each disk"
	}
	fmt.Fprintf(w, "  stride\t%d\n  size\t%v%s\n", sb.Geometry.Stride, r.Size, each)
}

// Failover returns how long after the last renewal of a host that dies the others have its locks,
// or fence it. It is 0 if they wait for an operator.
func Failover(sb layout.Superblock) time.Duration {
	switch {
	case sb.Policy == layout.PolicyManual:
		return 0
	case sb.FenceAfter > 0:
		return sb.FenceAfter
	}
	return timing.Of(sb).Dead()
}

// failover returns when other hosts have the locks of a host that dies.
func failover(sb layout.Superblock) string {
	switch {
	case sb.Policy == layout.PolicyManual:
		return "when an operator evicts the dead host"
	case sb.FenceAfter > 0:
		return fmt.Sprintf("%v after the last renewal of a host, which renews every %v, and the time of the fence",
			sb.FenceAfter, timing.Of(sb).Renew().Round(time.Millisecond))
	case sb.Policy == layout.PolicyFence:
		return fmt.Sprintf("%v after the last renewal of a host, and the time of the fence", Failover(sb))
	}
	return fmt.Sprintf("%v after the last renewal of a host", Failover(sb))
}

// nameOf returns the name of a lockspace, "-" if it has none.
func nameOf(sb layout.Superblock) string {
	if sb.Name == "" {
		return "-"
	}
	return text.Printable(sb.Name)
}

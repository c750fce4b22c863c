package probe

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// SetReport is the output of bakeryctl probe --json for several devices.
type SetReport struct {
	Device   string    `json:"device"`   // all of them
	Fit      bool      `json:"fit"`      // whether all devices are fit, together, too
	Findings []Finding `json:"findings"` // about the devices together
	Disks    []*Report `json:"disks"`    // one by one
}

const useOthers = "a lockspace on several disks stops when most of them fail: use disks that fail independently"

// together rates devices as the member disks of one lockspace.
func together(disks []*Report) *SetReport {
	all := &Report{Findings: []Finding{}}
	var names, labels []string
	sharing := map[string][]string{} // the devices of each failure domain
	for i, r := range disks {
		names = append(names, r.Device)
		first := slices.IndexFunc(disks[:i], func(other *Report) bool { return r.id != "" && other.id == r.id })
		if first >= 0 {
			all.add("same-disk", Unfit, fmt.Sprintf("%s and %s lead to the same disk, %s", disks[first].Device, r.Device, r.id), "give each disk once")
			continue
		}
		for _, label := range r.domains() {
			if sharing[label] = append(sharing[label], r.Device); len(sharing[label]) == 1 {
				labels = append(labels, label)
			}
		}
	}
	shared := map[string][]string{} // the failure domains of each group of devices
	var groups []string
	for _, label := range labels {
		if len(sharing[label]) < 2 {
			continue
		}
		group := strings.Join(sharing[label], ", ")
		if shared[group] == nil {
			groups = append(groups, group)
		}
		shared[group] = append(shared[group], label)
	}
	for _, group := range groups {
		all.add("together", Warning, fmt.Sprintf("%s may fail together: they share %s", group, strings.Join(shared[group], ", ")), useOthers)
	}
	if len(all.Findings) == 0 {
		all.add("together", OK, "sysfs shows nothing that the disks share", "")
	}
	all.addMembers(disks)
	all.conclude()
	fit := all.Fit && !slices.ContainsFunc(disks, func(r *Report) bool { return !r.Fit })
	return &SetReport{strings.Join(names, ", "), fit, all.Findings, disks}
}

// addMembers adds which disks were replaced, and which position is vacant, by the newest list that one of them has.
func (r *Report) addMembers(disks []*Report) {
	var newest layout.Superblock
	for _, d := range disks {
		if d.space != nil && d.space.Members.Epoch > newest.Members.Epoch {
			newest = *d.space
		}
	}
	list := newest.Members
	for _, d := range disks {
		if sb := d.space; sb != nil && sb.Position > 0 && sb.UUID == newest.UUID && !list.Has(sb.Position, sb.Members.Disks[sb.Position-1]) {
			r.add("replaced", Warning, fmt.Sprintf("%s was disk %d of the lockspace until it was replaced", d.Device, sb.Position),
				"remove it from --device or BAKERYD_DEVICE, and erase it before it is used for something else")
		}
	}
	if v := list.Vacant(); v != 0 {
		r.add("vacant", Warning, fmt.Sprintf("position %d of the lockspace is %v", v, lockspace.ErrVacant),
			fmt.Sprintf("if no replacement is running, run bakeryctl disk replace %d NEW", v))
	}
}

// domains returns the failure domains of a device that sysfs shows.
func (r *Report) domains() (labels []string) {
	d := r.Disk
	if r.File != nil {
		labels, d = append(labels, fileSystem(r.Device)), r.File.Disk
	}
	if d != nil {
		for _, below := range d.all() {
			labels = append(labels, below.domains...)
		}
	}
	slices.Sort(labels)
	return slices.DeleteFunc(slices.Compact(labels), func(label string) bool { return label == "" })
}

// readDomains returns the failure domains of a disk whose directory in sysfs is whole.
func (s Sys) readDomains(whole string, d Disk) (labels []string) {
	if d.Loop != nil {
		return []string{fileSystem(d.Loop.File)}
	}
	labels = append(labels, "disk "+filepath.Base(whole))
	if array := arrayOf(attribute(whole, "device/wwid")); array != "" {
		labels = append(labels, "the array part of their WWN, "+array)
	}
	if nqn := attribute(whole, "device/subsysnqn"); nqn != "" {
		labels = append(labels, "NVMe subsystem "+nqn)
	}
	if d.Session != nil && d.Session.Transport == "iscsi" {
		number := strings.TrimPrefix(d.Session.Name, "session")
		labels = append(labels, "iSCSI target "+d.Session.Target)
		if portal := attribute(s.Root, "class/iscsi_connection", "connection"+number+":0", "persistent_address"); portal != "" {
			labels = append(labels, "iSCSI portal "+portal)
		}
	}
	return labels
}

// arrayOf returns the part of an identifier of type NAA 6 that the LUNs of an array have in common, "" if
// it is of another type: that type, the vendor and 36 bits of the vendor's, before 64 bits for the LUN.
func arrayOf(wwid string) string {
	hex, ok := strings.CutPrefix(wwid, "naa.6")
	if !ok || len(hex) != 31 {
		return ""
	}
	return wwid[:len("naa.")+16]
}

// fileSystem returns a name of the file system of a file, "" if there is no such file.
func fileSystem(path string) string {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return ""
	}
	return fmt.Sprintf("the file system on device %d:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)))
}

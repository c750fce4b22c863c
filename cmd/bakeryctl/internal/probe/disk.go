package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Kind is the type of a block device.
type Kind string

// The kinds of block device that probe distinguishes.
const (
	KindDisk      Kind = "disk"
	KindNVMe      Kind = "nvme"
	KindVirtio    Kind = "virtio"
	KindPartition Kind = "partition"
	KindLoop      Kind = "loop"
	KindMultipath Kind = "multipath"
	KindMapper    Kind = "device mapper"
	KindRAID      Kind = "md raid"
	KindMemory    Kind = "memory"
	KindNetwork   Kind = "network block device"
)

// Disk holds the facts in sysfs about a block device. A missing fact is the zero value.
type Disk struct {
	Name       string   `json:"name"` // the kernel's: sda, dm-3, nvme0n1
	Kind       Kind     `json:"kind"`
	Whole      string   `json:"whole,omitempty"`       // of a partition: the disk that it is on
	Model      string   `json:"model,omitempty"`       // the vendor's name
	State      string   `json:"state,omitempty"`       // of a SCSI or NVMe device: "running" or "live" if it is well
	Rotational *bool    `json:"rotational,omitempty"`  // nil: unknown, as in the fields below
	WriteCache string   `json:"write_cache,omitempty"` // "write back" or "write through"
	FUA        *bool    `json:"fua,omitempty"`         // whether it has writes that bypass its cache
	Loop       *Loop    `json:"loop,omitempty"`        // of a loop device
	Mapper     *Mapper  `json:"mapper,omitempty"`      // of a device-mapper device
	Session    *Session `json:"session,omitempty"`     // by which it is connected
	Below      []Disk   `json:"below,omitempty"`       // the devices that it consists of

	domains []string // its failure domains, without those of Below
}

// Loop describes a loop device.
type Loop struct {
	File     string `json:"file"`      // path of its file
	DirectIO bool   `json:"direct_io"` // it bypasses this host's page cache
}

// Mapper is a device-mapper device.
type Mapper struct {
	Name string `json:"name"` // below /dev/mapper
	UUID string `json:"uuid"` // as device-mapper has it: no UUID of a lockspace
}

// Disk describes the block device with a number. It returns fs.ErrNotExist (for errors.Is) if
// sysfs has none.
func (s Sys) Disk(major, minor uint32) (Disk, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(s.Root, "dev/block", fmt.Sprintf("%d:%d", major, minor)))
	if err != nil {
		return Disk{}, fmt.Errorf("look up device %d:%d in sysfs: %w", major, minor, err)
	}
	return s.describe(dir, 0), nil
}

// maxDepth bounds the search down a stack of devices. The kernel allows no deeper stacks.
const maxDepth = 16

// describe reads the directory of a block device. Symbolic links in dir must be resolved.
func (s Sys) describe(dir string, depth int) Disk {
	d := Disk{Name: filepath.Base(dir)}
	whole := dir // a partition has no queue of its own
	if exists(dir, "partition") {
		whole = filepath.Dir(dir)
		d.Whole = filepath.Base(whole)
	}
	d.Kind = kindOf(dir, whole)
	d.Model = strings.TrimSpace(attribute(whole, "device/vendor") + " " + attribute(whole, "device/model"))
	d.State = attribute(whole, "device/state")
	d.Rotational = flag(whole, "queue/rotational")
	d.WriteCache = attribute(whole, "queue/write_cache")
	d.FUA = flag(whole, "queue/fua")
	if exists(whole, "loop/backing_file") {
		d.Loop = &Loop{File: attribute(whole, "loop/backing_file"), DirectIO: attribute(whole, "loop/dio") == "1"}
	}
	if exists(whole, "dm") {
		d.Mapper = &Mapper{Name: attribute(whole, "dm/name"), UUID: attribute(whole, "dm/uuid")}
	}
	d.Session = s.session(whole)
	slaves, _ := os.ReadDir(filepath.Join(whole, "slaves")) // sorted; an unreadable directory counts as empty
	for _, slave := range slaves {
		path, err := filepath.EvalSymlinks(filepath.Join(whole, "slaves", slave.Name()))
		if err == nil && depth < maxDepth {
			d.Below = append(d.Below, s.describe(path, depth+1))
		}
	}
	d.domains = s.readDomains(whole, d)
	return d
}

func kindOf(dir, whole string) Kind {
	name := filepath.Base(whole)
	switch {
	case dir != whole:
		return KindPartition
	case exists(dir, "dm"):
		if strings.HasPrefix(attribute(dir, "dm/uuid"), "mpath-") {
			return KindMultipath
		}
		return KindMapper
	case exists(dir, "md"):
		return KindRAID
	}
	for _, k := range []struct {
		prefix string
		kind   Kind
	}{{"loop", KindLoop}, {"nvme", KindNVMe}, {"vd", KindVirtio}, {"zram", KindMemory}, {"ram", KindMemory},
		{"rbd", KindNetwork}, {"nbd", KindNetwork}, {"drbd", KindNetwork}} {
		if strings.HasPrefix(name, k.prefix) {
			return k.kind
		}
	}
	return KindDisk
}

// all returns a device and everything below it, from the top downwards.
func (d *Disk) all() []*Disk {
	all := []*Disk{d}
	for i := range d.Below {
		all = append(all, d.Below[i].all()...)
	}
	return all
}

// find returns the first device of a kind, from the top downwards, nil if there is none.
func (d *Disk) find(kind Kind) *Disk {
	for _, x := range d.all() {
		if x.Kind == kind {
			return x
		}
	}
	return nil
}

// attribute returns the contents of a file of sysfs, "" if there is none.
func attribute(elem ...string) string {
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func exists(elem ...string) bool {
	_, err := os.Stat(filepath.Join(elem...))
	return !errors.Is(err, fs.ErrNotExist)
}

// flag returns an attribute that is 0 or 1, nil if there is none.
func flag(elem ...string) *bool {
	switch v := attribute(elem...); v {
	case "0", "1":
		return new(v == "1")
	}
	return nil
}

// number returns an attribute that is a whole number.
func number(elem ...string) (n int, ok bool) {
	n, err := strconv.Atoi(attribute(elem...))
	return n, err == nil
}

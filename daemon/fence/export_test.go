package fence

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Testing gives the contract test, which is outside of this package, agents on the model.
type Testing struct {
	Agents   [2]Agent
	Keys     [2]uint64
	CanWrite func(host int) bool
	Break    func() (repair func())
	Hang     func() (release func())
}

// Kinds are the kinds of device that the model can be.
var Kinds = []string{"SG_IO", "IOC_PR", "IOC_PR, nothing to read with", "like tgt", "two devices", "three members", "like Linux's NVMe target"}

// NewTesting makes two hosts on a device of a kind.
func NewTesting(t *testing.T, kind string) Testing {
	t.Helper()
	luns := []*lun{lunOf(kind)}
	if kind == "two devices" {
		luns = append(luns, lunOf(kind))
	}
	if kind == "three members" {
		luns = append(luns, lunOf(kind), lunOf(kind))
	}
	hosts := make([][]*nexus, 2)
	w := Testing{Keys: [2]uint64{Key(1, 0xa11ce), Key(2, 0xb0b)}}
	for host := range hosts {
		paths := map[string]*nexus{}
		var devices []string
		for i, l := range luns {
			n := &nexus{lun: l, descriptor: host == 1}
			hosts[host] = append(hosts[host], n)
			devices = append(devices, fmt.Sprintf("/dev/sd%c", 'a'+i))
			paths[devices[i]] = n
		}
		cfg := Config{Key: w.Keys[host], Devices: devices, Drain: time.Millisecond}
		if kind == "three members" {
			cfg.Devices, cfg.Members = nil, &someMembers{paths: devices}
		}
		a, err := newPR(cfg, func(path string) (*handle, error) {
			return handleOf(paths[path], kind), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Agents[host] = a
	}
	w.CanWrite = func(host int) bool {
		for _, n := range hosts[host] {
			if n.mayWrite() {
				return true
			}
		}
		return false
	}
	last := hosts[0][len(luns)-1]
	w.Break = func() func() {
		last.before = func([]byte) {
			last.lun.mu.Lock()
			defer last.lun.mu.Unlock()
			last.attentions = append(last.attentions, 0x2900)
		}
		return func() { last.before = nil }
	}
	w.Hang = func() func() {
		ctx, cancel := context.WithCancel(context.Background())
		last.before = func([]byte) { <-ctx.Done() }
		return cancel
	}
	return w
}

func lunOf(kind string) *lun {
	return &lun{
		noAbort:     kind == "like tgt",
		noPersist:   kind == "like tgt",
		dropsHolder: kind == "like tgt",
		nvme:        kind == "like Linux's NVMe target",
	}
}

func handleOf(n *nexus, kind string) *handle {
	sg, k := scsi{dev: n}, overLinux(n)
	h := &handle{close: func() {}}
	switch kind {
	case "SG_IO":
		h.transports, h.readers = []transport{sg}, readersOf(sg.state)
	case "IOC_PR, nothing to read with":
		h.transports, h.readers = []transport{k}, readersOf(blind)
	default:
		h.transports, h.readers = []transport{k, sg}, readersOf(blind, sg.state)
	}
	return h
}

func readersOf(readers ...func() (State, error)) []func() (State, error) { return readers }

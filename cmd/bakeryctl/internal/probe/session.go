package probe

import (
	"path/filepath"
	"strings"
)

// Session is a connection to a device. While it is down, requests wait in the kernel until it
// returns. While they wait, it is unknown whether a write has landed.
type Session struct {
	Transport string `json:"transport"`        // iscsi, nvme-tcp, nvme-rdma or nvme-fc
	Name      string `json:"name"`             // the kernel's
	Target    string `json:"target,omitempty"` // name of the target
	HoldsMS   int64  `json:"holds_ms"`         // requests fail after this time, in milliseconds; -1: never
	Setting   string `json:"setting"`          // the name of that setting
}

// holds returns HoldsMS for a number of seconds, which is negative if requests never fail.
func holds(seconds int) int64 { return max(1000*int64(seconds), -1) }

// outlasts reports whether requests wait longer than those of another session, which may be nil.
func (s *Session) outlasts(other *Session) bool {
	return other == nil || other.HoldsMS >= 0 && (s.HoldsMS < 0 || s.HoldsMS > other.HoldsMS)
}

// session returns the connection of the disk with directory dir, nil if sysfs shows none.
func (s Sys) session(dir string) *Session {
	for up := dir; len(up) > 1 && strings.HasPrefix(up, "/"); up = filepath.Dir(up) {
		name := filepath.Base(up)
		if named, _ := filepath.Match("session[0-9]*", name); !named { // no error: the pattern is valid
			continue
		}
		attributes := filepath.Join(s.Root, "class/iscsi_session", name)
		if seconds, ok := number(attributes, "recovery_tmo"); ok {
			return &Session{Transport: "iscsi", Name: name, Target: attribute(attributes, "targetname"),
				HoldsMS: holds(seconds), Setting: "node.session.timeo.replacement_timeout of iscsid.conf"}
		}
	}
	return nvmeSession(dir)
}

// nvmeSession returns the connection of an NVMe namespace over a fabric. Several paths to one
// namespace are below the subsystem, each with its own times. The path that holds requests
// longest counts.
func nvmeSession(dir string) (longest *Session) {
	paths, _ := filepath.Glob(filepath.Join(dir, "device", "nvme[0-9]*")) // the pattern is valid
	for _, c := range append([]string{filepath.Join(dir, "device")}, paths...) {
		transport := attribute(c, "transport")
		if transport == "" || transport == "pcie" {
			continue
		}
		real, err := filepath.EvalSymlinks(c)
		if err != nil {
			continue
		}
		found := &Session{Transport: "nvme-" + transport, Name: filepath.Base(real), Target: attribute(c, "subsysnqn"),
			HoldsMS: -1, Setting: "nvme connect --fast_io_fail_tmo (or --ctrl-loss-tmo)"}
		// Requests fail after the first of the two that is set. A setting may be "off".
		if n, ok := number(c, "fast_io_fail_tmo"); ok && n >= 0 {
			found.HoldsMS, found.Setting = holds(n), "nvme connect --fast_io_fail_tmo"
		} else if n, ok := number(c, "ctrl_loss_tmo"); ok {
			found.HoldsMS = holds(n)
		}
		if found.outlasts(longest) {
			longest = found
		}
	}
	return longest
}

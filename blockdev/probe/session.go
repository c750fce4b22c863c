package probe

import (
	"path/filepath"
	"strings"
	"time"
)

// Session is a connection to a device. While it is down, requests wait in the kernel until it
// returns. While they wait, it is unknown whether a write has landed.
type Session struct {
	Transport string `json:"transport"` // iscsi, nvme-tcp, nvme-rdma or nvme-fc
	Name      string `json:"name"`      // the kernel's
	Target    string `json:"target,omitempty"`
	HoldsSec  int    `json:"holds_sec"` // requests fail after this number of seconds; -1: never
	Setting   string `json:"setting"`   // the name of that setting
}

// holds returns the time that requests wait. forever is true if it has no end.
func (s *Session) holds() (wait time.Duration, forever bool) {
	return time.Duration(s.HoldsSec) * time.Second, s.HoldsSec < 0
}

// isSessionName reports whether a directory name is that of a session: session7.
func isSessionName(name string) bool {
	number, found := strings.CutPrefix(name, "session")
	return found && number != "" && strings.Trim(number, "0123456789") == ""
}

// session returns the connection of the disk with directory dir, nil if sysfs shows none.
func (s Sys) session(dir string) *Session {
	for up := dir; len(up) > 1 && strings.HasPrefix(up, "/"); up = filepath.Dir(up) {
		name := filepath.Base(up)
		if !isSessionName(name) {
			continue
		}
		attributes := filepath.Join(s.Root, "class/iscsi_session", name)
		if seconds, ok := number(attributes, "recovery_tmo"); ok {
			return &Session{Transport: "iscsi", Name: name, Target: text(attributes, "targetname"),
				HoldsSec: max(seconds, -1), Setting: "node.session.timeo.replacement_timeout of iscsid.conf"}
		}
	}
	return nvmeSession(dir)
}

// nvmeSession returns the connection of an NVMe namespace over a fabric. Several paths to one
// namespace are below the subsystem, each with its own times. The path that holds requests
// longest counts.
func nvmeSession(dir string) (longest *Session) {
	controllers := []string{filepath.Join(dir, "device")}
	if more, err := filepath.Glob(filepath.Join(dir, "device", "nvme[0-9]*")); err == nil {
		controllers = append(controllers, more...)
	}
	for _, c := range controllers {
		transport := text(c, "transport")
		if transport == "" || transport == "pcie" {
			continue
		}
		real, err := filepath.EvalSymlinks(c)
		if err != nil {
			continue
		}
		found := &Session{Transport: "nvme-" + transport, Name: filepath.Base(real), Target: text(c, "subsysnqn"),
			HoldsSec: -1, Setting: "nvme connect --fast_io_fail_tmo (or --ctrl-loss-tmo)"}
		// Requests fail after the first of the two that is set. A setting may be "off".
		if n, ok := number(c, "fast_io_fail_tmo"); ok && n >= 0 {
			found.HoldsSec, found.Setting = n, "nvme connect --fast_io_fail_tmo"
		} else if n, ok := number(c, "ctrl_loss_tmo"); ok {
			found.HoldsSec = max(n, -1)
		}
		if longest == nil || longest.HoldsSec >= 0 && (found.HoldsSec < 0 || found.HoldsSec > longest.HoldsSec) {
			longest = found
		}
	}
	return longest
}

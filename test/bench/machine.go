package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// machine describes the machine and the versions measured.
type machine struct {
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	Memory   string            `json:"memory"`
	Kernel   string            `json:"kernel"`
	Virtual  bool              `json:"virtual"`
	Storage  string            `json:"storage"`
	Versions map[string]string `json:"versions"`
}

func (s *setup) machine() (*machine, error) {
	m := &machine{Cores: runtime.NumCPU(), Versions: map[string]string{}}
	cpu := pairs("/proc/cpuinfo")
	for k, v := range cpu {
		switch strings.TrimSpace(k) {
		case "model name":
			m.CPU = v
		case "flags":
			m.Virtual = strings.Contains(" "+v+" ", " hypervisor ")
		}
	}
	m.Memory = pairs("/proc/meminfo")["MemTotal"]
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
	m.Storage = storage(s.work)
	m.Versions["bakeryd"] = s.commit
	m.Versions["Go"] = runtime.Version()
	for name, args := range map[string][]string{
		"etcd":   {filepath.Join(s.deb, "usr/bin/etcd"), "--version"},
		"flock":  {"flock", "--version"},
		"strace": {"strace", "--version"},
	} {
		out, err := exec.Command(args[0], args[1:]...).Output()
		if err == nil {
			line, _, _ := strings.Cut(string(out), "\n")
			m.Versions[name] = strings.TrimSpace(strings.TrimPrefix(line, "etcd Version:"))
		}
	}
	if b, err := os.ReadFile(filepath.Join(s.deb, "sanlock.version")); err == nil {
		m.Versions["sanlock"] = strings.TrimSpace(string(b))
	}
	return m, nil
}

// storage returns a directory's file system, and the device below as far as it is known.
func storage(dir string) string {
	out, err := command(context.Background(), nil, "findmnt", "-n", "-o", "SOURCE,FSTYPE,OPTIONS", "-T", dir)
	if err != nil {
		return "unknown"
	}
	f := strings.Fields(out)
	text := strings.Join(f, " ")
	kind, err := command(context.Background(), nil, "lsblk", "-d", "-n", "-P", "-o", "TYPE,TRAN,ROTA,PHY-SEC,LOG-SEC,MODEL", f[0])
	if err == nil {
		text += "; " + strings.ReplaceAll(strings.ToLower(kind), `"`, "")
	}
	return text
}

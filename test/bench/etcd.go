package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// etcd starts one node of etcd on the loopback address, with its data on the disk.
func (s *setup) etcd(ctx context.Context, each time.Duration, _ *rivalry) (*rival, error) {
	program, loop := filepath.Join(s.deb, "usr/bin/etcd"), filepath.Join(s.bin, "etcd-client")
	for _, f := range []string{program, loop} {
		if _, err := os.Stat(f); err != nil {
			return nil, skipped(err.Error())
		}
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	clients, peers := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	p, err := s.start("etcd", nil, program, "--name", "one", "--data-dir", filepath.Join(s.work, "etcd"),
		"--listen-client-urls", clients, "--advertise-client-urls", clients, "--listen-peer-urls", peers,
		"--initial-advertise-peer-urls", peers, "--initial-cluster", "one="+peers, "--log-level", "warn", "--logger", "zap")
	if err != nil {
		return nil, err
	}
	end := func() { p.end(unix.SIGTERM) }
	err = p.until(ctx, 30*time.Second, func() bool {
		r, err := http.Get(clients + "/health")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	if err != nil {
		end()
		return nil, err
	}
	return &rival{func() ([]turn, error) {
		return turnsOf(ctx, nil, loop, "-endpoint", clients, "-for", each.String())
	}, end}, nil
}

// freePorts returns ports that are not in use.
func freePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

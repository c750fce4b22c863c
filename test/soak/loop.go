package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// attach creates a loop device over a file.
func attach(ctx context.Context, file string, sector int) (string, error) {
	out, _, err := output(ctx, "losetup", "--direct-io=on", "--sector-size", strconv.Itoa(sector), "-f", "--show", file)
	return strings.TrimSpace(out), err
}

// detach removes a loop device when it is no longer open.
func detach(ctx context.Context, dev string) error {
	_, _, err := output(ctx, "losetup", "-d", dev)
	return err
}

// attached reports whether a loop device exists over a file below a directory.
func attached(dev, dir string) bool {
	b, err := os.ReadFile("/sys/block/" + filepath.Base(dev) + "/loop/backing_file")
	return err == nil && strings.HasPrefix(string(b), dir)
}

// attachedBelow returns the loop devices over files below a directory.
func attachedBelow(dir string) (devs []string) {
	all, _ := filepath.Glob("/sys/block/loop*")
	for _, sys := range all {
		if dev := "/dev/" + filepath.Base(sys); attached(dev, dir+"/") {
			devs = append(devs, dev)
		}
	}
	return devs
}

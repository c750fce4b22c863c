//go:build vm

// Command section is a critical section in a machine of the lab, to be run by bakeryctl lock:
//
//	section [--check] [--watch] [--stubborn] HOST TIME|-
//
// It increments the counter on /dev/data, and works for a time, or until it reads a line from
// standard input. With --check it checks its token before it writes, and does not write if another
// section has written. With --watch it checks continuously while it works. With --stubborn it
// ignores SIGTERM. It exits with 3 if a write was refused, or if it is not alone.
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/test/vm/counter"
)

const device = "/dev/data"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Println("refused:", err)
		os.Exit(3)
	}
}

func run(args []string) error {
	var check, watch, stubborn bool
	for ; len(args) > 2; args = args[1:] {
		check = check || args[0] == "--check"
		watch = watch || args[0] == "--watch"
		stubborn = stubborn || args[0] == "--stubborn"
	}
	if stubborn {
		signal.Ignore(syscall.SIGTERM)
	}
	token, err := strconv.ParseUint(os.Getenv("BAKERY_TOKEN"), 10, 64)
	if err != nil {
		return err
	}
	host, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	dev, err := blockdev.Open(device, blockdev.Options{})
	if err != nil {
		return err
	}
	defer dev.Close()
	s := counter.Section{Disk: dev, Replace: counter.Plain(dev), Host: host, Token: token, Wait: func(found counter.Counter, look func() error) error {
		fmt.Printf("token %d. found %d\n", token, found.Count)
		if !watch {
			look = func() error { return nil }
		}
		return wait(args[1], look)
	}}
	if check {
		s.Replace = counter.Checked(dev)
	}
	if err := s.Run(); err != nil {
		return err
	}
	fmt.Println("raised")
	return nil
}

const lookEvery = 20 * time.Millisecond

// wait returns when it has read a line, when the time has passed, or when look returns an error.
func wait(until string, look func() error) error {
	over := make(chan error, 1)
	if until == "-" {
		go func() {
			_, err := bufio.NewReader(os.Stdin).ReadString('\n')
			over <- err
		}()
	} else {
		d, err := time.ParseDuration(until)
		if err != nil {
			return err
		}
		time.AfterFunc(d, func() { over <- nil })
	}
	for {
		select {
		case err := <-over:
			return err
		case <-time.After(lookEvery):
			if err := look(); err != nil {
				return err
			}
		}
	}
}

//go:build vm

// Command pr does the steps of a bakeryd that fences by persistent reservations, one by one, in a
// machine with a reserved disk:
//
//	pr DEVICE KEY register|resume|unregister|fence TARGET|keys|read|write|count
//
// write writes a sector, read reads it; count writes increasing numbers to it until a write fails.
// The sector is 8 MiB into the disk, after any lockspace of the lab. Keys are hexadecimal.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/fence"
)

func main() {
	if err := run(os.Args[1], number(os.Args[2]), os.Args[3], os.Args[4:]); err != nil {
		fmt.Println("pr:", err)
		if errors.Is(err, fence.ErrFenced) {
			fmt.Println("fenced")
		}
		os.Exit(1)
	}
}

func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func run(device string, key uint64, what string, args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	switch what {
	case "keys":
		state, err := fence.ReadState(ctx, device)
		if err == nil {
			fmt.Printf("%x %v %s\n", state.Keys, state.Held, state.Type)
		}
		return err
	case "read", "write", "count":
		return access(device, what)
	}
	agent, err := fence.New(fence.Config{Agent: "pr", Devices: []string{device}, Key: key, Resumed: what != "register",
		Drain: 2 * time.Second, Log: slog.New(slog.NewTextHandler(os.Stdout, nil))})
	if err != nil {
		return err
	}
	switch what {
	case "register", "resume":
		return agent.Register(ctx)
	case "unregister":
		return agent.Unregister(ctx)
	case "fence":
		if err := agent.Register(ctx); err != nil { // like bakeryd, in the same process
			return err
		}
		return agent.Fence(ctx, fence.Target{Host: 1, Incarnation: 1, Name: "target", Key: number(args[0])})
	}
	panic(what)
}

const place = 8 << 20

func access(device, what string) error {
	dev, err := blockdev.Open(device, blockdev.Options{})
	if err != nil {
		return err
	}
	defer dev.Close()
	sector := blockdev.Alloc(4096)
	if what == "read" {
		return dev.Read(sector, place)
	}
	for n := uint64(1); ; n++ {
		binary.LittleEndian.PutUint64(sector, n)
		if err := dev.Write(sector, place); err != nil || what == "write" {
			return err
		}
		if n == 1 {
			fmt.Println("counting")
		}
	}
}

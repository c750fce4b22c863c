// Command soak has five hosts, which are real bakeryds on loop devices over one
// image, work under random faults for as long as it is told, and judges what
// their clients see. It is run by test/soak/run, which builds what it needs. It
// knows bakeryd and bakeryctl by their command lines and the Go client, and the
// layout only to damage records and to see them mended.
//
// Begin with [soak] in soak.go: it makes the hosts of host.go, the clients of
// clients.go and the faults of faults.go. What clients do in a critical section
// (section.go) they announce to a store (store.go), a file that stands for the
// storage that locks are for: it turns away tokens that are too old, and what it
// is told there is judged by judge.go. What the clients themselves have written
// down (journal.go) is checked at the end by history.go, with porcupine.
//
// With --chaos the faults, commands and judge are those of chaos.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	err := play(ctx, os.Args[1:])
	var code exitCode
	switch {
	case errors.As(err, &code):
		os.Exit(int(code))
	case err != nil:
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// exitCode ends the program without another word.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// play plays the role that the first argument names: the soak itself, or what it runs on its hosts.
func play(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("want a role: test/soak/run calls it")
	}
	roles := map[string]func(context.Context, []string) error{
		"run":    runSoak,    // the soak itself
		"worker": runWorker,  // clients of a host, by the Go client
		"inside": runInside,  // a command under bakeryctl lock
		"beat":   runBeat,    // likewise, in the chaos run
		"boot":   bootDaemon, // bakeryd, with the machine id and boot id of its host
	}
	role, ok := roles[args[0]]
	if !ok {
		return fmt.Errorf("no role %q", args[0])
	}
	return role(ctx, args[1:])
}

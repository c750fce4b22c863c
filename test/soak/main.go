// Command soak runs five hosts, which are real bakeryds on loop devices over one image, under
// random faults, and judges what their clients see. test/soak/run builds and starts it. It knows
// bakeryd and bakeryctl by their command lines and the Go client. It knows the layout only to
// damage records and to see them repaired.
//
// Begin with [soak] in soak.go: it creates the hosts of host.go, the clients of clients.go and the
// faults of faults.go. In a critical section (section.go) a client writes records to a store
// (store.go), a file that stands for the storage that locks protect: it refuses tokens that are too
// old. judge.go judges these records. history.go checks the clients' own logs (sectionlog.go) at
// the end, with porcupine.
//
// With --chaos chaos.go has the faults, the commands and the judge.
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

// exitCode ends the program without a message.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// play plays the role that the first argument names: the soak, or a program on its hosts.
func play(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("want a role: test/soak/run calls it")
	}
	roles := map[string]func(context.Context, []string) error{
		"run":    runSoak,    // the soak itself
		"worker": runWorker,  // Go clients of a host
		"inside": runInside,  // a command under bakeryctl lock
		"beat":   runBeat,    // the same, in the chaos run
		"boot":   bootDaemon, // bakeryd, with its host's machine id and boot id
		"probe":  runProbe,   // reads of the calm host's paths
	}
	role, ok := roles[args[0]]
	if !ok {
		return fmt.Errorf("no role %q", args[0])
	}
	return role(ctx, args[1:])
}

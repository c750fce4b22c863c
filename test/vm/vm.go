// Package vm tests bakeryd on machines: real Linux kernels that are killed, reset and paused, a real iSCSI target, and
// watchdogs that reset what they watch. The machines are qemu's, without KVM, with a kernel of Debian's and, for all
// of their userland, busybox and the project's own programs. They continue from a snapshot of one
// that has booted.
//
//	test/vm/run
//
// needs root, for apt-get download only, an amd64 Debian, and what test/all installs. Everything is made in
// BAKERY_TEST_DIR, else in /var/tmp, which must not be a tmpfs, and is removed again; nothing is installed, and
// what listens does so on the loopback address. It knows what the README promises and what the kernel's drivers
// do. Begin with README.md, then [cluster] in cluster_test.go and [machine] in machine_test.go; guest is the other
// end of that. Package counter is the data that is at stake.
package vm

// Port is the name of the virtio-serial port by which a machine is told what to do: requests one way, replies
// the other, a line of JSON each.
const Port = "vm"

// State is the mount tag of a machine's directory that outlives a reboot.
const State = "state"

// Template is the name of the machine of which a snapshot is taken. It has nothing that differs
// between machines.
const Template = "template"

// Request is what the guest is to do: start a program, or do something to one that it has started.
// The first request to a machine that continues from a snapshot has a name, and nothing else to do.
type Request struct {
	Name   string   `json:"name,omitempty"`   // of the machine
	Seed   []byte   `json:"seed,omitempty"`   // of its random numbers
	ID     int      `json:"id"`               // of the program
	Argv   []string `json:"argv,omitempty"`   // starts it
	Input  string   `json:"input,omitempty"`  // for its standard input
	Signal int      `json:"signal,omitempty"` // sends it
}

// Reply is what has happened in the guest.
type Reply struct {
	Up      bool   `json:"up,omitempty"`      // it has booted or adopted its name; no program of an earlier boot runs
	ID      int    `json:"id,omitempty"`      // of the program, from 1
	Out     string `json:"out,omitempty"`     // a line on its standard output or error, with its line feed
	Silent  bool   `json:"silent,omitempty"`  // nobody has its output open any more
	Ended   bool   `json:"ended,omitempty"`   // it has ended, though not all that it started need have
	Code    int    `json:"code,omitempty"`    // exit code, -1 if a signal ended it
	Problem string `json:"problem,omitempty"` // it could not be started
}

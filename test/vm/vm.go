// Package vm tests bakeryd on machines: real Linux kernels that are killed, reset and paused, a
// real iSCSI target, and watchdogs that reset their machine. The machines run in qemu without KVM.
// They have Debian's kernel, and as userland busybox and the project's own programs, or Debian's
// systemd, lvm2 and sanlock. They continue from a snapshot of a booted machine.
//
//	test/vm/run
//
// needs root, for apt-get download only, an amd64 Debian, and the packages that test/all installs.
// Its files are in BAKERY_TEST_DIR, by default /var/tmp, which must not be a tmpfs, and are removed
// at the end. Nothing is installed, and sockets listen on the loopback address. It knows the
// promises of the README and the kernel's drivers. Begin with README.md, then [cluster] in
// cluster_test.go and [machine] in machine_test.go. guest is the other end of [machine]. Package
// counter is the data that the locks guard.
package vm

// Port is the name of the virtio-serial port for requests to a machine and replies from it, a line
// of JSON each.
const Port = "vm"

// State is the mount tag of the machine's directory that survives a reboot.
const State = "state"

// Template is the name of the machine of the snapshot. It has nothing that differs between
// machines.
const Template = "template"

// Request asks the guest to start a program, or acts on a started one. The first request to a
// machine that continues from a snapshot only has a name and a seed.
type Request struct {
	Name   string   `json:"name,omitempty"`   // of the machine
	Seed   []byte   `json:"seed,omitempty"`   // of its random numbers
	ID     int      `json:"id"`               // of the program
	Argv   []string `json:"argv,omitempty"`   // starts the program
	Input  string   `json:"input,omitempty"`  // for the program's standard input
	Signal int      `json:"signal,omitempty"` // for the program
}

// Reply reports an event in the guest.
type Reply struct {
	Up      bool   `json:"up,omitempty"`      // the machine has booted or adopted its name; no program of an earlier boot runs
	ID      int    `json:"id,omitempty"`      // of the program, from 1
	Out     string `json:"out,omitempty"`     // line of its standard output or error, with the line feed
	Silent  bool   `json:"silent,omitempty"`  // its output is closed in all processes
	Ended   bool   `json:"ended,omitempty"`   // it has ended; its children may still run
	Code    int    `json:"code,omitempty"`    // exit code; -1 after a signal
	Problem string `json:"problem,omitempty"` // why it could not be started
}

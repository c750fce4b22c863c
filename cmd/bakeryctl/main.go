// Command bakeryctl runs commands under locks on a shared disk, and formats
// and looks at the disk. It knows flags, terminals and exit codes, never
// sectors. Begin with root.go; each command has a file of its own name.
package main

import (
	"context"
	"io"
	"os"
	"time"
)

// app is what the commands share: where they read and write, and how.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	socket         string        // of bakeryd
	colour         colour        // of what people read
	patience       time.Duration // of who completes a word
}

func main() {
	switch os.Args[0] {
	case asStub:
		os.Exit(runStub(os.Args[1:]))
	case asGuardian:
		os.Exit(runGuardian(os.Args[1:]))
	}
	os.Exit(run(context.Background(), os.Args[1:], &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, patience: completionPatience}))
}

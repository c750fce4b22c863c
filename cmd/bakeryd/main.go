// Command bakeryd joins this host to a lockspace on a shared disk and serves its locks on a Unix
// socket. It knows flags, signals and systemd; the service is package daemon. Begin with run in
// run.go; flags are in flags.go.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

package supervise

import "runtime"

// Until the command runs, bakeryctl waits in turn for bakeryd and for the stub. On several processors
// the Go runtime wakes a thread for each goroutine that could run, which costs more than all that
// they do.
//
// On one processor a fork stops all goroutines until the child has executed its program. The stub is
// this program and in memory, and checks the lease itself; the shell of a script may be on a disk that
// hangs.

// UseOneProcessor makes goroutines of this process run one at a time, until shortRun after the start
// of the command, or a script.
func UseOneProcessor() { runtime.GOMAXPROCS(1) }

// useAllProcessors ends that.
func useAllProcessors() { runtime.SetDefaultGOMAXPROCS() }

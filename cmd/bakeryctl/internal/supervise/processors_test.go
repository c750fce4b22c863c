package supervise

import (
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStartScript_OneProcessor_UsesAllAgain: the start of a shell on a disk that hangs must not keep
// this process from killing the command at the deadline.
func TestStartScript_OneProcessor_UsesAllAgain(t *testing.T) {
	all := runtime.GOMAXPROCS(0)
	UseOneProcessor()
	defer useAllProcessors()
	require.Equal(t, 1, runtime.GOMAXPROCS(0))
	o := Launch{Stdout: io.Discard, Stderr: io.Discard}.startScript("--on-lost", "true", nil)
	require.Equal(t, all, runtime.GOMAXPROCS(0))
	<-o.ended
}

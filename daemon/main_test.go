package daemon

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/bakeryd/bakeryd/test/schematest"
)

// answers checks the answers of all servers of this package.
var answers schematest.Checks

// TestMain runs more tests at once than there are processors, because most of their time is
// waiting.
func TestMain(m *testing.M) {
	flag.Parse()
	// A fuzzing process does not wait: there the number is that of the processes.
	if flag.Lookup("test.fuzz").Value.String() == "" {
		if err := flag.Set("test.parallel", strconv.Itoa(24)); err != nil {
			panic(err)
		}
	}
	schematest.API()
	// POST /v1/contain would move this process into a cgroup of the command: integration tests make
	// the call.
	os.Exit(answers.Report(os.Stderr, m.Run(), "POST /v1/contain"))
}

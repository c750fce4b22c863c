package daemon

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

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
	os.Exit(m.Run())
}

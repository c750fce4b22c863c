package daemon

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// TestMain lets more tests run at once than there are processors: much of what they do is to wait.
func TestMain(m *testing.M) {
	flag.Parse()
	// Who fuzzes waits for nothing: there it is how many processes are started.
	if flag.Lookup("test.fuzz").Value.String() == "" {
		if err := flag.Set("test.parallel", strconv.Itoa(24)); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

package daemon

import (
	"flag"
	"os"
	"testing"
)

// TestMain lets more tests run at once than there are processors: much of what they do is to wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

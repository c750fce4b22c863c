package daemon

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
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

// onOwnThread runs f on a thread that ends with it, whatever f makes of that. The first thread never ends, and is
// the process to others: if f would run there, it is kept busy until f has run elsewhere.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			f()
			return
		}
		done := make(chan struct{})
		onOwnThread(func() { defer close(done); f() })
		<-done
		runtime.UnlockOSThread()
	}()
}

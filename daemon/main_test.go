package daemon

import (
	"flag"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain lets more tests run at once than there are processors: much of what they do is to wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic(err)
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

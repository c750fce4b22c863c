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

// onOwnThread runs f on a thread that ends with it, whatever f changes on the thread. The first
// thread never ends, and represents the process to others. If f would run there, it is kept busy
// until f has run on another one.
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

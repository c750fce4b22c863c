package sanlock_test

import (
	"flag"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
)

// relayed names the socket that a process of these tests connects to instead of running them, and recorded a file to
// which it appends the name of each SIGTERM that it gets instead of ending.
const relayed, recorded = "SANLOCK_TEST_SOCKET", "SANLOCK_TEST_SIGNALS"

// TestMain runs more tests at once than there are processors, because most of their time is waiting.
func TestMain(m *testing.M) {
	if socket := os.Getenv(relayed); socket != "" {
		os.Exit(relay(socket, os.Getenv(recorded)))
	}
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(16)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// relay connects standard input and output with a socket, until the input ends. The end of the connection leaves the
// process as it is.
func relay(socket, record string) int {
	if record != "" {
		signals := make(chan os.Signal, 10)
		signal.Notify(signals, syscall.SIGTERM)
		go func() {
			for range signals {
				f, err := os.OpenFile(record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
				if err == nil {
					_, _ = io.WriteString(f, "SIGTERM\n")
					_ = f.Close()
				}
			}
		}()
	}
	c, err := net.Dial("unix", socket)
	if err != nil {
		_, _ = io.WriteString(os.Stderr, err.Error()+"\n")
		return 1
	}
	go func() { _, _ = io.Copy(os.Stdout, c) }()
	_, _ = io.Copy(c, os.Stdin)
	return 0
}

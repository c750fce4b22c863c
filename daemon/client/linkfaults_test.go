package client

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/test/clienttest"
)

// TestInheritAfterUnlock: Inherit is refused after Unlock, because the connection may hold another
// lock.
func TestInheritAfterUnlock(t *testing.T) {
	b := clienttest.Serve(t, clienttest.Holding)
	c := New(b.Socket)
	h, err := c.Lock(t.Context(), "x", Options{})
	require.NoError(t, err)
	require.NoError(t, h.Unlock())
	_, err = h.Inherit()
	require.Error(t, err)
}

// TestNewAgain: a program that calls New for each lock keeps no more connections than one that
// calls it once.
func TestNewAgain(t *testing.T) {
	b := clienttest.Serve(t, clienttest.Holding)
	for range 50 {
		h, err := New(b.Socket).Lock(t.Context(), "x", Options{})
		require.NoError(t, err)
		require.NoError(t, h.Unlock())
	}
	require.Equal(t, 1, b.Links())
	require.NotSame(t, New("relative"), New("relative"), "the working directory may change")
}

// TestUnlockWaitsForTheRelease even if onAlarm is called for the hold at that moment.
func TestUnlockWaitsForTheRelease(t *testing.T) {
	const slow = 300 * time.Millisecond
	c := New(serveSlow(t, slow))
	h, err := c.Lock(t.Context(), "x", Options{})
	require.NoError(t, err)
	// onAlarm of the client has seen that h is due and was preempted before h.onAlarm().
	c.pool.mu.Lock()
	c.pool.holds[h] = never
	c.pool.mu.Unlock()
	go func() {
		eventually(t, "Unlock", h.isClosed)
		h.onAlarm()
	}()
	begun := time.Now()
	err = h.Unlock()
	took := time.Since(begun)
	require.GreaterOrEqual(t, took, slow)
	if took < releaseTimeout { // the machine was not paused
		require.NoError(t, err)
	}
}

// TestRestartDuringWaitByIdleLink: bakeryd restarts before its first answer on a link that was
// idle.
func TestRestartDuringWaitByIdleLink(t *testing.T) {
	for _, pooled := range []bool{false, true} {
		var once sync.Once
		asked := make(chan struct{})
		script := func(x *exchange) {
			if x.Name == "wait" {
				once.Do(func() { close(asked) })
				<-x.Gone
				return
			}
			clienttest.Holding(x)
		}
		b := clienttest.Serve(t, script)
		c := New(b.Socket)
		if pooled {
			lockAndUnlock(t, c, Options{})
		}
		got := make(chan error, 1)
		go func() {
			h, err := c.Lock(t.Context(), "wait", Options{})
			if err == nil {
				err = h.Unlock()
			}
			got <- err
		}()
		<-asked
		b.Kill()
		b.Start(clienttest.Holding)
		require.NoError(t, <-got, "pooled %v", pooled)
	}
}

// serveSlow grants everything, and takes slow for each release.
func serveSlow(t *testing.T, slow time.Duration) string {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go slowly(c, slow)
		}
	}()
	return socket
}

func slowly(c net.Conn, slow time.Duration) {
	defer c.Close()
	fmt.Fprint(c, ok)
	in := bufio.NewReader(c)
	for {
		text, err := in.ReadString('\n')
		if err != nil {
			return
		}
		switch {
		case strings.HasPrefix(text, `{"lock"`):
			fmt.Fprintf(c, `{"event":"granted","name":"x","mode":"exclusive","token":"%v","host":1,"lease_ms":60000}`+"\n", token)
		case strings.HasPrefix(text, `{"unlock"`):
			time.Sleep(slow)
			fmt.Fprintln(c, `{"event":"released"}`)
		}
	}
}

// countingClock counts the calls of Now, each of which is a system call.
type countingClock struct {
	clock.Clock
	reads *atomic.Int64
}

func (c countingClock) Now() time.Duration {
	c.reads.Add(1)
	return c.Clock.Now()
}

// TestLockAndUnlock_ReadTheClockFourTimes in a process of its own, in which nothing else reads it.
func TestLockAndUnlock_ReadTheClockFourTimes(t *testing.T) {
	const alone = "BAKERY_TEST_ALONE"
	if os.Getenv(alone) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), alone+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	var reads atomic.Int64
	clock.Boottime = countingClock{clock.Boottime, &reads}
	c := New(serveSlow(t, 0))
	const cycles = 200
	begun := time.Now()
	for range cycles {
		h, err := c.Lock(t.Context(), "x", Options{})
		require.NoError(t, err)
		require.NoError(t, h.Unlock())
	}
	rings := int64(time.Since(begun)/readerAfter) + 1
	require.LessOrEqual(t, reads.Load(), 4*cycles+5*rings, "the request, the grant, Unlock, and the alarm")
}

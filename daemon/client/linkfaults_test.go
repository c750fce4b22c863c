package client

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/client/clienttest"
)

// TestInheritAfterUnlock: Unlock, then Inherit is refused: another lock may be held by the connection then.
func TestInheritAfterUnlock(t *testing.T) {
	b := clienttest.Serve(t, clienttest.Holding)
	c := New(b.Socket)
	h, err := c.Lock(t.Context(), "x", Options{})
	require.NoError(t, err)
	require.NoError(t, h.Unlock())
	_, err = h.Inherit()
	require.Error(t, err)
}

// TestNewAgain: a program that makes a client for each lock keeps no more connections than another one.
func TestNewAgain(t *testing.T) {
	b := clienttest.Serve(t, clienttest.Holding)
	for range 50 {
		h, err := New(b.Socket).Lock(t.Context(), "x", Options{})
		require.NoError(t, err)
		require.NoError(t, h.Unlock())
	}
	require.Equal(t, 1, b.Links())
	require.NotSame(t, New("relative"), New("relative"), "the working directory may be another one")
}

// TestUnlockWaitsForTheRelease: that the hold is attended to in the very moment does not end the wait.
func TestUnlockWaitsForTheRelease(t *testing.T) {
	const slow = 300 * time.Millisecond
	c := New(serveSlow(t, slow))
	h, err := c.Lock(t.Context(), "x", Options{})
	require.NoError(t, err)
	// attend() has taken h out of young and was preempted before h.attend().
	c.keeper.mu.Lock()
	delete(c.keeper.young, h)
	c.keeper.mu.Unlock()
	go func() {
		eventually(t, "Unlock", h.isClosed)
		h.attend()
	}()
	begun := time.Now()
	err = h.Unlock()
	took := time.Since(begun)
	require.GreaterOrEqual(t, took, slow)
	if took < releasePatience { // the machine did not stand still
		require.NoError(t, err)
	}
}

// TestRestartDuringWaitByIdleLink: a bakeryd that is restarted while it is asked by a link of another lock before it has said a word.
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

// serveSlow grants everything, and takes that long over each release.
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
			fmt.Fprintf(c, `{"event":"granted","name":"x","mode":"exclusive","token":"%v","host_id":1,"lease_ms":60000}`+"\n", token)
		case strings.HasPrefix(text, `{"unlock"`):
			time.Sleep(slow)
			fmt.Fprintln(c, `{"event":"released"}`)
		}
	}
}

package client

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/clienttest"
)

func lockAndUnlock(t *testing.T, c *Client, o Options) {
	t.Helper()
	h, err := c.Lock(t.Context(), "x", o)
	require.NoError(t, err)
	require.NoError(t, h.Unlock())
}

// readerStarted waits until a hold has a reader, as one that lasts does.
func readerStarted(t *testing.T, h *Hold) {
	t.Helper()
	eventually(t, "a goroutine that reads", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.followed
	})
}

func TestConnectionIsUsedAgain(t *testing.T) {
	b := clienttest.Serve(t, clienttest.Holding)
	c := New(b.Socket)
	for range 3 {
		lockAndUnlock(t, c, Options{})
	}
	h, err := c.Lock(t.Context(), "x", Options{})
	require.NoError(t, err)
	readerStarted(t, h)
	require.NoError(t, h.Unlock())
	lockAndUnlock(t, c, Options{})
	require.Equal(t, 1, b.Links())
	require.Equal(t, 5, b.Requests())
	require.False(t, b.Held())

	c.Close()
	lockAndUnlock(t, c, Options{})
	require.Equal(t, 2, b.Links())
}

// TestConnectionIsNotUsedAgain if another process may hold the lock by it.
func TestConnectionIsNotUsedAgain(t *testing.T) {
	b := clienttest.Serve(t, clienttest.Holding)
	c := New(b.Socket)
	lockAndUnlock(t, c, Options{Witness: true})
	h, err := c.Lock(t.Context(), "x", Options{})
	require.NoError(t, err)
	d, err := h.Inherit()
	require.NoError(t, err)
	require.NoError(t, h.Unlock())
	lockAndUnlock(t, c, Options{})
	require.Equal(t, 3, b.Links())
	require.True(t, b.Held())
	require.NoError(t, d.Close())
	b.AwaitRelease()
}

func TestRefusalLeavesTheConnection(t *testing.T) {
	b := clienttest.Serve(t, func(x *exchange) {
		if x.NonBlock {
			x.Refuse(api.CodeBusy, "held", "")
			return
		}
		clienttest.Holding(x)
	})
	c := New(b.Socket)
	for range 3 {
		_, err := c.Lock(t.Context(), "x", Options{NonBlock: true})
		require.ErrorIs(t, err, ErrBusy)
	}
	lockAndUnlock(t, c, Options{})
	require.Equal(t, 1, b.Links())
}

func TestLockAfterARestartOfBakeryd(t *testing.T) {
	t.Parallel()
	b := clienttest.Serve(t, clienttest.Holding)
	c := New(b.Socket)
	var holds []*Hold
	for range 3 {
		h, err := c.Lock(t.Context(), "x", Options{})
		require.NoError(t, err)
		holds = append(holds, h)
	}
	for _, h := range holds {
		require.NoError(t, h.Unlock())
	}
	b.Kill()
	b.Start(clienttest.Holding)
	lockAndUnlock(t, c, Options{})
	b.Kill()
	_, err := c.Lock(t.Context(), "x", Options{})
	require.ErrorIs(t, err, ErrUnreachable)
}

// TestUnlockOfABakerydThatHangs, as it does when the device hangs.
func TestUnlockOfABakerydThatHangs(t *testing.T) {
	t.Parallel()
	for name, lasts := range map[string]bool{"short": false, "followed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hang := make(chan struct{})
			b := clienttest.Serve(t, func(x *exchange) {
				x.Grant(time.Hour)
				<-x.Gone
				<-hang
			})
			t.Cleanup(func() { close(hang) })
			c := New(b.Socket)
			h, err := c.Lock(t.Context(), "x", Options{})
			require.NoError(t, err)
			if lasts {
				readerStarted(t, h)
			}
			begun := time.Now()
			err = h.Unlock()
			require.ErrorIs(t, err, ErrUnreachable)
			require.Equal(t, err, h.Unlock())
			require.GreaterOrEqual(t, time.Since(begun), releaseTimeout)
			require.NoError(t, h.Err(), "it was unlocked")
			require.Nil(t, c.takeLink())
		})
	}
}

// TestUnlockWhileTheConnectionBreaks is no error: the end of the connection also releases.
func TestUnlockWhileTheConnectionBreaks(t *testing.T) {
	for _, lasts := range []bool{false, true} {
		socket := serveRaw(t, func(c net.Conn) {
			_, _ = io.WriteString(c, ok+`{"event":"granted","name":"x","mode":"exclusive","token":"`+token.String()+`","host":1,"lease_ms":60000}`+"\n")
			_, _ = c.Read(make([]byte, 100))
		})
		h := mustLock(t, socket, Options{})
		if lasts {
			readerStarted(t, h)
		}
		begun := time.Now()
		require.NoError(t, h.Unlock())
		require.Less(t, time.Since(begun), releaseTimeout)
		require.NoError(t, h.Err())
	}
}

// TestIdleClientKeepsNothing: no descriptor and no goroutine.
func TestIdleClientKeepsNothing(t *testing.T) {
	b := clienttest.Serve(t, clienttest.Holding)
	c := New(b.Socket)
	var all sync.WaitGroup
	for range 3 * maxIdle {
		all.Go(func() {
			for range 5 {
				h, err := c.Lock(t.Context(), "x", Options{})
				if err != nil {
					t.Error(err)
					return
				}
				if err := h.Unlock(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	k := &c.pool
	k.mu.Lock()
	require.NotEmpty(t, k.idle)
	require.LessOrEqual(t, len(k.idle), maxIdle)
	require.Empty(t, k.holds)
	for _, l := range k.idle { // as if time had passed
		l.idle -= idleFor
	}
	alarm := k.alarm
	k.mu.Unlock()
	require.False(t, c.onAlarm(alarm))
	k.mu.Lock()
	defer k.mu.Unlock()
	require.Empty(t, k.idle)
	require.Nil(t, k.alarm)
}

// TestAlarmIsForAll: the holds of a client share one alarm.
func TestAlarmIsForAll(t *testing.T) {
	t.Parallel()
	leases := map[string]time.Duration{"long": time.Hour, "short": 300 * time.Millisecond, "middle": 600 * time.Millisecond}
	b := clienttest.Serve(t, func(x *exchange) {
		x.Grant(leases[x.Name])
		<-x.Gone
	})
	c := New(b.Socket)
	holds := map[string]*Hold{}
	for _, name := range []string{"long", "short", "middle"} {
		h, err := c.Lock(t.Context(), name, Options{})
		require.NoError(t, err)
		holds[name] = h
	}
	for _, name := range []string{"short", "middle"} {
		wait(t, holds[name].Lost(), "the end of "+name)
		if late := -time.Until(holds[name].Deadline()); late < 0 {
			t.Errorf("%s is lost %v too soon", name, -late)
		}
	}
	require.NoError(t, holds["long"].Err())
	for _, h := range holds {
		require.NoError(t, h.Unlock())
	}
}

// TestSocket_ShortWaits_UseThePollerOnlyForLongOnes: and not again once waits are short.
func TestSocket_ShortWaits_UseThePollerOnlyForLongOnes(t *testing.T) {
	wake := make(chan struct{}, 1)
	b := clienttest.Serve(t, func(x *exchange) {
		if x.NonBlock {
			<-wake
		}
		clienttest.Holding(x)
	})
	c := New(b.Socket)
	lockAndUnlock(t, c, Options{})
	time.AfterFunc(20*shortWait*time.Millisecond, func() { wake <- struct{}{} })
	h, err := c.Lock(t.Context(), "x", Options{NonBlock: true})
	require.NoError(t, err)
	require.True(t, h.link.conn.isPolled())
	require.NoError(t, h.Unlock())
	eventually(t, "answers that come in time", func() bool {
		lockAndUnlock(t, c, Options{})
		l := c.takeLink()
		defer c.putLink(l, clock.Boottime.Now())
		return !l.conn.isPolled()
	})
	require.Equal(t, 1, b.Links())
}

// TestSocket_QuickAnswer_NextReadSpins: a late one ends that.
func TestSocket_QuickAnswer_NextReadSpins(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // on one processor no read spins
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	f, err := unpolled(uintptr(fds[0]))
	require.NoError(t, err)
	s := &socket{file: f}
	defer s.Close()
	answer := func() {
		_, err := unix.Write(fds[1], []byte("x"))
		require.NoError(t, err)
	}
	read := func() {
		n, err := s.readSoon(make([]byte, 1))
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	readLate := func(after time.Duration) {
		go func() {
			for waiting.Load() == 0 {
				runtime.Gosched()
			}
			time.Sleep(after)
			answer()
		}()
		read()
	}
	eventually(t, "a late answer for which the kernel waited", func() bool {
		eventually(t, "an answer in time", func() bool {
			answer()
			read()
			return s.quick
		})
		s.kernelReads = 0
		readLate(2 * spin)
		require.False(t, s.quick)
		return s.kernelReads > 0
	})
	eventually(t, "an answer in time", func() bool {
		answer()
		read()
		return s.quick
	})
	readLate(10 * shortWait * time.Millisecond)
	require.False(t, s.quick)
	require.Zero(t, s.kernelReads, "the poller waited")

	if runtime.NumCPU() == 1 {
		return // the answer comes once the read sleeps
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sleeps := func() int64 {
		var u unix.Rusage
		require.NoError(t, unix.Getrusage(unix.RUSAGE_THREAD, &u))
		return u.Nvcsw
	}
	awake := func() bool { // although the answer comes later than the read begins
		s.quick = true
		var reads, ready atomic.Bool
		go func() {
			for ready.Store(true); !reads.Load(); {
			}
			for begun := time.Now(); time.Since(begun) < spin/3; {
			}
			answer()
		}()
		for !ready.Load() {
			runtime.Gosched()
		}
		before := sleeps()
		reads.Store(true)
		read()
		return sleeps() == before
	}
	eventually(t, "reads that do not sleep", func() bool {
		n := 0
		for range 20 {
			if awake() {
				n++
			}
		}
		return n > 10
	})
}

func (s *socket) isPolled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrivals != nil
}

func TestClosedSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer ln.Close()
	for _, how := range []string{"soon", "polled"} {
		s, err := dialSocket(t.Context(), path)
		require.NoError(t, err)
		peer, err := ln.Accept()
		require.NoError(t, err)
		read := make(chan error, 1)
		go func() {
			var err error
			if how == "soon" {
				_, err = s.readSoon(make([]byte, 1))
			} else {
				_, err = s.Read(make([]byte, 1))
			}
			read <- err
		}()
		time.Sleep(time.Millisecond)
		require.NoError(t, s.Close())
		select {
		case err := <-read:
			require.Error(t, err)
		case <-time.After(soon):
			t.Fatal("a read outlives the connection")
		}
		require.NoError(t, peer.SetReadDeadline(time.Now().Add(soon)))
		_, err = peer.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "every descriptor is closed")
		_, err = s.Write([]byte("x"))
		require.ErrorIs(t, err, net.ErrClosed)
		peer.Close()
	}
}

// FuzzRequest: a request decodes to the same values.
func FuzzRequest(f *testing.F) {
	f.Add("db/ä <1>", true, int64(5), 2, 99, "sh -c 'x && y'", uint8(3))
	f.Add("", false, int64(0), 0, 0, "", uint8(16))
	f.Fuzz(func(t *testing.T, name string, nonblock bool, timeout int64, permits, pid int, command string, kind uint8) {
		o := Options{Mode: Mode(kind % 2), NonBlock: nonblock, Permits: permits, PID: pid, Command: command, Witness: kind&2 != 0, Requests: kind&4 != 0,
			NoLinger: kind&16 != 0, Session: NewSession(), Timeout: time.Duration(timeout)}
		r := o.request(name)
		if kind&8 != 0 {
			r.Token = token
		}
		text := r.Append(nil)
		require.NotContains(t, string(text), "\n")
		var got clienttest.Request
		require.NoError(t, json.Unmarshal(text, &got), "%q", text)
		want := clienttest.Request{Name: strings.ToValidUTF8(name, "\ufffd"), Mode: r.Mode, NonBlock: nonblock, TimeoutMS: ceilMillis(time.Duration(timeout)),
			Permits: permits, PID: pid, Command: layout.TruncateCommand(command), Session: o.Session, Token: r.Token, Witness: o.Witness, Requests: o.Requests,
			NoLinger: o.NoLinger}
		if strings.ToValidUTF8(name, "") == name {
			require.Equal(t, want, got)
		}
	})
}

// TestNoLinks: a server of another protocol is not taken for an unreachable one.
func TestNoLinks(t *testing.T) {
	socket := serveRaw(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
	})
	_, err := New(socket).Lock(t.Context(), "x", Options{})
	if !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), "older than this client") {
		t.Errorf("error %v", err)
	}
}

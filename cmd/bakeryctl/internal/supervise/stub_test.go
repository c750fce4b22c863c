package supervise

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestMayStart(t *testing.T) {
	const until = 5 * time.Second
	for now, want := range map[time.Duration]bool{0: true, until - 1: true, until: false, until + 1: false} {
		if got := mayStart(now, until); got != want {
			t.Errorf("mayStart(%v, %v) = %v", now, until, got)
		}
	}
	if mayStart(time.Second, 0) {
		t.Error("mayStart under a lost hold: true, want false")
	}
}

// stubPair returns a wrapper's side of a stub, and the stub's end of its socket.
func stubPair(t *testing.T) (*command, channel) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]channel
	for i := range ends {
		if err := unix.SetNonblock(pair[i], true); err != nil {
			t.Fatal(err)
		}
		ends[i] = channel{os.NewFile(uintptr(pair[i]), "stub")}
		t.Cleanup(func() { _ = ends[i].Close() })
	}
	return &command{stub: ends[0]}, ends[1]
}

func TestChannel_Messages_ArriveAsSent(t *testing.T) {
	s, stub := stubPair(t)
	file, err := os.Open("/dev/null")
	require.NoError(t, err)
	defer file.Close()
	for _, order := range []stubOrder{
		{Contain: "session", Socket: "/run/a b", Env: []string{}},
		{Until: 1<<63 - 1, Env: []string{"A=", "B=x\ny=z"}},
	} {
		require.NoError(t, s.stub.send(order.fields(), int(file.Fd())))
		fields, fd, err := stub.receive()
		require.NoError(t, err)
		got, err := parseOrder(fields)
		require.NoError(t, err)
		require.Equal(t, order, got)
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		require.NoError(t, err)
		require.NotZero(t, flags&unix.FD_CLOEXEC, "the command inherits it")
		require.NoError(t, unix.Close(fd))
	}
	for _, answer := range []stubAnswer{{}, {Weak: "it runs: \nno"}, {Late: true}, {Errno: unix.ENOEXEC}} {
		require.NoError(t, stub.send(answer.fields(), -1))
		got, err := s.receiveAnswer()
		require.NoError(t, err)
		require.Equal(t, answer, got)
	}
	require.NoError(t, stub.send([]string{"false", "0", "a", "b"}, -1))
	_, err = s.receiveAnswer()
	require.EqualError(t, err, "answer of 4 fields")
	require.NoError(t, stub.Close())
	_, _, err = s.stub.receive()
	require.ErrorIs(t, err, io.EOF)
	require.ErrorIs(t, s.stub.send([]string{"x"}, -1), unix.EPIPE)
}

// A stub that was stopped answers its order to contain itself too late.
func TestCommand_AnswerToAnEarlierOrder_IsSkipped(t *testing.T) {
	s, stub := stubPair(t)
	for _, answer := range []stubAnswer{{}, {Weak: "no"}, {Late: true}} {
		if err := stub.send(answer.fields(), -1); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.answer(&Grant{Held: lasting{}}); err != nil || !got.Late {
		t.Errorf("answer %+v, %v", got, err)
	}
}

// lasting is a hold that is never lost.
type lasting struct{ Held }

func (lasting) StopAt() time.Duration { return 1 << 62 }

func (lasting) Warned() <-chan struct{} { return nil }

func (lasting) Lost() <-chan struct{} { return nil }

// The running command must then be stopped as a command, with all its descendants.
func TestCommand_MustStopAsTheCommandStarts_HasStarted(t *testing.T) {
	for begun, want := range map[bool]error{true: nil, false: errTooLate} {
		s, stub := stubPair(t)
		if begun { // the end of file is there, and the wrapper reads it too late
			if err := unix.Shutdown(int(stub.Fd()), unix.SHUT_WR); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.stub.SetReadDeadline(time.Unix(1, 0)); err != nil { // as answer does
			t.Fatal(err)
		}
		if err := s.begin(&Grant{Held: lasting{}}, nil); !errors.Is(err, want) {
			t.Errorf("begun %v: %v, want %v", begun, err, want)
		}
	}
}

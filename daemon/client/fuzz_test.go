package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
)

const accepted = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: bakery-link/1\r\n\r\n"

var answers = []string{
	accepted + `{"event":"granted","name":"x","mode":"exclusive","token":"3676650270761156864","host":1,"lease_ms":29870}` + "\n",
	accepted + `{"event":"waiting","ahead":1}` + "\n" + `{"event":"refused","code":"busy","message":"\u001b[2J"}` + "\n",
	accepted + `{"event":"granted"}` + "\n", accepted + `{"event":"lost"}` + "\n" + accepted, accepted + "\n\n[]\n",
	"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 56\r\n\r\n" + `{"error":{"code":"unavailable","message":"m","hint":""}}`,
	"HTTP/1.1 404 Not Found\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n", "HTTP/1.1 426 X\r\n\r\n{\"error\":null}", "SSH-2.0-x\r\n", "",
}

// requireKnown checks that err wraps one of the package's errors, whatever the server sends.
func requireKnown(t *testing.T, err error, text []byte) {
	t.Helper()
	var refused *Error
	known := errors.As(err, &refused) && refused.Code != "" || errors.Is(err, ErrProtocol) || errors.Is(err, ErrUnreachable)
	require.True(t, known, "%q: %v", text, err)
}

// FuzzAnswer reads arbitrary answers to a call.
func FuzzAnswer(f *testing.F) { // 15000x
	for _, text := range answers {
		f.Add([]byte(text))
	}
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var answer struct{ Name string }
		r, _, err := roundTrip(struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(text), io.Discard}, nil, maxCall)
		if err == nil {
			err = decode(r, &answer)
		}
		if err != nil {
			requireKnown(t, err, text)
		}
	})
}

// FuzzLink reads arbitrary answers to a request for a lock: a grant has a token, and everything
// else is a known error.
func FuzzLink(f *testing.F) { // 8000x
	for _, text := range answers {
		f.Add([]byte(text))
	}
	path := filepath.Join(f.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	require.NoError(f, err)
	f.Cleanup(func() { ln.Close() })
	f.Fuzz(func(t *testing.T, text []byte) {
		conn, err := dialSocket(context.Background(), path)
		require.NoError(t, err)
		defer conn.Close()
		l := &link{conn: conn}
		server, err := ln.Accept()
		require.NoError(t, err)
		go func() {
			_, _ = server.Write(text) // the client may have closed the connection
			server.Close()
		}()
		e, err := l.awaitGrant(func(api.Event) {})
		if err != nil {
			requireKnown(t, err, text)
			return
		}
		require.NotZero(t, e.Token)
		require.LessOrEqual(t, l.until(clock.Boottime.Now(), e)-l.asked, believable(1<<62)+slack)
		require.GreaterOrEqual(t, believable(e.GraceMS), believable(0))
	})
}

// slack is how long a test may take between a request and its effect.
const slack = soon

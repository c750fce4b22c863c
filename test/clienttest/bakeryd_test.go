package clienttest

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBakeryd_KilledWhileAForkedProcessHasItsDescriptors_BreaksConnections(t *testing.T) {
	b := Serve(t, Holding)
	c, err := net.Dial("unix", b.Socket)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, err = io.WriteString(c, "GET /v1/link HTTP/1.1\r\nHost: bakeryd\r\nConnection: Upgrade\r\nUpgrade: bakery-link/1\r\n\r\n")
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 1)) // then the link exists
	require.NoError(t, err)
	b.mu.Lock()
	for linked := range b.linked {
		copied, err := linked.(*net.UnixConn).File()
		require.NoError(t, err)
		defer func() { _ = copied.Close() }()
	}
	require.Len(t, b.linked, 1)
	b.mu.Unlock()
	b.Kill()
	_, err = io.ReadAll(c)
	require.NoError(t, err)
}

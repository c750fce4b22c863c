package daemon

import (
	"context"
	"net"
	"testing"
)

// removing starts a removal, and returns a channel with its outcome.
func removing(t *testing.T, d *Host, name string, try bool) <-chan error {
	t.Helper()
	out := make(chan error, 1)
	go func() { out <- d.Remove(t.Context(), name, try) }()
	return out
}

func ended(t *testing.T, c <-chan error) error {
	t.Helper()
	return received(t, "the removal", c)
}

func oneConn(c net.Conn) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) { return c, nil }
}

// Package call makes calls of bakeryd for which package client has no method, and gives the errors
// of all calls an exit code and a hint. It has the flag that names the socket. It imports cli of
// bakeryctl, the client and its errors.
package call

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/daemon/client"
)

// SocketFlag adds the flag that names bakeryd's socket.
func SocketFlag(f *pflag.FlagSet, socket *string) {
	f.StringVar(socket, "socket", DefaultSocket(), "`PATH` of bakeryd's socket; also from BAKERY_SOCKET")
}

// DefaultSocket returns the socket of a command without that flag.
func DefaultSocket() string { return cmp.Or(os.Getenv("BAKERY_SOCKET"), client.DefaultSocket) }

// Hints for a bakeryd that does not answer.
const (
	hintDown   = "is bakeryd running? See systemctl status bakeryd; --socket names another socket"
	hintSilent = "bakeryd is stopped or hangs: see systemctl status bakeryd and journalctl -u bakeryd"
	hintClosed = "the socket is for root and bakeryd's own user"
	orDevice   = "; or use --device"
)

// Ask makes a call of the bakeryd at socket, as Wait does. Its errors are *cli.Failure.
func Ask(ctx context.Context, socket, method, path string, body, answer any) error {
	err := Wait(ctx, socket, func(ctx context.Context) error { return client.New(socket).Call(ctx, method, path, body, answer) })
	if err != nil {
		return Failure(err)
	}
	return nil
}

// Unreachable returns the failure of a bakeryd whose answer ended early or cannot be read.
func Unreachable(err error) *cli.Failure {
	return Failure(fmt.Errorf("%w: %w", client.ErrUnreachable, err))
}

// advice has no refusal: those bring their own.
var advice = []cli.Advice{
	{Err: client.ErrLost, Code: cli.ExitLost},
	{Err: client.ErrTimeout, Code: cli.ExitConflict},
	{Err: syscall.EACCES, Hint: hintClosed},
	{Err: syscall.EINVAL, Hint: "a path of a socket has 107 bytes at most"},
	{Err: client.ErrNoAnswer, Hint: hintSilent},
	{Err: syscall.EAGAIN, Hint: hintSilent}, // it accepts no connections
	{Err: client.ErrUnreachable, Hint: hintDown},
	{Err: context.DeadlineExceeded, Hint: hintSilent},
}

// Failure gives an error of the client its exit code and hint.
func Failure(err error) *cli.Failure {
	if refusal, ok := errors.AsType[*client.Error](err); ok {
		return &cli.Failure{Code: refusal.ExitCode(), Err: err, Hint: refusal.Hint}
	}
	f := cli.Advise(err, cli.ExitUnavailable, advice)
	if f.Hint == hintClosed {
		f.Hint = closedHint(err)
	}
	return f
}

// OrDevice adds to the hint of a bakeryd that does not answer that the command can read the device
// itself.
func OrDevice(err error) error {
	var f *cli.Failure
	if errors.As(err, &f) && (f.Hint == hintDown || f.Hint == hintSilent) {
		f.Hint += orDevice
	}
	return err
}

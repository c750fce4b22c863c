package call

import (
	"errors"
	"syscall"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/client"
)

// Failure gives an error of a call of bakeryd's an exit code and a hint.
func Failure(err error) *cli.Failure {
	f, code := failure(err, hintDown)
	switch code {
	case api.CodeBusy, api.CodeTimeout, api.CodeMissing:
		f.Code = cli.ExitConflict
	}
	return f
}

// Refused gives the error of a request for a lock an exit code: conflict if the lock was not free
// in time.
func Refused(err error, conflict int) *cli.Failure {
	if errors.Is(err, client.ErrBusy) || errors.Is(err, client.ErrTimeout) {
		return &cli.Failure{Code: conflict} // silent, as flock(1) is
	}
	f, code := failure(err, "is bakeryd running? See systemctl status bakeryd; --socket names another socket")
	if code == api.CodeLost {
		f.Code = cli.ExitLost
	}
	return f
}

// failure is what the errors of all calls have in common, and the code of a refusal. down is the
// hint if bakeryd does not run.
func failure(err error, down string) (*cli.Failure, string) {
	f := &cli.Failure{Code: cli.ExitUnavailable, Err: err}
	var refusal *client.Error
	switch {
	case errors.As(err, &refusal):
		f.Hint = refusal.Hint
		switch refusal.Code {
		case api.CodeInvalid:
			f.Code = cli.ExitUsage
		case api.CodeDevice, api.CodeFull:
			f.Code = cli.ExitNoDevice
		case api.CodeForbidden:
			f.Code = cli.ExitForbidden
		}
	case errors.Is(err, syscall.EACCES):
		f.Hint = hintClosed
	case errors.Is(err, client.ErrUnreachable):
		f.Hint = down
	}
	if refusal != nil {
		return f, refusal.Code
	}
	return f, ""
}

// HoldFailure gives the error of a change of a hold, or of a question about a lock, an exit code.
func HoldFailure(err error) error {
	if err == nil {
		return nil
	}
	f := Refused(err, 0)
	switch {
	case errors.Is(err, client.ErrUpgrade), errors.Is(err, client.ErrNoLock):
		f.Code = cli.ExitConflict
	case errors.Is(err, client.ErrLost):
		f.Code = cli.ExitLost
	}
	return f
}

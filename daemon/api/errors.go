// Package api is what bakeryd and its clients agree on: the refusals with their codes, HTTP statuses and exit codes, and the
// events. It imports nothing that serves or connects.
package api

import (
	"errors"
	"fmt"
	"net/http"
)

// The reasons why bakeryd refuses; compare with errors.Is. The table below says how each looks to a client.
var (
	// ErrInvalid is returned when a request cannot be carried out by anybody: a bad name, say.
	ErrInvalid = errors.New("invalid request")
	// ErrForbidden is returned when the user of the calling process may not do that.
	ErrForbidden = errors.New("not allowed")
	// ErrBusy is returned when a lock is not free and the request was not to wait.
	ErrBusy = errors.New("the lock is busy")
	// ErrTimeout is returned when a lock was not free in time.
	ErrTimeout = errors.New("the lock was not free in time")
	// ErrFull is returned when a lock does not exist and the directory has no room for it.
	ErrFull = errors.New("the lock directory is full")
	// ErrPermits is returned when a request names other permits than the lock has.
	ErrPermits = errors.New("the lock has other permits")
	// ErrFree is returned when a lock is requested of its holders, and has none.
	ErrFree = errors.New("the lock has no holder")
	// ErrNoLock is returned when no lock has that name.
	ErrNoLock = errors.New("no such lock")
	// ErrUnavailable is returned when this host is not, or no longer, in the lockspace.
	ErrUnavailable = errors.New("not joined to the lockspace")
	// ErrJoining is returned while this host is joining the lockspace.
	ErrJoining = fmt.Errorf("%w: it is still joining", ErrUnavailable)
	// ErrOverload is returned when clients have all descriptors, or sessions, that are for them.
	ErrOverload = errors.New("too many clients")
	// ErrStuck is returned when IO of a lock's sectors was stuck for so long that it ended the lease.
	ErrStuck = errors.New("IO of the lock did not end in time")
	// ErrUncontained is returned when bakeryd cannot put a command into a cgroup.
	ErrUncontained = errors.New("bakeryd cannot contain the command")
	// ErrUnconfirmed is returned when a client did not confirm its grant in time.
	ErrUnconfirmed = errors.New("the grant was not confirmed in time, and the lock passed on")
	// ErrLost is returned when a hold is over that was not released.
	ErrLost = errors.New("lock lost")
	// ErrLeaseLost is returned when the lease was lost, and every hold with it.
	ErrLeaseLost = errors.New("the lease was lost")
	// ErrMeeting is returned when this host takes part in a check of coherence already.
	ErrMeeting = errors.New("this host is meeting another one now")
	// ErrUpgrade is returned when a shared hold cannot become an exclusive one, for others take part in the lock.
	ErrUpgrade = errors.New("the lock is not held alone")
	// ErrUnreadable is returned when a slot that may have the answer cannot be read.
	ErrUnreadable = errors.New("a slot cannot be read")
	// ErrDamaged is returned when a lock cannot be looked up or created for the damage on the disk.
	ErrDamaged = errors.New("the lock directory is damaged")
)

// The codes of an Error.
const (
	CodeInvalid     = "invalid"     // the request is wrong, the name for one
	CodeForbidden   = "forbidden"   // the user may not do that
	CodeBusy        = "busy"        // the lock was wanted at once, and is held
	CodeTimeout     = "timeout"     // the lock was not granted in time
	CodeFull        = "full"        // the lock directory is full
	CodePermits     = "permits"     // the lock has another number of permits
	CodeFree        = "free"        // the lock has no holder
	CodeMissing     = "missing"     // no lock has that name
	CodeUnavailable = "unavailable" // not joined, lease lost, shutting down, too many clients
	CodeUnconfirmed = "unconfirmed" // the grant was not confirmed in time, and the lock passed on
	CodeLost        = "lost"        // the hold that was to be changed or resumed is over
	CodeMeeting     = "meeting"     // another check of coherence is under way
	CodeUpgrade     = "upgrade"     // the hold cannot become an exclusive one
	CodeDevice      = "device"      // the device fails, or something on it is damaged
)

// Exit codes of a command that bakeryd refuses, as in sysexits(3) and flock(1).
const (
	exitConflict    = 1
	exitUsage       = 64
	exitNoDevice    = 66
	exitUnavailable = 69
	exitLost        = 75
	exitForbidden   = 77
)

// codes has the HTTP status and the exit code of each code.
var codes = []struct {
	code         string
	status, exit int
}{
	{CodeInvalid, http.StatusBadRequest, exitUsage},
	{CodeForbidden, http.StatusForbidden, exitForbidden},
	{CodeBusy, http.StatusOK, exitConflict},
	{CodeTimeout, http.StatusOK, exitConflict},
	{CodeFull, http.StatusInsufficientStorage, exitNoDevice},
	{CodePermits, http.StatusConflict, exitUnavailable},
	{CodeFree, http.StatusConflict, exitConflict},
	{CodeMissing, http.StatusNotFound, exitConflict},
	{CodeUnavailable, http.StatusServiceUnavailable, exitUnavailable},
	{CodeUnconfirmed, http.StatusConflict, exitUnavailable},
	{CodeLost, http.StatusGone, exitLost},
	{CodeMeeting, http.StatusConflict, exitUnavailable},
	{CodeUpgrade, http.StatusConflict, exitConflict},
	{CodeDevice, http.StatusInternalServerError, exitNoDevice},
}

// Codes returns all codes.
func Codes() (all []string) {
	for _, row := range codes {
		all = append(all, row.code)
	}
	return all
}

const (
	hintLog    = "see the log of bakeryd"
	hintRecord = "bakeryctl check names the damaged record and what to do about it"
	hintDevice = "dmesg and the log of bakeryd tell what is wrong with the device"
)

type row struct {
	err        error
	code, hint string
}

// table has the code and the hint of each error. The first row that an error is counts.
var table = []row{
	{ErrInvalid, CodeInvalid, ""},
	{ErrForbidden, CodeForbidden, ""},
	{ErrBusy, CodeBusy, ""},
	{ErrTimeout, CodeTimeout, ""},
	{ErrFull, CodeFull, "remove a lock that is not used any more, or format with more --locks"},
	{ErrPermits, CodePermits, "all who use a lock must agree on its permits"},
	{ErrFree, CodeFree, "acquire it: it is free"},
	{ErrNoLock, CodeMissing, "bakeryctl locks lists them"},
	{ErrJoining, CodeUnavailable, "try again: it takes a moment, and after a crash or on a slow device more than a lease; its log says how long"},
	{ErrOverload, CodeUnavailable, "end clients, or raise LimitNOFILE= of bakeryd's unit (ulimit -n)"},
	{ErrStuck, CodeUnavailable, "take the lock on another host; dmesg here and bakeryctl check tell what is wrong with that sector"},
	{ErrUnavailable, CodeUnavailable, hintLog},
	{ErrUncontained, CodeUnavailable, ""},
	{ErrUnconfirmed, CodeUnconfirmed, "ask again"},
	{ErrLost, CodeLost, "the lock is not held any more: stop what needs it"},
	{ErrLeaseLost, CodeUnavailable, hintLog},
	{ErrMeeting, CodeMeeting, "try again when that is over"},
	{ErrUpgrade, CodeUpgrade, "release it and take it exclusively, or try again"},
	{ErrUnreadable, CodeDevice, hintRecord},
	{ErrDamaged, CodeDevice, hintRecord},
}

// Error is a refusal as clients read it.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // what to do about it, if anything
}

// ErrorOf returns the refusal that stands for an error. One that is in no row is the device's. An error with a method
// Hint brings its own hint.
func ErrorOf(err error) *Error {
	e := &Error{Code: CodeDevice, Message: err.Error(), Hint: hintDevice}
	for _, row := range table {
		if errors.Is(err, row.err) {
			e.Code, e.Hint = row.code, row.hint
			break
		}
	}
	var own interface{ Hint() string }
	if errors.As(err, &own) {
		e.Hint = own.Hint()
	}
	return e
}

func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("refused by bakeryd: %q", e.Code)
	}
	return e.Message
}

// Is makes errors.Is find the errors that a code stands for, if it is clear which.
func (e *Error) Is(target error) bool {
	switch e.Code {
	case CodeUnavailable, CodeDevice:
		return false
	}
	for _, row := range table {
		if row.code == e.Code {
			return target == row.err
		}
	}
	return false
}

// Status returns the HTTP status of the refusal.
func (e *Error) Status() int {
	for _, row := range codes {
		if row.code == e.Code {
			return row.status
		}
	}
	return http.StatusInternalServerError
}

// ExitCode returns the exit code of a command that is refused so. Of a code that a newer bakeryd uses it returns that
// of CodeUnavailable.
func (e *Error) ExitCode() int {
	for _, row := range codes {
		if row.code == e.Code {
			return row.exit
		}
	}
	return exitUnavailable
}

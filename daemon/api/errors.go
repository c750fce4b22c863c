// Package api has the contract between bakeryd and its clients: the refusals with their codes, HTTP
// statuses and exit codes, and the events. It does not import net/http, which would make the start of
// every client longer. Start reading at ErrorOf and Event.
package api

import (
	"errors"
	"fmt"
	"slices"
)

// The reasons of refusals, for errors.Is. The table below has the code and the hint of each.
var (
	// ErrInvalid is returned when a request is invalid for every client, as with a bad name.
	ErrInvalid = errors.New("invalid request")
	// ErrForbidden is returned when the policy does not allow the request to the user of the
	// calling process.
	ErrForbidden = errors.New("not allowed")
	// ErrBusy is returned when a lock is not free and the request was not to wait.
	ErrBusy = errors.New("the lock is busy")
	// ErrTimeout is returned when a lock was not free in time.
	ErrTimeout = errors.New("the lock was not free in time")
	// ErrFull is returned when a lock does not exist and the directory has no room for it.
	ErrFull = errors.New("the lock directory is full")
	// ErrPermits is returned when a request names other permits than the lock has.
	ErrPermits = errors.New("the lock has other permits")
	// ErrValue is returned when a lock has a value and was to be removed only without one.
	ErrValue = errors.New("the lock has a value")
	// ErrFree is returned when the holders of a lock are asked to release it and it has none.
	ErrFree = errors.New("the lock has no holder")
	// ErrNoLock is returned when no lock has the name.
	ErrNoLock = errors.New("no such lock")
	// ErrUnavailable is returned when this host is not, or no longer, in the lockspace.
	ErrUnavailable = errors.New("not joined to the lockspace")
	// ErrJoining is returned while this host is joining the lockspace.
	ErrJoining = fmt.Errorf("%w: it is still joining", ErrUnavailable)
	// ErrOverload is returned when clients use all descriptors or sessions that bakeryd has for
	// them.
	ErrOverload = errors.New("too many clients")
	// ErrStuck is returned when IO of a lock's sectors took until the end of the lease.
	ErrStuck = errors.New("IO of the lock did not end in time")
	// ErrInFlight is returned when this host can create and remove no lock, because a copy of the last
	// entry that it wrote is in flight to a member disk.
	ErrInFlight = errors.New("a write of the lock directory has not returned from a member disk")
	// ErrIntended is returned when a lock cannot be removed, because another host intends its entry.
	ErrIntended = errors.New("another host may still write the entry of the lock")
	// ErrUncontained is returned when bakeryd cannot put a command into a cgroup.
	ErrUncontained = errors.New("bakeryd cannot contain the command")
	// ErrUnconfirmed is returned when a client did not confirm its grant in time.
	ErrUnconfirmed = errors.New("the grant was not confirmed in time, and another client may have the lock")
	// ErrLost is returned when a hold ended without a release.
	ErrLost = errors.New("lock lost")
	// ErrLeaseLost is returned when the lease was lost, and every hold with it.
	ErrLeaseLost = errors.New("the lease was lost")
	// ErrCoherenceCheck is returned when this host is already in a coherence check.
	ErrCoherenceCheck = errors.New("this host is in another coherence check")
	// ErrUpgrade is returned when a shared hold cannot become exclusive because others hold the
	// lock or wait for it.
	ErrUpgrade = errors.New("the lock is not held alone")
	// ErrUnreadable is returned when a slot that may have the requested value cannot be read.
	ErrUnreadable = errors.New("a slot cannot be read")
	// ErrDamaged is returned when a damaged directory entry prevents finding or creating a
	// lock.
	ErrDamaged = errors.New("the lock directory is damaged")
)

// The codes of an Error.
const (
	CodeInvalid        = "invalid"         // the request is invalid, as with a bad name
	CodeForbidden      = "forbidden"       // the policy does not allow it to the user
	CodeBusy           = "busy"            // the lock is held, and the request does not wait
	CodeTimeout        = "timeout"         // the lock was not granted in time
	CodeFull           = "full"            // the lock directory is full
	CodePermits        = "permits"         // the lock has another number of permits
	CodeValue          = "value"           // the lock has a value
	CodeFree           = "free"            // the lock has no holder
	CodeMissing        = "missing"         // no lock has the name
	CodeUnavailable    = "unavailable"     // not joined, lease lost, shutting down, too many clients
	CodeUnconfirmed    = "unconfirmed"     // the grant was not confirmed in time, and another client may have the lock
	CodeLost           = "lost"            // the hold to change or resume has ended
	CodeCoherenceCheck = "coherence_check" // another coherence check is running
	CodeUpgrade        = "upgrade"         // the hold cannot become exclusive
	CodeDevice         = "device"          // the device fails, or something on it is damaged
)

// The exit codes of a command that bakeryd refuses, as in sysexits(3) and flock(1).
const (
	exitConflict    = 1
	exitUsage       = 64
	exitNoDevice    = 66
	exitUnavailable = 69
	exitLost        = 75
	exitForbidden   = 77
)

// The HTTP statuses of refusals.
const (
	statusOK                  = 200
	statusBadRequest          = 400
	statusForbidden           = 403
	statusNotFound            = 404
	statusConflict            = 409
	statusGone                = 410
	statusInternalServerError = 500
	statusServiceUnavailable  = 503
	statusInsufficientStorage = 507
)

// codes has the HTTP status and the exit code of each code. It is no map: that would be made at the
// start of every client.
var codes = [...]struct {
	code         string
	status, exit int
}{
	{CodeInvalid, statusBadRequest, exitUsage},
	{CodeForbidden, statusForbidden, exitForbidden},
	{CodeBusy, statusOK, exitConflict},
	{CodeTimeout, statusOK, exitConflict},
	{CodeFull, statusInsufficientStorage, exitNoDevice},
	{CodePermits, statusConflict, exitUnavailable},
	{CodeValue, statusConflict, exitConflict},
	{CodeFree, statusConflict, exitConflict},
	{CodeMissing, statusNotFound, exitConflict},
	{CodeUnavailable, statusServiceUnavailable, exitUnavailable},
	{CodeUnconfirmed, statusConflict, exitUnavailable},
	{CodeLost, statusGone, exitLost},
	{CodeCoherenceCheck, statusConflict, exitUnavailable},
	{CodeUpgrade, statusConflict, exitConflict},
	{CodeDevice, statusInternalServerError, exitNoDevice},
}

// Codes returns all codes.
func Codes() (all []string) {
	for _, c := range codes {
		all = append(all, c.code)
	}
	slices.Sort(all)
	return all
}

const (
	hintHolder = "bakeryctl status shows the holder"
	hintLog    = "see the log of bakeryd"
	hintRecord = "bakeryctl check names the damaged record and what to do about it"
	hintDevice = "dmesg and the log of bakeryd show what is wrong with the device"
)

type row struct {
	err        error
	code, hint string
}

// table has the code and the hint of each error. The first row that matches counts.
var table = []row{
	{ErrInvalid, CodeInvalid, ""},
	{ErrForbidden, CodeForbidden, ""},
	{ErrBusy, CodeBusy, hintHolder},
	{ErrTimeout, CodeTimeout, hintHolder},
	{ErrFull, CodeFull, "remove a lock that is not used any more, or format with more --locks"},
	{ErrPermits, CodePermits, "use the permits of the lock; to change them, remove it with bakeryctl rm and create it again"},
	{ErrValue, CodeValue, "bakeryctl value get shows the value; bakeryctl rm removes the lock with it"},
	{ErrFree, CodeFree, "acquire it: it is free"},
	{ErrNoLock, CodeMissing, "run bakeryctl locks to list the locks"},
	{ErrJoining, CodeUnavailable, "try again: joining takes seconds, or more than a lease after a crash or on a slow device; see the log of bakeryd"},
	{ErrOverload, CodeUnavailable, "end clients, or raise LimitNOFILE= of bakeryd's unit (ulimit -n)"},
	{ErrStuck, CodeUnavailable, "take the lock on another host; dmesg here and bakeryctl check tell what is wrong with that sector"},
	{ErrInFlight, CodeUnavailable, "do it on another host, or wait; bakeryctl disks shows the disk that does not answer"},
	{ErrIntended, CodeUnavailable, "run bakeryctl disks there, and start bakeryd there if it does not run; then remove the lock"},
	{ErrUnavailable, CodeUnavailable, hintLog},
	{ErrUncontained, CodeUnavailable, ""},
	{ErrUnconfirmed, CodeUnconfirmed, "ask again"},
	{ErrLost, CodeLost, "the lock is no longer held: stop the commands that need it"},
	{ErrLeaseLost, CodeUnavailable, hintLog},
	{ErrCoherenceCheck, CodeCoherenceCheck, "try again when that is over"},
	{ErrUpgrade, CodeUpgrade, "release it and take it exclusively, or try again"},
	{ErrUnreadable, CodeDevice, hintRecord},
	{ErrDamaged, CodeDevice, hintRecord},
}

// Error is a refusal as sent to clients.
type Error struct {
	Code    string `json:"code"` // reason, for programs
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // instruction to the user
}

// ErrorOf returns the refusal for an error. An error in no row of the table has CodeDevice. An
// error with a method Hint has its own hint.
func ErrorOf(err error) *Error {
	e := &Error{Code: CodeDevice, Message: err.Error(), Hint: hintDevice}
	if i := slices.IndexFunc(table, func(r row) bool { return errors.Is(err, r.err) }); i >= 0 {
		e.Code, e.Hint = table[i].code, table[i].hint
	}
	var own interface{ Hint() string }
	if errors.As(err, &own) {
		e.Hint = own.Hint()
	}
	return e
}

// Error implements error.
func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("refused by bakeryd: %q", e.Code)
	}
	return e.Message
}

// Is reports whether the code stands for target alone, for errors.Is.
func (e *Error) Is(target error) bool {
	i := slices.IndexFunc(table, func(r row) bool { return r.code == e.Code })
	return i >= 0 && target == table[i].err && e.Code != CodeUnavailable && e.Code != CodeDevice
}

// Status returns the HTTP status of the refusal.
func (e *Error) Status() int {
	status, _ := e.numbers()
	return status
}

// ExitCode returns the exit code of a command with this refusal. For an unknown code, as of a newer
// bakeryd, it is that of CodeUnavailable.
func (e *Error) ExitCode() int {
	_, exit := e.numbers()
	return exit
}

func (e *Error) numbers() (status, exit int) {
	for _, c := range codes {
		if c.code == e.Code {
			return c.status, c.exit
		}
	}
	return statusInternalServerError, exitUnavailable
}

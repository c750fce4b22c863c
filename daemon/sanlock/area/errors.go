package area

import (
	"cmp"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// Error is the error of all methods of Areas.
type Error struct {
	Code   int32 // negative, as sanlock would answer
	Path   string
	Offset uint64
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("area at %d of %s: %v", e.Offset, text.Printable(e.Path), e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// The results of sanlock that are not errnos.
const (
	codeFlags      = -1
	codeTimeout    = -202
	codeMagic      = -223
	codeVersion    = -224
	codeSectorSize = -225
	codeLockspace  = -226
	codeChecksum   = -229
)

// ErrUUID is returned by Read when the record is of another bakery lockspace.
//
// Its code is that of a wrong lockspace. With that of a foreign area, lvmlockd would take the area
// for free and write it.
var ErrUUID = errors.New("record of another bakery lockspace")

// failure returns an error with a code. Its place is added by request.fail.
func failure(code int32, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// fail adds the place of a request to an error, and the code that sanlock has for its cause.
func (r request) fail(err error) error {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Code: codeOf(err), Err: err}
	}
	return &Error{Code: e.Code, Path: r.path, Offset: r.offset, Err: e.Err}
}

// cannotOpen is fail for the open of a file. Sanlock has one code for all of them if the file is of
// a lockspace.
func (r request) cannotOpen(err error) error {
	code := codeOf(err)
	if r.kind == Lockspace {
		code = -int32(unix.ENODEV)
	}
	return failure(code, "open it as user %d: %w; check the path, its permissions, and ReadWritePaths= of bakeryd's unit", r.peer.UID, err)
}

func codeOf(err error) int32 {
	var errno unix.Errno
	switch {
	case errors.As(err, &errno):
	case errors.Is(err, blockdev.ErrRange), errors.Is(err, blockdev.ErrTooSmall):
		errno = unix.EMSGSIZE
	case errors.Is(err, blockdev.ErrReadOnly):
		errno = unix.EPERM
	case errors.Is(err, blockdev.ErrAlignment), errors.Is(err, blockdev.ErrNotDevice), errors.Is(err, blockdev.ErrNoDirectIO):
		errno = unix.EINVAL
	default:
		errno = unix.EIO
	}
	return -int32(errno)
}

// cause returns the error inside one of blockdev, which names the file by its path in /proc.
func cause(err error) error { return cmp.Or(errors.Unwrap(err), err) }

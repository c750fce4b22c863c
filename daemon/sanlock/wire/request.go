package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"syscall"
)

// Header is the start of a message. Flags, Data and Data2 depend on the command.
type Header struct {
	Magic, Version uint32
	Command        Command
	Flags          uint32
	Length         uint32 // of the message with the header; see bodyLength
	Seq            uint32
	Data, Data2    uint32
}

// Disk is a place on a disk.
type Disk struct {
	Path   string
	Offset uint64
}

// Resource is struct sanlk_resource.
type Resource struct {
	Lockspace, Name string
	Lver, Data64    uint64
	Data32, Flags   uint32
	NumDisks        uint32 // from the client; not checked for a command that has no disks
	Disks           []Disk // empty if the command has none
}

// Lockspace is struct sanlk_lockspace.
type Lockspace struct {
	Name   string
	HostID uint64
	Flags  uint32
	Disk   Disk
}

// Request is a request of a client. Text in it is not checked: it may have any bytes but zero.
type Request struct {
	Header
	Lockspace          Lockspace
	Resources          []Resource
	Owner              string // of Acquire
	KillPath, KillArgs string // of Killpath
	Disk               Disk   // of Align
	LVB                []byte // of SetLVB
	Opaque             []byte // body of a command of events or of the resource index
}

// Error is returned by Read for a request that is not valid.
type Error struct {
	Header Header
	Code   Code // the answer; OK if sanlock sends none
	Fatal  bool // the position in the stream is lost: close the connection
	text   string
}

func (e *Error) Error() string { return fmt.Sprintf("read %v request: %s", e.Header.Command, e.text) }

// Length returns the length of the request that begins with these bytes, as its header says it; that of a header if there
// is less.
func Length(start []byte) int {
	if len(start) < HeaderSize {
		return HeaderSize
	}
	return max(HeaderSize, int(decodeHeader(start).Length))
}

// Read reads one request. It returns io.EOF if the input ends before the request, an *Error if the
// request is not valid, and otherwise the error of r. Unless the *Error is fatal, the body was
// skipped.
//
// Sanlock sends no answer to a header with a wrong magic number, a later protocol, or an unknown
// command. It leaves such a connection open, and reads the next bytes as a header.
func Read(r io.Reader) (*Request, error) {
	var start [HeaderSize]byte
	if _, err := io.ReadFull(r, start[:]); err == io.EOF {
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("read header of a request: %w", err)
	}
	q := &Request{Header: decodeHeader(start[:])}
	length, err := q.bodyLength()
	if err != nil {
		return nil, err
	}
	if length > MaxMessage-HeaderSize {
		if _, err := io.CopyN(io.Discard, r, int64(length)); err != nil {
			return nil, q.cut(err)
		}
		return nil, q.invalid(Errno(syscall.E2BIG), "%d bytes, more than %d", q.Length, MaxMessage)
	}
	b := make([]byte, length)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, q.cut(err)
	}
	c := &cursor{rest: b}
	c.body(q)
	switch {
	case c.err != nil:
		return nil, c.err
	case c.short || len(c.rest) > 0:
		return nil, q.fatal(Errno(syscall.EINVAL), "a body of %d bytes, which is not the length of its contents", length)
	}
	return q, nil
}

// bodyLength checks the header and returns the length of the body. HostStatus, Renewal and
// LookupRindex are sent with a wrong length in the header.
func (q *Request) bodyLength() (uint32, error) {
	if q.Magic != Magic {
		return 0, q.fatal(OK, "magic number %#x instead of %#x", q.Magic, Magic)
	}
	if q.Version>>16 > Proto>>16 && q.Command != Version {
		return 0, q.fatal(OK, "protocol %#x is later than %#x", q.Version, Proto)
	}
	if !q.Command.known() {
		return 0, q.fatal(OK, "unknown command")
	}
	if q.Length < HeaderSize || q.Length > MaxSkip {
		return 0, q.fatal(Errno(syscall.EINVAL), "length %d, not from %d to %d", q.Length, HeaderSize, MaxSkip)
	}
	switch {
	case (q.Command == HostStatus || q.Command == Renewal) && q.Length == HeaderSize:
		return LockspaceSize, nil
	case q.Command == LookupRindex && q.Length == HeaderSize+rindexSize+ResourceSize:
		return rindexSize + rentrySize, nil
	}
	return q.Length - HeaderSize, nil
}

func (q *Request) invalid(code Code, format string, args ...any) *Error {
	return &Error{Header: q.Header, Code: code, text: fmt.Sprintf(format, args...)}
}

func (q *Request) fatal(code Code, format string, args ...any) *Error {
	e := q.invalid(code, format, args...)
	e.Fatal = true
	return e
}

// cut returns the error of a body that could not be read.
func (q *Request) cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return q.fatal(Errno(syscall.ENOTCONN), "the input ends before the body does")
	}
	return fmt.Errorf("read body of %v request: %w", q.Command, err)
}

// cursor decodes a body.
type cursor struct {
	rest  []byte
	short bool  // a field was missing
	err   error // the first one, nil if none
}

func (c *cursor) take(n int) []byte {
	if len(c.rest) < n {
		c.short, c.rest = true, nil // all that follows is short too
		return make([]byte, n)
	}
	b := c.rest[:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) u32() uint32 { return binary.NativeEndian.Uint32(c.take(4)) }
func (c *cursor) u64() uint64 { return binary.NativeEndian.Uint64(c.take(8)) }

// text returns the text in a field of n bytes.
func (c *cursor) text(n int) string {
	b, _, _ := bytes.Cut(c.take(n), []byte{0})
	return string(b)
}

func (c *cursor) fail(e *Error) {
	if c.err == nil {
		c.err = e
	}
}

func decodeHeader(b []byte) Header {
	c := &cursor{rest: b}
	return Header{
		Magic: c.u32(), Version: c.u32(), Command: Command(c.u32()), Flags: c.u32(),
		Length: c.u32(), Seq: c.u32(), Data: c.u32(), Data2: c.u32(),
	}
}

func (c *cursor) body(q *Request) {
	switch commands[q.Command].body {
	case lockspace:
		q.Lockspace = Lockspace{Name: c.text(NameLen), HostID: c.u64(), Flags: c.u32()}
		c.take(4)
		q.Lockspace.Disk = c.disk(q)
	case resource:
		c.resources(q, 1, false)
	case withDisks:
		c.resources(q, 1, true)
	case resources:
		c.release(q)
	case acquisition:
		c.resources(q, q.Data, true)
		q.Owner = c.text(NameLen)
		c.take(8)
	case helper:
		q.KillPath = c.text(HelperPathLen)
		q.KillArgs = c.text(HelperArgsLen)
	case disk:
		q.Disk = c.disk(q)
	case value:
		c.resources(q, 1, false)
		if len(c.rest) > MaxLVB {
			c.fail(q.invalid(Errno(syscall.E2BIG), "a value of %d bytes, more than %d", len(c.rest), MaxLVB))
		}
		q.LVB = c.take(len(c.rest))
	case event:
		q.Opaque = c.take(LockspaceSize + eventSize)
	case rindex:
		q.Opaque = c.take(rindexSize)
	case rentry:
		q.Opaque = c.take(rindexSize + rentrySize)
	}
}

// release decodes the body of Release. Sanlock reads the number of resources that the flags need,
// whatever Data is.
func (c *cursor) release(q *Request) {
	need := uint32(0)
	switch {
	case q.Flags&RelAll != 0:
	case q.Flags&RelOrphan != 0:
		need = 1
	case q.Flags&RelRename != 0:
		need = 2
	}
	if q.Data < need {
		c.fail(q.invalid(Errno(syscall.EINVAL), "%d resources with flags %#x, which need %d", q.Data, q.Flags, need))
	}
	c.resources(q, q.Data, false)
}

// resources decodes n resources.
func (c *cursor) resources(q *Request, n uint32, disks bool) {
	if n > MaxResources {
		c.fail(q.invalid(Errno(syscall.E2BIG), "%d resources, more than %d", n, MaxResources))
	}
	for i := uint32(0); i < n && c.err == nil && !c.short; i++ {
		r := Resource{
			Lockspace: c.text(NameLen), Name: c.text(NameLen),
			Lver: c.u64(), Data64: c.u64(), Data32: c.u32(),
		}
		c.take(4)
		r.Flags, r.NumDisks = c.u32(), c.u32()
		if disks && !c.short {
			if r.NumDisks == 0 || r.NumDisks > MaxDisks {
				c.fail(q.invalid(Errno(syscall.ERANGE), "resource %q has %d disks, not from 1 to %d", r.Name, r.NumDisks, MaxDisks))
				return
			}
			for range r.NumDisks {
				r.Disks = append(r.Disks, c.disk(q))
			}
		}
		q.Resources = append(q.Resources, r)
	}
}

func (c *cursor) disk(q *Request) Disk {
	path := c.take(PathLen)
	end := bytes.IndexByte(path, 0)
	if end < 0 {
		c.fail(q.invalid(Errno(syscall.EINVAL), "path %.40q has no zero byte at its end", path))
		end = 0
	}
	d := Disk{Path: string(path[:end]), Offset: c.u64()}
	c.take(8)
	return d
}

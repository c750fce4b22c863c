package blockdev

import (
	"fmt"
	"reflect"
)

// Handle implements Device. It checks and counts the requests, and passes them on to be served.
type Handle struct {
	info    Info
	serve   func(Request) error
	release func() error // called when no request is under way
	ledger  *ledger
}

// Request is a call of a Device method. The bytes of an OpZero are nil.
type Request struct {
	Op    Op
	N     int64
	Off   int64
	Bytes []byte
}

var _ Device = (*Handle)(nil)

// NewHandle returns a Handle that passes valid requests to serve, and calls release when it is closed.
func NewHandle(info Info, serve func(Request) error, release func() error) Handle {
	return Handle{info: info, serve: serve, release: release, ledger: newLedger()}
}

// Info implements Device.
func (h *Handle) Info() Info { return h.info }

// Read implements Device.
func (h *Handle) Read(p []byte, off int64) error {
	return h.do(Request{Op: OpRead, N: int64(len(p)), Off: off, Bytes: p})
}

// Write implements Device.
func (h *Handle) Write(p []byte, off int64) error {
	return h.do(Request{Op: OpWrite, N: int64(len(p)), Off: off, Bytes: p})
}

// Zero implements Device.
func (h *Handle) Zero(off, n int64) error { return h.do(Request{Op: OpZero, N: n, Off: off}) }

func (h *Handle) do(r Request) error { return h.Do(r, h.serve) }

// Do checks and counts a request, and passes a valid one to serve.
func (h *Handle) Do(r Request, serve func(Request) error) error {
	if err := h.info.check(r); err != nil {
		return h.Fail(r, err)
	}
	id, ok := h.ledger.begin(r.Op)
	if !ok {
		return h.Fail(r, ErrClosed)
	}
	err := serve(r)
	h.ledger.end(id, err)
	return err
}

// Fail adds the request to an error: "write 4096 bytes at 8192 of /dev/sdb: input/output error".
func (h *Handle) Fail(r Request, err error) error {
	return fmt.Errorf("%v %d bytes at %d of %s: %w", r.Op, r.N, r.Off, h.info.Path, err)
}

// Stats implements Device.
func (h *Handle) Stats() Stats { return h.ledger.stats() }

// Close implements Device.
func (h *Handle) Close() error {
	if !h.ledger.close() {
		return fmt.Errorf("close %s: %w", h.info.Path, ErrClosed)
	}
	return h.release()
}

// check returns an error for a request that no device with this geometry could serve.
func (i *Info) check(r Request) error {
	block := int64(i.LogicalBlock)
	switch {
	case r.N <= 0 || r.N%block != 0 || r.Off%block != 0:
		return fmt.Errorf("%w, which are %d bytes", ErrAlignment, block)
	case r.Off < 0 || r.N > i.Size || r.Off > i.Size-r.N:
		return fmt.Errorf("%w of %d bytes", ErrRange, i.Size)
	case r.Op != OpRead && i.ReadOnly:
		return ErrReadOnly
	case r.Op != OpZero && reflect.ValueOf(&r.Bytes[0]).Pointer()%uintptr(min(i.LogicalBlock, pageSize)) != 0:
		return fmt.Errorf("buffer %w: use one of blockdev.Alloc", ErrAlignment)
	}
	return nil
}

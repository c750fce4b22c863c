package blockdev

import (
	"fmt"
	"reflect"
)

// handle is the common part of the devices of this package. It checks and counts the requests that
// its backend serves.
type handle struct {
	backend backend
	info    Info
	ledger  *ledger
}

// backend serves the requests of a handle.
type backend interface {
	serve(r request) error
	release() error // called when no request is under way
}

// request is a call of a Device method. The bytes of an OpZero are nil.
type request struct {
	op    Op
	n     int64
	off   int64
	bytes []byte
}

var (
	_ Device = (*handle)(nil)
	_ Zeroer = (*handle)(nil)
)

func newHandle(b backend, info Info) handle {
	return handle{backend: b, info: info, ledger: newLedger()}
}

// Info implements Device.
func (h *handle) Info() Info { return h.info }

// Read implements Device.
func (h *handle) Read(p []byte, off int64) error {
	return h.do(request{op: OpRead, n: int64(len(p)), off: off, bytes: p})
}

// Write implements Device.
func (h *handle) Write(p []byte, off int64) error {
	return h.do(request{op: OpWrite, n: int64(len(p)), off: off, bytes: p})
}

// Zero implements Zeroer.
func (h *handle) Zero(off, n int64) error { return h.do(request{op: OpZero, n: n, off: off}) }

func (h *handle) do(r request) error {
	if err := h.info.check(r); err != nil {
		return h.fail(r, err)
	}
	id, ok := h.ledger.begin(r.op)
	if !ok {
		return h.fail(r, ErrClosed)
	}
	err := h.backend.serve(r)
	h.ledger.end(id, err)
	return err
}

// fail adds the request to an error: "write 4096 bytes at 8192 of /dev/sdb: input/output error".
func (h *handle) fail(r request, err error) error {
	return fmt.Errorf("%v %d bytes at %d of %s: %w", r.op, r.n, r.off, h.info.Path, err)
}

// Stats returns statistics since the device was opened.
func (h *handle) Stats() Stats { return h.ledger.stats() }

// Close implements Device.
func (h *handle) Close() error {
	if !h.ledger.close() {
		return fmt.Errorf("close %s: %w", h.info.Path, ErrClosed)
	}
	return h.backend.release()
}

// check returns an error for a request that no device with this geometry could serve.
func (i *Info) check(r request) error {
	block := int64(i.LogicalBlock)
	switch {
	case r.n <= 0 || r.n%block != 0 || r.off%block != 0:
		return fmt.Errorf("%w, which are %d bytes", ErrAlignment, block)
	case r.off < 0 || r.n > i.Size || r.off > i.Size-r.n:
		return fmt.Errorf("%w of %d bytes", ErrRange, i.Size)
	case r.op != OpRead && i.ReadOnly:
		return ErrReadOnly
	case r.op != OpZero && reflect.ValueOf(&r.bytes[0]).Pointer()%uintptr(min(i.LogicalBlock, pageSize)) != 0:
		return fmt.Errorf("buffer %w: use one of blockdev.Alloc", ErrAlignment)
	}
	return nil
}

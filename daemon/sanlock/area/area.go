// Package area reads and writes the areas that clients of sanlock's socket name by a path and an
// offset.
//
// In sanlock such an area has a lease. In bakeryd the leases are bakery locks on the lockspace's
// own disks, and the area only has a record of the lockspace or resource that it is for: record.go
// has its format. No lock depends on it, only the versions of resources that clients ask for. The
// package never knows sanlock's protocol, or which client holds what.
//
// The record has another magic number than sanlock's, so that neither program takes the other's
// area for its own:
//
//   - Of a resource, sanlock verifies the leader in the first sector before it looks at the request
//     block, the blocks of the hosts, or the value. Therefore Write writes that sector only.
//   - Of a lockspace, sanlock may read sector N-1 of host N before any other. Therefore Write
//     zeroes the whole area.
//
// Paths are raw: the server takes a path of a request unchanged, up to its first zero byte. Only
// the strings of sanlock's tools, and the answer to an inquiry, have a backslash before colons and
// spaces.
//
// Start reading at [Areas].
package area

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
)

// Kind is that of a record.
type Kind uint8

// The kinds of records.
const (
	Lockspace Kind = 1
	Resource  Kind = 2
)

// Record says what an area is for.
type Record struct {
	Kind      Kind
	Flags     uint32      // sanlock's ALIGN and SECTOR flags
	IOTimeout uint32      // of a lockspace, in seconds
	UUID      layout.UUID // of the bakery lockspace
	Lockspace string      // at most 48 bytes
	Name      string      // at most 48 bytes; empty for a lockspace
	Nonce     uint64      // random, of this write of the record
	Lver      uint64      // of a resource: version of its last exclusive holder; 0 while no client asks for it
}

// Peer is a client. Files are opened with its rights.
type Peer struct {
	UID, GID int
	Groups   []int
}

// Config configures New.
type Config struct {
	UUID  layout.UUID   // of the bakery lockspace
	Limit time.Duration // of a call; 0: DefaultLimit
}

// DefaultLimit is sanlock's default io_timeout.
const DefaultLimit = 10 * time.Second

// Areas reads and writes areas. Each call opens the file, makes its requests in a goroutine of its
// own, and closes the file. A call returns after the limit if the disk does not answer. All errors
// are of type *Error.
type Areas struct {
	uuid  layout.UUID
	limit time.Duration

	mu       sync.Mutex // guards the fields below
	requests map[uint64]request
	last     uint64 // key of requests
}

// New returns Areas.
func New(c Config) *Areas {
	if c.Limit == 0 {
		c.Limit = DefaultLimit
	}
	return &Areas{uuid: c.UUID, limit: c.Limit, requests: map[uint64]request{}}
}

// Read returns the record of an area. Flags are those of the caller, or 0. Only the sector counts,
// as the size of the read: 4096 bytes without it. For a record of another bakery lockspace it
// returns ErrUUID.
func (a *Areas) Read(ctx context.Context, peer Peer, kind Kind, path string, offset uint64, flags uint32) (Record, error) {
	r := request{peer: peer, kind: kind, path: path, offset: offset}
	return run(ctx, a, r, func(f *file) (Record, error) {
		disk, err := r.open(f)
		if err != nil {
			return Record{}, err
		}
		defer disk.Close()
		buf := pool.Get(sectorOf(flags))
		defer pool.Put(buf)
		if err := disk.Read(buf, int64(offset)); err != nil {
			return Record{}, cause(err)
		}
		rec, err := decode(buf, kind, offset)
		if err == nil && rec.UUID != a.uuid {
			err = failure(codeLockspace, "%w %v, want %v; use the bakeryd of that lockspace, or write the area again",
				ErrUUID, rec.UUID, a.uuid)
		}
		return rec, err
	})
}

// Write writes a record with the uuid of this lockspace, a new nonce, and flags by the device if it
// has none. It returns what it wrote when that is durable. It extends a regular file that is too
// short, as sanlock does.
func (a *Areas) Write(ctx context.Context, peer Peer, rec Record, path string, offset uint64) (Record, error) {
	r := request{peer: peer, kind: rec.Kind, path: path, offset: offset, write: true}
	return run(ctx, a, r, func(f *file) (Record, error) {
		var nonce [8]byte
		_, _ = rand.Read(nonce[:]) // never fails
		written := rec
		written.UUID, written.Nonce = a.uuid, le.Uint64(nonce[:])
		err := r.replace(f, rec.Flags, &written)
		return written, err
	})
}

// Update writes the record of a resource again that Read returned, with another Lver. It keeps the
// nonce.
func (a *Areas) Update(ctx context.Context, peer Peer, rec Record, path string, offset uint64) error {
	r := request{peer: peer, kind: rec.Kind, path: path, offset: offset, write: true}
	_, err := run(ctx, a, r, func(f *file) (any, error) { return nil, r.replace(f, rec.Flags, &rec) })
	return err
}

// Clear removes the record of an area. A later Read returns the error of an area that was never
// written.
func (a *Areas) Clear(ctx context.Context, peer Peer, kind Kind, path string, offset uint64, flags uint32) error {
	r := request{peer: peer, kind: kind, path: path, offset: offset, write: true}
	_, err := run(ctx, a, r, func(f *file) (any, error) { return nil, r.replace(f, flags, nil) })
	return err
}

// Align returns the distance of areas on a device: 1M for sectors of 512 bytes and for files, 8M
// for 4096.
func (a *Areas) Align(ctx context.Context, peer Peer, path string) (int, error) {
	r := request{peer: peer, kind: Lockspace, path: path}
	return run(ctx, a, r, func(f *file) (int, error) {
		sector := 512
		disk, err := r.open(f)
		switch {
		case errors.Is(err, blockdev.ErrTooSmall): // a client asks before it gives its file a size
		case err != nil:
			return 0, err
		default:
			defer disk.Close()
			if !f.regular {
				sector = disk.Info().LogicalBlock
			}
		}
		flags, err := defaultFlags(sector)
		return int(alignOf(flags)), err
	})
}

var pool blockdev.Pool

// zeroes is never changed: several requests may write it at the same time.
var zeroes = sync.OnceValue(func() []byte { return blockdev.Alloc(1 << 20) })

// replace replaces the first sector of an area by a record, of which it sets the flags, or by
// zeroes, and the others of a lockspace by zeroes.
func (r request) replace(f *file, flags uint32, rec *Record) error {
	flags, err := valid(flags)
	if err == nil && flags == 0 && f.regular {
		flags, err = defaultFlags(512) // whatever disk is below it
	}
	if err != nil {
		return err
	}
	off := int64(r.offset)
	if err := r.extend(f, off+alignOf(flags), sectorOf(flags)); err != nil {
		return err
	}
	disk, err := r.open(f)
	if err != nil {
		return err
	}
	defer disk.Close()
	info := disk.Info()
	if flags == 0 {
		if flags, err = defaultFlags(info.LogicalBlock); err != nil {
			return err
		}
	}
	end := off + alignOf(flags)
	switch {
	case off%int64(info.LogicalBlock) != 0:
		return fmt.Errorf("the offset is %w, which are %d bytes", blockdev.ErrAlignment, info.LogicalBlock)
	case off >= info.Size:
		return fmt.Errorf("%w: it has %d bytes; extend it, or use a smaller offset", unix.ENOSPC, info.Size)
	case end > info.Size:
		return fmt.Errorf("the area, which ends at %d, is %w of %d bytes; extend it", end, blockdev.ErrRange, info.Size)
	}
	first := pool.Get(sectorOf(flags))
	defer pool.Put(first)
	clear(first)
	if rec != nil {
		rec.Flags = flags
		if err := encode(first, *rec, r.offset); err != nil {
			return err
		}
	}
	// The old first sector goes before the others, and the new one comes after them: until then no
	// program takes the area for valid.
	for n := int64(len(first)); r.kind == Lockspace && off < end; n = int64(len(zeroes())) {
		part := zeroes()[:min(n, end-off)]
		if err := disk.Write(part, off); err != nil {
			return cause(err)
		}
		off += int64(len(part))
	}
	return cause(disk.Write(first, int64(r.offset)))
}

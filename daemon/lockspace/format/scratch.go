package format

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/measure"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/layout"
)

// A probe that writes on a device where nothing is writes to the first block alone, and leaves it zeroes again. What a
// probe that was killed leaves there is told apart from everything else:
//
//	bytes  | field
//	-------|----------------------------------------------------------------------
//	 0 - 7 | magic "BKPROBE\0"
//	 8 -15 | random number of the probe
//	16 -23 | how many times it has written, the number of this write
//	24 - . | text for people who find it; zeroes up to the end of the block
//
// It is the block that can best be spared: if the device is formatted from another host meanwhile, formatting refuses
// what it finds there, or at worst the superblock is damaged whose copy stays good. The probe looks at the block after
// every write and gives way to whoever else writes it.
const (
	scratchMagic = "BKPROBE\x00"
	scratchNonce = 8
	scratchCount = 16
	scratchText  = 24
	scratchSaid  = "bakeryctl probe --write wrote this over zeroes; if no probe is running, it may be zeroed"
)

// ErrProbed is returned when another probe writes on the device.
var ErrProbed = errors.New("another probe is writing there")

func isScratch(head []byte) bool { return bytes.HasPrefix(head, []byte(scratchMagic)) }

// surveyScratch looks whether there is anything beside a scratch block.
func (f *formatter) surveyScratch(ctx context.Context) (occupant, error) {
	o := occupant{kind: deviceForeign, what: "the block of a bakeryctl probe --write that is running or was killed"}
	block := int64(max(f.dev.Info().PhysicalBlock, lockspace.BlockSize(f.dev)))
	for off := block; off < f.area; off += eraseChunk {
		if err := ctx.Err(); err != nil {
			return o, err
		}
		zero, at, err := blockdev.AllZero(f.dev, off, min(eraseChunk, f.area-off), nil)
		if err != nil {
			return o, err
		}
		if !zero {
			o.what += fmt.Sprintf(", and unknown data, the first byte that is not zero at %d", at)
			return o, nil
		}
	}
	if signature := probeSignature(ctx, f.dev.Info()); signature != "" {
		o.what = signature
		return o, nil
	}
	o.scratch = true
	return o, nil
}

// scratch is a Patch on a device where nothing is.
type scratch struct {
	dev         blockdev.Device
	buf, back   []byte // of one physical block
	nonce       uint64
	count       uint64
	many        []byte
	manyAddress int64
}

// scratchStill is how long a scratch block must stand still to be one that was left behind.
const scratchStill = time.Second

// openScratch takes the first block of a device for a probe, if nothing is on it. It returns ErrOccupied, ErrProbed,
// ErrForeignVersion, the errors of reading, or the cause of ctx's end; nothing was written then.
func openScratch(ctx context.Context, dev blockdev.Device) (*scratch, error) {
	f := newSurveyor(dev)
	found, err := f.survey(ctx)
	if err != nil {
		return nil, err
	}
	if found.kind != deviceVacant && !found.scratch {
		return nil, fmt.Errorf("%w: it holds %s", ErrOccupied, found.what)
	}
	info := dev.Info()
	s := &scratch{dev: dev, buf: blockdev.Alloc(info.PhysicalBlock), back: blockdev.Alloc(info.PhysicalBlock), nonce: lockspace.Nonce()}
	if found.scratch {
		if err := s.waitStill(ctx); err != nil {
			return nil, err
		}
	}
	g := layout.Geometry{Stride: info.PhysicalBlock, Hosts: lockspace.DefaultHosts, Locks: lockspace.DefaultLocks}
	s.many = blockdev.Alloc(int(min(measure.ManySlots*int64(info.PhysicalBlock), info.Size)))
	if g.Validate() == nil && g.Size() <= info.Size {
		s.manyAddress = g.Slot(1, 1)
	}
	copy(s.buf, scratchMagic)
	binary.LittleEndian.PutUint64(s.buf[scratchNonce:], s.nonce)
	copy(s.buf[scratchText:], scratchSaid)
	return s, nil
}

// waitStill makes sure that nobody writes the scratch block that was found.
func (s *scratch) waitStill(ctx context.Context) error {
	if err := s.dev.Read(s.buf, 0); err != nil {
		return err
	}
	for begun := time.Now(); time.Since(begun) < scratchStill; {
		if err := retry.Pause(ctx, scratchStill/20); err != nil {
			return err
		}
		if err := s.dev.Read(s.back, 0); err != nil {
			return err
		}
		if !bytes.Equal(s.buf, s.back) {
			return ErrProbed
		}
	}
	clear(s.buf)
	return nil
}

// Write implements patch.
func (s *scratch) Write() (time.Duration, error) {
	s.count++
	binary.LittleEndian.PutUint64(s.buf[scratchCount:], s.count)
	begun := time.Now()
	err := s.dev.Write(s.buf, 0)
	return time.Since(begun), err
}

// Read implements patch.
func (s *scratch) Read() (time.Duration, error) {
	begun := time.Now()
	err := s.dev.Read(s.back, 0)
	took := time.Since(begun)
	if err == nil && !bytes.Equal(s.back, s.buf) {
		err = fmt.Errorf("%w, at byte 0 of %s", measure.ErrDisturbed, s.dev.Info().Path)
	}
	return took, err
}

// ReadMany implements patch.
func (s *scratch) ReadMany() (time.Duration, error) {
	begun := time.Now()
	err := s.dev.Read(s.many, s.manyAddress)
	return time.Since(begun), err
}

// Many implements patch.
func (s *scratch) Many() int { return len(s.many) / len(s.buf) }

// SeenBy implements patch.
func (s *scratch) SeenBy(other blockdev.Device) (bool, error) {
	if err := other.Read(s.back, 0); err != nil {
		return false, err
	}
	return bytes.Equal(s.back, s.buf), nil
}

// Close implements patch: it leaves zeroes, as before, unless somebody else has written there.
func (s *scratch) Close() error {
	if s.count == 0 {
		return nil
	}
	if _, err := s.Read(); err != nil {
		return fmt.Errorf("look at the block before it is zeroed again: %w", err)
	}
	clear(s.buf)
	if err := s.dev.Write(s.buf, 0); err != nil {
		return fmt.Errorf("zero the block again: %w", err)
	}
	if _, err := s.Read(); err != nil {
		return fmt.Errorf("look whether the block is zeroed again: %w", err)
	}
	return nil
}

// ProbeVacant measures a device on which nothing is, by its first block, and leaves that zeroes as before. It returns
// ErrOccupied, ErrProbed, ErrForeignVersion, ErrDisturbed, errors of IO, or the cause of ctx's end.
func ProbeVacant(ctx context.Context, dev blockdev.Device, o measure.Options) (*measure.Measurement, error) {
	s, err := openScratch(ctx, dev)
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", dev.Info().Path, err)
	}
	m, err := measure.Run(ctx, s, o)
	if !errors.Is(err, measure.ErrDisturbed) { // else it is not the probe's own any more
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", dev.Info().Path, err)
	}
	return m, nil
}

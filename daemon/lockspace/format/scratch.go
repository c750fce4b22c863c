package format

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace/measure"
	"github.com/bakeryd/bakeryd/daemon/retry"
)

// A probe of an empty device writes to the first block only, and zeroes it at the end. The format
// of that block identifies what a killed probe leaves:
//
//	bytes  | field
//	-------|----------------------------------------------------------------------
//	 0 - 7 | magic "BKPROBE\0"
//	 8 -15 | random number of the probe
//	16 -23 | number of this write of the probe, from 1
//	24 - . | explanation in words; zeroes up to the end of the block
//
// Writes to the first block do the least harm. If another host formats the device meanwhile, that
// format refuses the block, or at worst the probe damages the superblock, and its copy stays valid.
// The probe reads the block after every write and stops if another program wrote it.
const (
	scratchMagic   = "BKPROBE\x00"
	scratchNonce   = 8
	scratchCount   = 16
	scratchText    = 24
	scratchMessage = "bakeryctl probe --write wrote this over zeroes; if no probe is running, it may be zeroed"
)

// ErrProbed is returned when another probe is writing on the device.
var ErrProbed = errors.New("another probe is writing there")

func isScratch(head []byte) bool { return bytes.HasPrefix(head, []byte(scratchMagic)) }

// scratch is a Patch on an empty device: its first physical block.
type scratch struct {
	measure.Patch
	buf   []byte // contents as last written
	count uint64 // number of writes
}

// scratchStill is how long a scratch block must not change to count as left by a killed probe.
const scratchStill = time.Second

// openScratch prepares a probe of the first block of an empty device. It never writes. It returns
// ErrOccupied, ErrProbed, ErrForeignVersion, the errors of reading, or the cause of ctx's end.
func openScratch(ctx context.Context, dev blockdev.Device) (*scratch, error) {
	found, err := surveyorOf(dev).survey(ctx, nil)
	if err != nil {
		return nil, err
	}
	if found.kind != deviceVacant && !found.scratch {
		return nil, fmt.Errorf("%w: it holds %s", ErrOccupied, found.what)
	}
	info := dev.Info()
	s := &scratch{buf: blockdev.Alloc(info.PhysicalBlock)}
	s.Patch = measure.Patch{
		Dev: dev, Block: blockdev.Alloc(info.PhysicalBlock),
		Many:  blockdev.Alloc(int(min(measure.ManySlots*int64(info.PhysicalBlock), info.Size))),
		Write: s.write, Shows: func(block []byte) bool { return bytes.Equal(block, s.buf) },
	}
	if found.scratch {
		if err := s.waitStill(ctx); err != nil {
			return nil, err
		}
	}
	g := defaultGeometry(info.PhysicalBlock)
	if g.Validate() == nil && g.Size() <= info.Size {
		s.ManyAt = g.Slot(1, 1)
	}
	copy(s.buf, scratchMagic)
	binary.LittleEndian.PutUint64(s.buf[scratchNonce:], rand.Uint64())
	copy(s.buf[scratchText:], scratchMessage)
	return s, nil
}

// waitStill returns ErrProbed if the scratch block changes within scratchStill.
func (s *scratch) waitStill(ctx context.Context) error {
	if err := s.Dev.Read(s.buf, 0); err != nil {
		return err
	}
	for begun := time.Now(); time.Since(begun) < scratchStill; {
		if err := retry.Pause(ctx, scratchStill/20); err != nil {
			return err
		}
		if still, err := s.SeenBy(s.Dev); err != nil || !still {
			return cmp.Or(err, ErrProbed)
		}
	}
	clear(s.buf)
	return nil
}

func (s *scratch) write() (time.Duration, error) {
	s.count++
	binary.LittleEndian.PutUint64(s.buf[scratchCount:], s.count)
	begun := time.Now()
	err := s.Dev.Write(s.buf, 0)
	return time.Since(begun), err
}

// Close zeroes the block, unless another program has written it.
func (s *scratch) Close() error {
	if s.count == 0 {
		return nil
	}
	if _, err := s.Read(); err != nil {
		return fmt.Errorf("read the block before zeroing it: %w", err)
	}
	clear(s.buf)
	if err := s.Dev.Write(s.buf, 0); err != nil {
		return fmt.Errorf("zero the block: %w", err)
	}
	if _, err := s.Read(); err != nil {
		return fmt.Errorf("verify the zeroed block: %w", err)
	}
	return nil
}

// ProbeVacant measures an empty device by its first block, and zeroes that block at the end. It
// returns ErrOccupied, ErrProbed, ErrForeignVersion, ErrDisturbed, errors of IO, or the cause of
// ctx's end.
func ProbeVacant(ctx context.Context, dev blockdev.Device, o measure.Options) (m *measure.Measurement, err error) {
	s, err := openScratch(ctx, dev)
	if err == nil {
		m, err = measure.Run(ctx, &s.Patch, o)
		if !errors.Is(err, measure.ErrDisturbed) { // otherwise another program owns the block
			err = errors.Join(err, s.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", dev.Info().Path, err)
	}
	return m, nil
}

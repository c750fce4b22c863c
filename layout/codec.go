package layout

import (
	"fmt"
	"math"
	"time"
)

// codec reads the fields of a record from its bytes, or writes them there. The method fields of each
// type of record passes them all to a codec, with the offsets of its table and the values that they
// may have.
type codec struct {
	record  []byte
	reading bool
	several bool   // format version 2
	err     *error // the first ErrField; not kept here, or a new record would be on the heap as its error is
}

// writer returns a codec that writes a new record. It is several if the lockspace is on several disks.
func writer(several bool, err *error) codec {
	return codec{record: make([]byte, RecordSize), several: several, err: err}
}

// reader returns a codec that reads a record with a valid header.
func reader(record []byte, err *error) codec {
	c := codec{record: record, reading: true, several: le.Uint16(record[headerVersion:]) == VersionSeveral, err: err}
	if c.several {
		var position int
		number(&c, headerPosition, 1, "position", &position, 1, MaxPositions)
		c.zero(headerReserved, headerChecksum)
	} else {
		c.zero(headerPosition, headerChecksum)
	}
	return c
}

// generation passes that of the writer's host id, which only lockspaces on several disks have.
func (c *codec) generation(v *uint32) {
	if c.several {
		number(c, headerGeneration, 4, "generation", v, 0, math.MaxUint32)
	} else {
		c.absent("generation", headerGeneration, headerAddress, *v == 0)
	}
}

// absent requires that a field that only lockspaces on several disks have is zero.
func (c *codec) absent(field string, from, end int, zero bool) {
	if c.zero(from, end); !c.reading && !zero {
		c.check(fmt.Errorf("%s on one disk, want none: %w", field, ErrField))
	}
}

func (c *codec) check(err error) {
	if *c.err == nil {
		*c.err = err
	}
}

// zero requires that bytes are zero, so that decoding and then encoding is the identity.
func (c *codec) zero(from, end int) {
	if c.reading && !isZero(c.record[from:end]) {
		c.check(fmt.Errorf("reserved bytes %d to %d are not zero: %w", from, end-1, ErrField))
	}
}

// number passes an integer of 1, 2 or 4 bytes, from low to high.
func number[T ~int | ~uint8 | ~uint16 | ~uint32](c *codec, at, size int, field string, v *T, low, high T) {
	b := c.record[at:]
	switch {
	case c.reading && size == 1:
		*v = T(b[0])
	case c.reading && size == 2:
		*v = T(le.Uint16(b))
	case c.reading:
		*v = T(le.Uint32(b))
	case size == 1:
		b[0] = byte(*v)
	case size == 2:
		le.PutUint16(b, uint16(*v))
	default:
		le.PutUint32(b, uint32(*v))
	}
	if *v < low || *v > high {
		c.check(within(field, int(*v), int(low), int(high)))
	}
}

// word passes eight bytes.
func word[T ~uint64](c *codec, at int, v *T) {
	if c.reading {
		*v = T(le.Uint64(c.record[at:]))
	} else {
		le.PutUint64(c.record[at:], uint64(*v))
	}
}

// flag passes a byte that is 0 or 1.
func (c *codec) flag(at int, field string, v *bool) {
	var b uint8
	if *v && !c.reading {
		b = 1
	}
	number(c, at, 1, field, &b, 0, 1)
	*v = b == 1
}

// id passes an identifier of 16 bytes.
func (c *codec) id(at int, v *[16]byte) {
	if c.reading {
		copy(v[:], c.record[at:])
	} else {
		copy(c.record[at:], v[:])
	}
}

// maxMicros is the end of the year 9999. Later times have no text form.
const maxMicros = 253402300799_999999

// time passes a time in microseconds since 1970, of which 0 is no time.
func (c *codec) time(at int, field string, v *time.Time) {
	us := uint64(0)
	if !c.reading {
		c.check(checkTime(field, *v))
		us = micros(*v)
	}
	word(c, at, &us)
	switch {
	case !c.reading:
	case us > maxMicros:
		c.check(fmt.Errorf("%s %d us, want at most %d: %w", field, us, uint64(maxMicros), ErrField))
	case us == 0:
		*v = time.Time{}
	default:
		*v = time.UnixMicro(int64(us)).UTC()
	}
}

// micros returns microseconds since 1970. 0 is no time.
func micros(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixMicro())
}

// text passes a string whose length has two bytes at lengthAt, in the bytes from at to end. It does not
// allocate memory for a string that is in v already.
func (c *codec) text(lengthAt, at, end int, field string, v *string) {
	if area := c.area(lengthAt, at, end, field, len(*v)); !c.reading {
		copy(area, *v)
	} else if string(area) != *v {
		*v = string(area)
	}
}

// bytes is text for other bytes. It reuses the memory of v.
func (c *codec) bytes(lengthAt, at, end int, field string, v *[]byte) {
	if area := c.area(lengthAt, at, end, field, len(*v)); !c.reading {
		copy(area, *v)
	} else if *v = append((*v)[:0], area...); len(area) == 0 {
		*v = nil
	}
}

// area passes a length, and returns that part of the bytes from at to end. The rest of them are zero.
func (c *codec) area(lengthAt, at, end int, field string, length int) []byte {
	number(c, lengthAt, 2, field, &length, 0, math.MaxUint16)
	area := c.record[at:end]
	switch {
	case !c.reading:
		return area // no text that is too long is written: its own check refuses it
	case length > len(area):
		c.check(fmt.Errorf("%s of %d bytes, want at most %d: %w", field, length, len(area), ErrField))
		return nil
	case !isZero(area[length:]):
		c.check(fmt.Errorf("%s of %d bytes, want zeroes after it: %w", field, length, ErrField))
	}
	return area[:length]
}

// list passes elements whose number has two bytes at countAt, in the bytes from at to end, which have
// room for most of them. The rest of these bytes are zero.
func list[T any](c *codec, countAt, at, end, most int, field string, v *[]T, element func(at int, v *T)) {
	count, size := len(*v), (end-at)/most
	if number(c, countAt, 2, "", &count, 0, math.MaxUint16); count > most {
		c.check(within("number of "+field+"s", count, 0, most))
	}
	if *c.err == nil {
		c.zero(at+count*size, end)
	}
	if *c.err != nil {
		return
	}
	if c.reading && count > 0 {
		*v = make([]T, count)
	}
	for i := range *v {
		if element(at+i*size, &(*v)[i]); *c.err != nil {
			*c.err = fmt.Errorf("%s %d: %w", field, i+1, *c.err)
			return
		}
	}
}

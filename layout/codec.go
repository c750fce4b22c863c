package layout

import (
	"fmt"
	"time"
)

// codec reads the fields of a record from its bytes, or writes them there. The method fields of each
// type of record passes them all to a codec, with the offsets of its table. The caller checks fields
// before they are written, and after they were read.
type codec struct {
	record  []byte
	reading bool
	err     error // of the first field whose bytes have no value
}

// reader returns a codec that reads a record with a valid header.
func reader(record []byte) codec {
	c := codec{record: record, reading: true}
	c.zero(headerReserved1, headerChecksum)
	c.zero(headerReserved2, headerAddress)
	return c
}

// writer returns a codec that writes a record into buf, and zeroes into the rest of buf.
func writer(buf []byte) codec {
	clear(buf)
	return codec{record: buf}
}

func (c *codec) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format+": %w", append(args, ErrField)...)
	}
}

// zero requires that bytes are zero, so that decoding and then encoding is the identity.
func (c *codec) zero(from, end int) {
	if c.reading && !isZero(c.record[from:end]) {
		c.fail("reserved bytes %d to %d are not zero", from, end-1)
	}
}

func u8[T ~uint8](c *codec, at int, v *T) {
	if c.reading {
		*v = T(c.record[at])
	} else {
		c.record[at] = byte(*v)
	}
}

func u16[T ~int | ~uint16](c *codec, at int, v *T) {
	if c.reading {
		*v = T(le.Uint16(c.record[at:]))
	} else {
		le.PutUint16(c.record[at:], uint16(*v))
	}
}

func u32(c *codec, at int, v *int) {
	if c.reading {
		*v = int(le.Uint32(c.record[at:]))
	} else {
		le.PutUint32(c.record[at:], uint32(*v))
	}
}

func u64[T ~uint64](c *codec, at int, v *T) {
	if c.reading {
		*v = T(le.Uint64(c.record[at:]))
	} else {
		le.PutUint64(c.record[at:], uint64(*v))
	}
}

// flag passes a byte that is 0 or 1.
func (c *codec) flag(at int, field string, v *bool) {
	if *v && !c.reading {
		c.record[at] = 1
	}
	if *v = c.record[at] == 1; c.record[at] > 1 {
		c.fail("%s %d, want 0 to 1", field, c.record[at])
	}
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
	if !c.reading {
		us := micros(*v)
		u64(c, at, &us)
		return
	}
	var us uint64
	u64(c, at, &us)
	switch *v = (time.Time{}); {
	case us > maxMicros:
		c.fail("%s %d us, want at most %d", field, us, uint64(maxMicros))
	case us != 0:
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
	u16(c, lengthAt, &length)
	if length > end-at {
		c.fail("%s of %d bytes, want at most %d", field, length, end-at)
		return nil
	}
	if c.reading && !isZero(c.record[at+length:end]) {
		c.fail("%s of %d bytes, want zeroes after it", field, length)
	}
	return c.record[at : at+length]
}

// list passes elements whose number has two bytes at countAt, in the bytes from at to end, which have
// room for most of them. The rest of these bytes are zero.
func list[T any](c *codec, countAt, at, end, most int, field string, v *[]T, element func(at int, v *T)) {
	count, size := len(*v), (end-at)/most
	u16(c, countAt, &count)
	if count > most {
		c.fail("%s %d, want 0 to %d", field, count, most)
		return
	}
	if c.zero(at+count*size, end); c.reading && count > 0 {
		*v = make([]T, count)
	}
	for i := range *v {
		element(at+i*size, &(*v)[i])
	}
}

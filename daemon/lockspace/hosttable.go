package lockspace

import (
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
)

// ScanChunk is the size in bytes of one read of ScanRecords.
const ScanChunk = 1 << 20

// ScanRecords reads count consecutive records at off and calls fn with each of them, or with the
// error of its sector. The record is valid during the call only. It returns the errors of the
// device as a whole and those of fn.
func ScanRecords(dev blockdev.Device, off int64, stride, count int, fn func(i int, record []byte, err error) error) error {
	per := min(count, max(1, ScanChunk/stride))
	if per <= 0 {
		return nil
	}
	buf := Pool.Get(per * stride)
	defer Pool.Put(buf)
	for first := 0; first < count; first += per {
		n := min(per, count-first)
		errs, err := ReadRecords(dev, buf[:n*stride], off+int64(first)*int64(stride), stride)
		if err != nil && !IsBadSector(err) {
			return err
		}
		for i := range n {
			sectorErr := err
			if err == nil {
				sectorErr = errs[i]
			}
			if err := fn(first+i, buf[i*stride:][:layout.RecordSize], sectorErr); err != nil {
				return err
			}
		}
	}
	return nil
}

// HostRow is a host record that is not blank, as read by a process that did not join.
type HostRow struct {
	ID     int
	Raw    string // the sector, to detect any change
	Record layout.HostRecord
	Err    error // the reason why there is no Record
}

// InUse reports whether the record may be that of a running host.
func (r HostRow) InUse() bool {
	return r.Err != nil || r.Record.State == layout.StateJoining || r.Record.State == layout.StateLive
}

// ReadHostTable returns the rows of the hosts that ever joined. It omits rows behind the end of the
// device: a lockspace that was copied to a smaller device has them.
func ReadHostTable(dev blockdev.Device, space layout.Space) (rows []HostRow, err error) {
	g, info := space.Geometry, dev.Info()
	if g.Stride < info.LogicalBlock {
		return nil, nil // no host can use it on this device
	}
	count := min(g.Hosts, int((info.Size-g.Host(1))/int64(g.Stride)))
	err = ScanRecords(dev, g.Host(1), g.Stride, count, func(i int, sector []byte, err error) error {
		row := HostRow{ID: i + 1, Err: err}
		if err == nil {
			row.Record, row.Err = space.DecodeHost(sector, row.ID)
			if row.Err == nil && layout.CopyPosition(sector) > 0 {
				layout.PlaceCopy(sector, 1) // any member disk may be the first to answer
			}
			row.Raw = string(sector)
		}
		if row.Err != nil || !row.Record.Blank() {
			rows = append(rows, row)
		}
		return nil
	})
	return rows, err
}

// ChangedRow returns the first row of after that is in use and differs from its row in before.
func ChangedRow(before, after []HostRow) (row HostRow, ok bool) {
	for _, r := range after {
		i, known := slices.BinarySearchFunc(before, r.ID, func(b HostRow, id int) int { return b.ID - id })
		if r.InUse() && (!known || before[i].Raw != r.Raw) {
			return r, true
		}
	}
	return HostRow{}, false
}

// WatchdogTime returns the longest time that an armed watchdog of the table needs after the end of
// the lease.
func WatchdogTime(rows []HostRow) (longest time.Duration) {
	for _, r := range rows {
		if r.Err == nil && r.InUse() && r.Record.WatchdogArmed {
			longest = max(longest, time.Duration(r.Record.WatchdogSeconds)*time.Second)
		}
	}
	return longest
}

package daemon

import (
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
)

// scanChunk is how much scanRecords asks of a device at once.
const scanChunk = 1 << 20

// scanRecords reads count records that lie in a row at off, and hands each of them over, or the reason why its
// sector could not be read. The record is lent for the call. It returns the errors of the device as a whole, and
// those of fn.
func scanRecords(dev blockdev.Device, off int64, stride, count int, fn func(i int, record []byte, err error) error) error {
	per := min(count, max(1, scanChunk/stride))
	if per <= 0 {
		return nil
	}
	buf := pool.Get(per * stride)
	defer pool.Put(buf)
	for first := 0; first < count; first += per {
		n := min(per, count-first)
		errs, err := readRecords(dev, buf[:n*stride], off+int64(first)*int64(stride), stride)
		if err != nil && !badSector(err) {
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

// tableRow is a host record that is not virgin, as one who is not a host sees it.
type tableRow struct {
	id     int
	raw    string // the sector, to tell any change
	record layout.HostRecord
	err    error // why there is no record
}

// inUse says whether a host may be behind the record.
func (r tableRow) inUse() bool {
	return r.err != nil || r.record.State == layout.StateJoining || r.record.State == layout.StateLive
}

// readHostTable reads the rows of those hosts that ever were. Those that lie behind the end of the device, from
// which the lockspace was copied perhaps, are left out.
func readHostTable(dev blockdev.Device, space layout.Space) (rows []tableRow, err error) {
	g, info := space.Geometry, dev.Info()
	if g.Stride < info.LogicalBlock {
		return nil, nil // no host could have used it here
	}
	count := min(g.Hosts, int((info.Size-g.Host(1))/int64(g.Stride)))
	err = scanRecords(dev, g.Host(1), g.Stride, count, func(i int, sector []byte, err error) error {
		row := tableRow{id: i + 1, err: err}
		if err == nil {
			row.raw = string(sector)
			row.record, row.err = space.DecodeHost(sector, row.id)
		}
		if row.err != nil || !row.record.Virgin() {
			rows = append(rows, row)
		}
		return nil
	})
	return rows, err
}

func anyInUse(rows []tableRow) bool {
	for _, r := range rows {
		if r.inUse() {
			return true
		}
	}
	return false
}

// changed returns the first row that is in use and differs from the one before.
func changedRow(before, after []tableRow) (row tableRow, ok bool) {
	old := make(map[int]string, len(before))
	for _, r := range before {
		old[r.id] = r.raw
	}
	for _, r := range after {
		if raw, known := old[r.id]; r.inUse() && (!known || raw != r.raw) {
			return r, true
		}
	}
	return tableRow{}, false
}

// watchdogTime is by how much longer than its lease a host of the table may need to stop its holders.
func watchdogTime(rows []tableRow) (longest time.Duration) {
	for _, r := range rows {
		if r.err == nil && r.inUse() && r.record.WatchdogArmed {
			longest = max(longest, time.Duration(r.record.WatchdogSeconds)*time.Second)
		}
	}
	return longest
}

package check_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// crammed is a small lockspace in which every kind of record is in use.
func crammed(t testing.TB) (layout.Superblock, []byte) {
	g := layout.Geometry{Stride: 512, Hosts: 3, Locks: 3}
	sb := layout.Superblock{UUID: layout.UUID{7}, Name: "crammed", Geometry: g, Lease: time.Second, Formatted: time.Now().UTC().Truncate(time.Microsecond)}
	s, now := sb.Space(), uint64(time.Now().UnixMicro()/256)
	disk := make([]byte, max(g.Size(), layout.HeadSize))
	put := func(at int64, err error) { require.NoError(t, err) }
	for copy := range 2 {
		put(0, sb.Encode(disk[g.Superblock(copy):][:512], copy))
	}
	for id := 1; id <= 3; id++ {
		put(0, s.EncodeHost(disk[g.Host(id):][:512], layout.HostRecord{ID: id, Incarnation: uint64(100 + id), State: layout.HostState(id), Sequence: 5, Name: "db",
			ReadHorizon: 3, Verdicts: []layout.Verdict{{Host: id%3 + 1, Incarnation: 7, Kind: layout.VerdictKind(id - 1)}}, Complaints: []layout.Complaint{{Host: 1, Lock: 2}}}))
		for lock := range 4 {
			put(0, s.EncodeSlot(disk[g.Slot(lock, id):][:512], layout.Slot{Lock: lock, Host: id, Incarnation: uint64(100 + id), Creation: uint64(lock + 1), Sequence: 1,
				Phase: layout.Phase((lock + id) % 4), Mode: layout.Mode(id % 2), Ticket: layout.MakeTicket(now+uint64(id), id), Holder: layout.Holder{PID: 1, Command: "sh"},
				Value: []byte("v"), ValueToken: layout.MakeTicket(now, id)}))
		}
	}
	for lock := 1; lock <= 3; lock++ {
		e := layout.Entry{Lock: lock, Name: string(rune('w' + lock)), Permits: lock, Creation: uint64(lock + 1)}
		if lock == 3 {
			e.Name, e.Permits = "", 0
		}
		put(0, s.EncodeEntry(disk[g.Entry(lock):][:512], e))
	}
	return sb, disk
}

// FuzzDisk changes any byte of a lockspace, with or without a valid checksum, and copies records to
// the places of others. All readers (status, dump, check, the directory, the values) must succeed
// and write valid JSON. A record that was changed without its checksum must read as damaged.
func FuzzDisk(f *testing.F) { // 6000x
	sb, whole := crammed(f)
	g := sb.Geometry
	records := int(g.Size()) / g.Stride
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 0, 1, 0xff})
	f.Add([]byte{2, 1, 3, 1, 46, 9, 3, 0, 5, 2, 46, 0xff, 0xff, 0xff})
	f.Add([]byte{2, 1, 43, 0, 1, 1, 9, 3, 2, 0, 1, 2, 0, 43, 0, 1, 8, 2, 3, 9, 0, 1}) // forged, copied, damaged, restored
	f.Fuzz(func(t *testing.T, program []byte) {
		disk := disktest.NewMemory(int64(len(whole)), 512, 512)
		image := blockdev.Alloc(len(whole))
		copy(image, whole)
		// A step of the program is: record, kind of change, offset in the record, number of
		// bytes, bytes.
		next := func() int {
			if len(program) == 0 {
				return 0
			}
			b := program[0]
			program = program[1:]
			return int(b)
		}
		torn := map[int]bool{}
		type placed struct {
			record  int
			content string
		}
		forged := map[placed]bool{} // contents that are valid when they are copied back to their place
		for len(program) > 0 {
			r := next() % records
			record := image[r*g.Stride:][:g.Stride]
			before := bytes.Clone(record)
			kind := next() % 4
			at := (next() | next()<<8) % layout.RecordSize
			if kind == 3 { // the record of another place
				other := at % records
				copy(record, image[other*g.Stride:][:g.Stride])
				if next()%2 == 0 {
					lockspacetest.Forge(record, int64(r*g.Stride))
					torn[r] = false
					forged[placed{r, string(record[:layout.RecordSize])}] = true
				} else if other != r {
					torn[r] = !bytes.Equal(record, make([]byte, g.Stride))
				}
				continue
			}
			for i := range next() % 9 {
				record[(at+i)%layout.RecordSize] = byte(next())
			}
			if kind != 0 {
				lockspacetest.Forge(record, int64(r*g.Stride))
				torn[r] = false
				forged[placed{r, string(record[:layout.RecordSize])}] = true
			} else if !bytes.Equal(before, record) {
				torn[r] = true
			}
		}
		require.NoError(t, disk.Open().Write(image, 0))
		dev := disk.OpenReadOnly()
		found, _, err := lockspace.FindLockspace(dev)
		lockspace.FindFormatMark(image)
		if err != nil {
			return
		}
		damaged := map[int64]bool{}
		require.NoError(t, lockspace.Walk(dev, found, func(r lockspace.Record) error {
			require.NotEmpty(t, r.Describe())
			damaged[r.Offset] = r.Err != nil
			return nil
		}))
		if found.UUID == sb.UUID && found.Geometry == g {
			for r, is := range torn {
				record := image[r*g.Stride:][:layout.RecordSize]
				zero, same := bytes.Equal(record, make([]byte, layout.RecordSize)), bytes.Equal(record, whole[r*g.Stride:][:layout.RecordSize])
				if is && !zero && !same && !forged[placed{r, string(record)}] {
					require.True(t, damaged[int64(r*g.Stride)], "record %d was changed, and reads as valid", r)
				}
			}
		}
		snapshot, err := lockspace.Inspect(dev)
		require.NoError(t, err)
		shown, err := json.Marshal(report.FromSnapshot(snapshot))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(shown, new(report.Report)))
		for _, e := range snapshot.Entries {
			if !e.Free() {
				_, _ = locks.SnapshotValue(snapshot, e.Name)
			}
		}
		_, err = directory.List(dev)
		require.NoError(t, err)
		if found.Geometry.Size() > int64(len(whole)) {
			return
		}
		findings, err := check.Suspicions(dev, found)
		require.NoError(t, err)
		for _, s := range findings {
			require.NotEmpty(t, s.Problem)
			require.NotEmpty(t, s.Remedy, "the finding has a remedy: %+v", s)
		}
	})
}

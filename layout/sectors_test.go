package layout_test

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

var (
	testUUID = layout.UUID{0x0e, 0x9f, 0x3c, 0x52, 0x1d, 0x84, 0x4b, 0x6a, 0x9c, 0x37, 0x5a, 0x2f, 0x81, 0xd6, 0xe4, 0xb0}
	testTime = time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)

	testSuperblock = layout.Superblock{
		UUID:      testUUID,
		Name:      "backup-pool",
		Geometry:  layout.Geometry{Stride: 4096, Hosts: 20, Locks: 1000},
		Lease:     30 * time.Second,
		Policy:    layout.PolicyFence,
		Formatted: testTime,
	}
	testSpace = testSuperblock.Space()

	severalSuperblock = onDisks(3, 2, 1, 2, 3) // of a lockspace on several disks
	severalSpace      = severalSuperblock.Space()
)

// onDisks returns the superblock of the disk at a position, of disks at some positions of 3 or 5.
func onDisks(epoch uint64, position int, positions ...byte) layout.Superblock {
	sb := testSuperblock
	sb.Position, sb.Members.Epoch, sb.Members.Positions = position, epoch, 3
	for _, at := range positions {
		if at > 3 {
			sb.Members.Positions = 5
		}
		sb.Members.Disks[at-1] = diskUUID(at)
	}
	return sb
}

func diskUUID(n byte) layout.UUID {
	return layout.UUID{0xd0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, n}
}

func fencedAfter(after time.Duration) layout.Superblock {
	sb := testSuperblock
	sb.FenceAfter = after
	return sb
}

func testHost() layout.HostRecord {
	return layout.HostRecord{
		ID: 3, Incarnation: 0x1122334455667788, State: layout.StateLive, Sequence: 41, Name: "node-3.example",
		MachineID:   [16]byte{0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
		BootID:      [16]byte{0xb0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
		ReadHorizon: 17, WatchdogArmed: true, WatchdogSeconds: 60, PRKey: 0xfeedc0de00000003,
		Verdicts: []layout.Verdict{{Host: 5, Incarnation: 0x99}, {Host: 20, Incarnation: 1<<64 - 1}},
	}
}

func verdictsOfEachKind() layout.HostRecord {
	return layout.HostRecord{
		ID: 7, Incarnation: 2, State: layout.StateLive, Sequence: 9, ReadHorizon: 20,
		Verdicts: []layout.Verdict{
			{Host: 1, Incarnation: 0x11, Kind: layout.VerdictDead},
			{Host: 2, Incarnation: 0x22, Kind: layout.VerdictWish},
			{Host: 20, Incarnation: 0x33, Kind: layout.VerdictForgotten},
		},
	}
}

func complainingHost() layout.HostRecord {
	return layout.HostRecord{
		ID: 2, Incarnation: 3, State: layout.StateLive, Sequence: 8, ReadHorizon: 20, Name: "db2",
		Complaints: []layout.Complaint{{Host: 20, Lock: 0}, {Host: 0, Lock: 1000}, {Host: 5, Lock: 7}},
	}
}

func testEntry() layout.Entry {
	return layout.Entry{Lock: 7, Name: "vm/été-01", Permits: 2, Creation: 9}
}

func testSlot() layout.Slot {
	return layout.Slot{
		Lock: 7, Host: 3, Incarnation: 0x1122334455667788, Creation: 9, Sequence: 12,
		Phase: layout.Held, Mode: layout.Shared, Ticket: layout.MakeTicket(6903605647183, 3),
		Holder:     layout.Holder{PID: 4711, Since: testTime, Command: "/usr/bin/rsync -a /srv/ /mnt/"},
		Value:      []byte("generation=18\x00\xff"),
		ValueToken: layout.MakeTicket(6903605644531, 9).Grant(5),
	}
}

func requestingSlot() layout.Slot {
	return layout.Slot{
		Lock: 7, Host: 4, Incarnation: 5, Creation: 9, Sequence: 3, Ticket: layout.MakeTicket(6903605644000, 4),
		Request: layout.Request{Ticket: layout.MakeTicket(6903605647183, 3), At: testTime, Message: "rolling reboot, für 10 Minuten"},
	}
}

func severalHost() layout.HostRecord {
	r := testHost()
	r.Generation, r.Epoch = 0x1a2b3c4d, 3
	return r
}

func severalEntry() layout.Entry {
	e := testEntry()
	e.Token, e.Sequence = layout.MakeTicket(6903605640001, 9).Grant(2), 0x0102030405060708
	return e
}

func severalSlot() layout.Slot {
	r := testSlot()
	r.Generation = 0x1a2b3c4d
	return r
}

// sector is one record of a test lockspace, with its decoder and encoder.
type sector struct {
	name   string
	space  layout.Space
	record any
	decode func(buf []byte) (any, error)
	encode func(buf []byte, record any) error
}

func hostSectorIn(space layout.Space) func(string, layout.HostRecord) sector {
	return func(name string, r layout.HostRecord) sector {
		return sector{name, space, r,
			func(buf []byte) (any, error) { return space.DecodeHost(buf, r.ID) },
			func(buf []byte, r any) error { return space.EncodeHost(buf, r.(layout.HostRecord)) }}
	}
}

func entrySectorIn(space layout.Space) func(string, layout.Entry) sector {
	return func(name string, e layout.Entry) sector {
		return sector{name, space, e,
			func(buf []byte) (any, error) { return space.DecodeEntry(buf, e.Lock) },
			func(buf []byte, e any) error { return space.EncodeEntry(buf, e.(layout.Entry)) }}
	}
}

func slotSectorIn(space layout.Space) func(string, layout.Slot) sector {
	return func(name string, r layout.Slot) sector {
		return sector{name, space, r,
			func(buf []byte) (any, error) { return space.DecodeSlot(buf, r.Lock, r.Host) },
			func(buf []byte, r any) error { return space.EncodeSlot(buf, r.(layout.Slot)) }}
	}
}

var (
	hostSector, severalHostSector   = hostSectorIn(testSpace), hostSectorIn(severalSpace)
	entrySector, severalEntrySector = entrySectorIn(testSpace), entrySectorIn(severalSpace)
	slotSector, severalSlotSector   = slotSectorIn(testSpace), slotSectorIn(severalSpace)
)

func superblockSector(name string, sb layout.Superblock, which int) sector {
	return sector{name, sb.Space(), sb,
		func(buf []byte) (any, error) { return layout.DecodeSuperblock(buf, which) },
		func(buf []byte, sb any) error { return sb.(layout.Superblock).Encode(buf, which) }}
}

// at returns the sector as the copy on the disk at a position.
func (s sector) at(position int) sector {
	encode := s.encode
	s.encode = func(buf []byte, record any) error {
		err := encode(buf, record)
		if err == nil {
			layout.PlaceCopy(buf, position)
		}
		return err
	}
	return s
}

// sectors returns the golden sectors: one of each type and state that looks different on disk.
func sectors() []sector {
	idle := layout.Slot{Lock: 0, Host: 20, Incarnation: 1, Ticket: layout.MakeTicket(1, 20)}
	return []sector{
		superblockSector("superblock", testSuperblock, 0),
		superblockSector("superblock-copy", testSuperblock, 1),
		superblockSector("superblock-fence-after", fencedAfter(6*time.Second), 0),
		hostSector("host-live", testHost()),
		hostSector("host-verdicts", verdictsOfEachKind()),
		hostSector("host-complaints", complainingHost()),
		hostSector("host-left", layout.HostRecord{ID: 20, Incarnation: 1, State: layout.StateLeft}),
		entrySector("entry", testEntry()),
		entrySector("entry-free", layout.Entry{Lock: 1000, Creation: 10}),
		slotSector("slot-held", testSlot()),
		slotSector("slot-idle", idle),
		slotSector("slot-request", requestingSlot()),
		superblockSector("superblock-several", severalSuperblock, 0),
		superblockSector("superblock-several-copy", severalSuperblock, 1),
		superblockSector("superblock-vacant", onDisks(4, 5, 1, 2, 4, 5), 0),
		severalHostSector("host-several", severalHost()),
		severalEntrySector("entry-several", severalEntry()),
		severalSlotSector("slot-several", severalSlot()).at(4),
	}
}

func encoded(t require.TestingT, s sector) []byte {
	buf := make([]byte, layout.RecordSize)
	require.NoError(t, s.encode(buf, s.record))
	return buf
}

// reseal makes the checksum of a modified sector valid again.
func reseal(buf []byte) []byte {
	binary.LittleEndian.PutUint32(buf[8:], 0)
	binary.LittleEndian.PutUint32(buf[8:], crc32.Checksum(buf[:512], crc32.MakeTable(crc32.Castagnoli)))
	return buf
}

package layout_test

import (
	"math"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bakeryd/bakeryd/layout"
)

func drawText(t *rapid.T, low, high int, name string) string {
	r := rapid.Rune().Filter(func(r rune) bool { return !unicode.IsControl(r) })
	return rapid.StringOfN(r, low, high, high).Draw(t, name)
}

func drawTime(t *rapid.T, name string) time.Time {
	us := rapid.Int64Range(0, lastTime.UnixMicro()).Draw(t, name)
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func drawTicket(t *rapid.T, low, high int, name string) layout.Ticket {
	if rapid.Bool().Draw(t, name+" none") {
		return 0
	}
	return layout.MakeTicket(rapid.Uint64Range(0, layout.MaxNumber).Draw(t, name), rapid.IntRange(low, high).Draw(t, name+" host"))
}

func drawToken(t *rapid.T, hosts int) layout.Ticket {
	ticket := drawTicket(t, 1, hosts, "value token")
	if ticket == 0 {
		return 0
	}
	return ticket.Grant(rapid.IntRange(0, layout.MaxGrants-1).Draw(t, "value token grant"))
}

// drawMembers returns the disks of a lockspace on several, and the position of one.
func drawMembers(t *rapid.T) (m layout.Members, position int) {
	m.Positions = rapid.SampledFrom([]int{3, 5}).Draw(t, "positions")
	m.Epoch = rapid.Uint64Range(1, math.MaxUint64).Draw(t, "epoch")
	vacant := rapid.IntRange(0, m.Positions).Draw(t, "vacant position")
	var at []int
	for i := 1; i <= m.Positions; i++ {
		if i != vacant {
			m.Disks[i-1] = layout.UUID(append(rapid.SliceOfN(rapid.Byte(), 15, 15).Draw(t, "disk"), byte(i)))
			at = append(at, i)
		}
	}
	return m, rapid.SampledFrom(at).Draw(t, "position")
}

// checkCopies moves a record from disk to disk, and checks its version on each.
func checkCopies(t *rapid.T, space layout.Space, buf []byte, off int64, want layout.CopyVersion) {
	if !space.Several || want == (layout.CopyVersion{}) {
		return
	}
	for position := 1; position <= layout.MaxPositions; position++ {
		layout.PlaceCopy(buf, position)
		version, err := space.CopyVersion(buf, off, position)
		require.NoError(t, err)
		require.Equal(t, want, version)
	}
}

func drawSuperblock(t *rapid.T) layout.Superblock {
	sb := layout.Superblock{
		UUID: layout.UUID(append(rapid.SliceOfN(rapid.Byte(), 15, 15).Draw(t, "uuid"), 1)),
		Name: drawText(t, 0, 64, "lockspace name"),
		Geometry: layout.Geometry{
			Stride: 512 << rapid.IntRange(0, 7).Draw(t, "stride"),
			Hosts:  rapid.IntRange(1, layout.MaxHosts).Draw(t, "hosts"),
			Locks:  rapid.IntRange(1, layout.MaxLocks).Draw(t, "locks"),
		},
		Lease:     time.Duration(rapid.Int64Range(1e6, 3600e6).Draw(t, "lease")) * time.Microsecond,
		Policy:    layout.Policy(rapid.IntRange(0, 2).Draw(t, "policy")),
		Formatted: drawTime(t, "formatted"),
	}
	if rapid.Bool().Draw(t, "several") {
		sb.Members, sb.Position = drawMembers(t)
	}
	return sb
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sb := drawSuperblock(t)
		space, g := sb.Space(), sb.Geometry
		host := rapid.IntRange(1, g.Hosts).Draw(t, "host")
		lock := rapid.IntRange(1, g.Locks).Draw(t, "lock")
		buf := make([]byte, g.Stride)
		for which := range 2 {
			require.NoError(t, sb.Encode(buf, which))
			found, err := layout.DecodeSuperblock(buf, which)
			require.NoError(t, err)
			require.Equal(t, sb, found)
			checkCopies(t, space, buf, g.Superblock(which), layout.CopyVersion{Epoch: sb.Members.Epoch})
		}

		word := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
		id := func(name string) [16]byte { return [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name)) }
		record := layout.HostRecord{
			ID: host, Incarnation: word("incarnation") | 1, Sequence: word("sequence"), Name: drawText(t, 0, 64, "host name"),
			State: layout.HostState(rapid.IntRange(1, 3).Draw(t, "state")), MachineID: id("machine"), BootID: id("boot"),
			ReadHorizon: rapid.IntRange(0, g.Hosts).Draw(t, "highest"), WatchdogArmed: rapid.Bool().Draw(t, "armed"),
			WatchdogSeconds: rapid.Uint16().Draw(t, "seconds"), PRKey: word("key"),
		}
		for range rapid.IntRange(0, 16).Draw(t, "verdicts") {
			record.Verdicts = append(record.Verdicts, layout.Verdict{
				Host: rapid.IntRange(1, g.Hosts).Draw(t, "dead host"), Incarnation: word("dead incarnation") | 1,
				Kind: layout.VerdictKind(rapid.IntRange(0, 2).Draw(t, "kind"))})
		}
		for range rapid.IntRange(0, layout.MaxComplaints).Draw(t, "complaints") {
			c := layout.Complaint{Host: rapid.IntRange(0, g.Hosts).Draw(t, "complaint host")}
			c.Lock = rapid.IntRange(max(0, 1-c.Host), g.Locks).Draw(t, "complaint lock")
			record.Complaints = append(record.Complaints, c)
		}
		if space.Several {
			record.Generation, record.Epoch = rapid.Uint32().Draw(t, "generation"), word("host epoch")
		}
		require.NoError(t, space.EncodeHost(buf, record))
		checkCopies(t, space, buf, g.Host(host), layout.CopyVersion{Epoch: uint64(record.Generation), Counter: record.Sequence})
		foundRecord, err := space.DecodeHost(buf, host)
		require.NoError(t, err)
		require.Equal(t, record, foundRecord)

		entry := layout.Entry{Lock: lock, Name: drawText(t, 0, 128, "lock name"), Creation: rapid.Uint64Range(1, layout.MaxCreation).Draw(t, "creation")}
		if !entry.Free() {
			entry.Permits = rapid.IntRange(1, layout.MaxHosts).Draw(t, "permits")
		}
		if space.Several {
			entry.Token, entry.Sequence = drawToken(t, g.Hosts), word("number")
			if entry.Token == 0 {
				entry.Token = layout.MakeTicket(layout.MaxNumber, g.Hosts)
			}
		}
		require.NoError(t, space.EncodeEntry(buf, entry))
		checkCopies(t, space, buf, g.Entry(lock), layout.CopyVersion{Epoch: uint64(entry.Token), Counter: entry.Sequence})
		foundEntry, err := space.DecodeEntry(buf, lock)
		require.NoError(t, err)
		require.Equal(t, entry, foundEntry)

		slot := layout.Slot{
			Lock: rapid.IntRange(0, g.Locks).Draw(t, "slot lock"), Host: host,
			Incarnation: word("slot incarnation") | 1, Creation: rapid.Uint64Range(0, layout.MaxCreation).Draw(t, "slot creation"), Sequence: word("slot sequence"),
			Phase: layout.Phase(rapid.IntRange(0, 3).Draw(t, "phase")), Mode: layout.Mode(rapid.IntRange(0, 1).Draw(t, "mode")),
			Ticket: drawTicket(t, host, host, "ticket"), ValueToken: drawToken(t, g.Hosts),
			Holder: layout.Holder{
				PID: rapid.IntRange(0, math.MaxInt32).Draw(t, "pid"), Since: drawTime(t, "since"),
				Command: layout.TruncateCommand(rapid.String().Draw(t, "command")),
			},
		}
		if slot.Ticket == 0 {
			slot.Phase = layout.Idle
		}
		if value := rapid.SliceOfN(rapid.Byte(), 0, 256).Draw(t, "value"); len(value) > 0 {
			slot.Value = value
		}
		if slot.Request.Ticket = drawTicket(t, 1, g.Hosts, "request ticket"); slot.Request.Ticket != 0 {
			slot.Request.At = drawTime(t, "request since")
			slot.Request.Message = drawText(t, 0, layout.MaxRequest, "request message")
		}
		if space.Several {
			slot.Generation = rapid.Uint32().Draw(t, "slot generation")
		}
		require.NoError(t, space.EncodeSlot(buf, slot))
		checkCopies(t, space, buf, g.Slot(slot.Lock, host), layout.CopyVersion{Epoch: uint64(slot.Generation), Counter: slot.Sequence})
		foundSlot, err := space.DecodeSlot(buf, slot.Lock, host)
		require.NoError(t, err)
		require.Equal(t, slot, foundSlot)
	})
}

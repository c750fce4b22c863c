package layout_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// limit is one value of one field: at a bound, just inside it, or (want not empty) just outside.
type limit[R any] struct {
	name string
	set  func(*R)
	want string
}

func checkLimits[R any](t *testing.T, base func() R, of func(string, R) sector, limits []limit[R]) {
	for _, c := range limits {
		t.Run(c.name, func(t *testing.T) {
			r := base()
			c.set(&r)
			s := of("", r)
			buf := make([]byte, layout.RecordSize)
			err := s.encode(buf, r)
			if c.want != "" {
				require.ErrorIs(t, err, layout.ErrField)
				require.ErrorContains(t, err, c.want)
				require.Equal(t, make([]byte, layout.RecordSize), buf, "unchanged on an error")
				return
			}
			require.NoError(t, err)
			found, err := s.decode(buf)
			require.NoError(t, err)
			require.Equal(t, any(r), found)
		})
	}
}

// raw is a field value that only a foreign writer could have written with a valid checksum.
type raw struct {
	name  string
	at    int
	bytes []byte
	want  string
}

func checkRaw(t *testing.T, s sector, cases []raw) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			buf := encoded(t, s)
			copy(buf[c.at:], c.bytes)
			_, err := s.decode(reseal(buf))
			require.ErrorIs(t, err, layout.ErrField)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func u16(v uint16) []byte { return binary.LittleEndian.AppendUint16(nil, v) }
func u32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
func u64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

var lastTime = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)

func TestSuperblockLimits(t *testing.T) {
	type sb = layout.Superblock
	of := func(name string, r sb) sector { return superblockSector(name, r, 1) }
	checkLimits(t, func() sb { return testSuperblock }, of, []limit[sb]{
		{"uuid zero", func(r *sb) { r.UUID = layout.UUID{} }, "uuid 00000000-0000-0000-0000-000000000000"},
		{"name empty", func(r *sb) { r.Name = "" }, ""},
		{"name at", func(r *sb) { r.Name = strings.Repeat("x", 64) }, ""},
		{"name above", func(r *sb) { r.Name = strings.Repeat("x", 65) }, "lockspace name of 65 bytes, want 0 to 64"},
		{"name control", func(r *sb) { r.Name = "a\tb" }, "control"},
		{"name not UTF-8", func(r *sb) { r.Name = "\xff" }, "UTF-8"},
		{"stride at", func(r *sb) { r.Geometry.Stride = 512 }, ""},
		{"stride at high", func(r *sb) { r.Geometry.Stride = 65536 }, ""},
		{"stride bad", func(r *sb) { r.Geometry.Stride = 4000 }, "stride 4000"},
		{"hosts at", func(r *sb) { r.Geometry.Hosts = 2000 }, ""},
		{"hosts above", func(r *sb) { r.Geometry.Hosts = 2001 }, "hosts 2001"},
		{"locks at", func(r *sb) { r.Geometry.Locks = 65536 }, ""},
		{"locks above", func(r *sb) { r.Geometry.Locks = 65537 }, "locks 65537"},
		{"lease below", func(r *sb) { r.Lease = time.Second - 1 }, "lease 999.999999ms, want 1s to 1h0m0s"},
		{"lease at", func(r *sb) { r.Lease = time.Second }, ""},
		{"lease inside", func(r *sb) { r.Lease = time.Second + time.Microsecond }, ""},
		{"lease uneven", func(r *sb) { r.Lease = time.Second + 1 }, "whole microseconds"},
		{"lease at high", func(r *sb) { r.Lease = time.Hour }, ""},
		{"lease above", func(r *sb) { r.Lease = time.Hour + 1000 }, "lease 1h0m0.000001s"},
		{"policy at", func(r *sb) { r.Policy = layout.PolicyManual }, ""},
		{"policy above", func(r *sb) { r.Policy = 3 }, "policy 3, want 0 to 2"},
		{"fence-after below", func(r *sb) { r.FenceAfter = 6*time.Second - 1000 }, "fence-after 5.999999s, want 0 or 6s to 30s"},
		{"fence-after at", func(r *sb) { r.FenceAfter = 6 * time.Second }, ""},
		{"fence-after at high", func(r *sb) { r.FenceAfter = 30 * time.Second }, ""},
		{"fence-after above", func(r *sb) { r.FenceAfter = 30*time.Second + 1000 }, "fence-after 30.000001s"},
		{"fence-after uneven", func(r *sb) { r.FenceAfter = 6*time.Second + 1 }, "whole microseconds"},
		{"fence-after negative", func(r *sb) { r.FenceAfter = -6 * time.Second }, "fence-after -6s"},
		{"fence-after, another policy", func(r *sb) { r.FenceAfter, r.Policy = 6*time.Second, layout.PolicyLease }, "fence-after 6s with policy lease"},
		{"formatted unknown", func(r *sb) { r.Formatted = time.Time{} }, ""},
		{"formatted before", func(r *sb) { r.Formatted = time.UnixMicro(-1) }, "want a time from 1970 to 9999"},
		{"formatted early", func(r *sb) { r.Formatted = time.UnixMicro(1).UTC() }, ""},
		{"formatted last", func(r *sb) { r.Formatted = lastTime }, ""},
		{"formatted after", func(r *sb) { r.Formatted = lastTime.Add(time.Microsecond) }, "formatted"},
		{"formatted far", func(r *sb) { r.Formatted = time.Unix(math.MaxInt64/2, 0) }, "formatted"},
	})
	for which := range 2 {
		checkRaw(t, superblockSector("", testSuperblock, which), []raw{
			{"uuid", 24, make([]byte, 16), "uuid"},
			{"hosts", 44, u32(0), "hosts 0"},
			{"hosts large", 44, u32(math.MaxUint32), "hosts"},
			{"locks", 48, u32(0), "locks 0"},
			{"policy", 52, []byte{3}, "policy 3"},
			{"reserved", 53, []byte{1}, "reserved bytes 53 to 53"},
			{"name length", 54, u16(65), "lockspace name of 65 bytes"},
			{"name shorter", 54, u16(3), "zeroes after it"},
			{"lease", 56, u64(999_999), "lease 999.999ms"},
			{"lease large", 56, u64(3_600_000_001), "lease 3600000001 us"},
			{"lease overflow", 56, u64(math.MaxUint64), "lease"},
			{"fence-after", 136, u64(1), "fence-after 1µs"},
			{"fence-after large", 136, u64(math.MaxUint64), "fence-after 18446744073709551615 us"},
			{"reserved for several disks", 144, []byte{1}, "reserved bytes 144 to 255"},
			{"reserved for several disks last", 255, []byte{1}, "reserved bytes 144 to 255"},
			{"reserved after it", 256, []byte{1}, "reserved bytes 256 to 511"},
			{"position", 6, []byte{1}, "reserved bytes 6 to 7"},
			{"generation", 12, []byte{1}, "reserved bytes 12 to 15"},
			{"several disks", 4, []byte{2}, "position 0, want 1 to 5"},
			{"several disks, none named", 4, []byte{2, 0, 1}, "0 positions of member disks, want 3 or 5"},
			{"formatted", 64, u64(253402300800_000000), "formatted"},
			{"formatted negative", 64, u64(math.MaxUint64), "formatted"},
			{"name control", 72, []byte{7}, "control"},
		})
	}
	// The superblock's own check bounds its stride; the address bounds the copy's stride as well.
	checkRaw(t, superblockSector("", testSuperblock, 0), []raw{
		{"stride", 40, u32(4095), "stride 4095"},
		{"stride large", 40, u32(math.MaxUint32), "stride"},
	})
	buf := encoded(t, superblockSector("", testSuperblock, 1))
	copy(buf[40:], u32(512))
	_, err := layout.DecodeSuperblock(reseal(buf), 1)
	require.ErrorIs(t, err, layout.ErrIdentity)
}

func TestHostLimits(t *testing.T) {
	type host = layout.HostRecord
	checkLimits(t, testHost, hostSector, []limit[host]{
		{"highest none", func(r *host) { r.ReadHorizon = 0 }, ""},
		{"highest below", func(r *host) { r.ReadHorizon = -1 }, "highest host -1, want 0 to 20"},
		{"highest at", func(r *host) { r.ReadHorizon = 20 }, ""},
		{"highest above", func(r *host) { r.ReadHorizon = 21 }, "highest host 21"},
		{"incarnation zero", func(r *host) { r.Incarnation = 0 }, "incarnation 0"},
		{"incarnation max", func(r *host) { r.Incarnation = math.MaxUint64 }, ""},
		{"state blank", func(r *host) { r.State = layout.StateBlank }, "host state 0, want 1 to 3"},
		{"state joining", func(r *host) { r.State = layout.StateJoining }, ""},
		{"state left", func(r *host) { r.State = layout.StateLeft }, ""},
		{"state above", func(r *host) { r.State = 4 }, "host state 4"},
		{"sequence max", func(r *host) { r.Sequence = math.MaxUint64 }, ""},
		{"name empty", func(r *host) { r.Name = "" }, ""},
		{"name at", func(r *host) { r.Name = strings.Repeat("x", 64) }, ""},
		{"name above", func(r *host) { r.Name = strings.Repeat("x", 65) }, "host name of 65 bytes"},
		{"watchdog off", func(r *host) { r.WatchdogArmed, r.WatchdogSeconds = false, 0 }, ""},
		{"watchdog max", func(r *host) { r.WatchdogSeconds = math.MaxUint16 }, ""},
		{"verdicts none", func(r *host) { r.Verdicts = nil }, ""},
		{"verdicts at", func(r *host) { r.Verdicts = verdicts(16) }, ""},
		{"verdicts above", func(r *host) { r.Verdicts = verdicts(17) }, "number of verdicts 17, want 0 to 16"},
		{"verdict host 0", func(r *host) { r.Verdicts = []layout.Verdict{{Host: 0, Incarnation: 1}} }, "verdict 1: host 0"},
		{"verdict host 21", func(r *host) { r.Verdicts = []layout.Verdict{{Host: 21, Incarnation: 1}} }, "verdict 1: host 21"},
		{"verdict incarnation", func(r *host) { r.Verdicts = []layout.Verdict{{Host: 1}} }, "verdict 1: incarnation 0"},
		{"verdict kind at", func(r *host) {
			r.Verdicts = []layout.Verdict{{Host: 1, Incarnation: 1, Kind: layout.VerdictForgotten}}
		}, ""},
		{"verdict kind above", func(r *host) { r.Verdicts = []layout.Verdict{{Host: 1, Incarnation: 1, Kind: 3}} }, "verdict 1: kind 3, want 0 to 2"},
		{"complaints at", func(r *host) { r.Complaints = complaints(8) }, ""},
		{"complaints above", func(r *host) { r.Complaints = complaints(9) }, "number of complaints 9, want 0 to 8"},
		{"complaint host below", func(r *host) { r.Complaints = []layout.Complaint{{Host: -1, Lock: 1}} }, "complaint 1: host -1, want 0 to 20"},
		{"complaint host at", func(r *host) { r.Complaints = []layout.Complaint{{Host: 20, Lock: 1}} }, ""},
		{"complaint host above", func(r *host) { r.Complaints = []layout.Complaint{{Host: 21, Lock: 1}} }, "complaint 1: host 21"},
		{"complaint of a slot of lock 0", func(r *host) { r.Complaints = []layout.Complaint{{Host: 1, Lock: 0}} }, ""},
		{"complaint of an entry", func(r *host) { r.Complaints = []layout.Complaint{{Host: 0, Lock: 1}} }, ""},
		{"complaint of no entry", func(r *host) { r.Complaints = []layout.Complaint{{Host: 0, Lock: 0}} }, "complaint 1: lock 0, want 1 to 1000"},
		{"complaint lock at", func(r *host) { r.Complaints = []layout.Complaint{{Host: 1, Lock: 1000}} }, ""},
		{"complaint lock above", func(r *host) { r.Complaints = []layout.Complaint{{Host: 1, Lock: 1001}} }, "complaint 1: lock 1001"},
		{"complaint lock below", func(r *host) { r.Complaints = []layout.Complaint{{Host: 1, Lock: -1}} }, "complaint 1: lock -1"},
		{"generation", func(r *host) { r.Generation = 1 }, "generation on one disk, want none"},
		{"epoch", func(r *host) { r.Epoch = 1 }, "epoch on one disk, want none"},
	})
	for _, id := range []int{-1, 0, 21} {
		r := testHost()
		r.ID = id
		require.ErrorIs(t, testSpace.EncodeHost(make([]byte, 512), r), layout.ErrField)
	}
	checkRaw(t, hostSector("", testHost()), []raw{
		{"state", 42, []byte{0}, "host state 0"},
		{"armed", 43, []byte{2}, "watchdog armed 2, want 0 to 1"},
		{"highest", 46, u16(21), "highest host 21"},
		{"incarnation", 48, u64(0), "incarnation 0"},
		{"count", 104, u16(17), "number of verdicts 17"},
		{"count smaller", 104, u16(1), "reserved bytes 192 to 431"},
		{"count larger", 104, u16(3), "verdict 3: host 0"},
		{"name length", 106, u16(65), "host name of 65 bytes"},
		{"name shorter", 106, u16(1), "zeroes after it"},
		{"name longer", 106, u16(20), "control"},
		{"reserved", 110, []byte{1}, "reserved bytes 110 to 111"},
		{"position", 6, []byte{1}, "reserved bytes 6 to 7"},
		{"generation", 15, []byte{1}, "reserved bytes 12 to 15"},
		{"epoch", 496, []byte{1}, "reserved bytes 496 to 503"},
		{"epoch last", 503, []byte{1}, "reserved bytes 496 to 503"},
		{"reserved last", 504, []byte{1}, "reserved bytes 504 to 511"},
		{"verdict kind", 178, []byte{3}, "verdict 1: kind 3, want 0 to 2"},
		{"verdict reserved first", 179, []byte{1}, "reserved bytes 179 to 183"},
		{"verdict reserved", 182, []byte{0, 1}, "reserved bytes 179 to 183"},
		{"verdict incarnation", 184, u64(0), "verdict 1: incarnation 0"},
	})
}

func TestRawComplaints(t *testing.T) {
	checkRaw(t, hostSector("", complainingHost()), []raw{
		{"count", 108, u16(9), "number of complaints 9"},
		{"count smaller", 108, u16(2), "byte 12288: reserved bytes 448 to 495"},
		{"count larger", 108, u16(4), "complaint 4: lock 0, want 1 to 1000"},
		{"host", 432, u16(21), "complaint 1: host 21"},
		{"reserved first", 434, []byte{1}, "reserved bytes 434 to 435"},
		{"reserved", 451, []byte{1}, "reserved bytes 450 to 451"},
		{"lock", 436, u32(1001), "complaint 1: lock 1001"},
		{"lock large", 436, u32(math.MaxUint32), "complaint 1: lock"},
	})
}

func complaints(n int) (all []layout.Complaint) {
	for i := range n {
		all = append(all, layout.Complaint{Host: i, Lock: 1000 - i})
	}
	return all
}

func verdicts(n int) (all []layout.Verdict) {
	for i := range n {
		all = append(all, layout.Verdict{Host: 20 - i, Incarnation: uint64(i + 1)})
	}
	return all
}

func TestEntryLimits(t *testing.T) {
	type entry = layout.Entry
	checkLimits(t, testEntry, entrySector, []limit[entry]{
		{"lock first", func(r *entry) { r.Lock = 1 }, ""},
		{"lock last", func(r *entry) { r.Lock = 1000 }, ""},
		{"name at", func(r *entry) { r.Name = "x" }, ""},
		{"name at high", func(r *entry) { r.Name = strings.Repeat("x", 128) }, ""},
		{"name above", func(r *entry) { r.Name = strings.Repeat("x", 129) }, "lock name of 129 bytes, want 1 to 128"},
		{"name control", func(r *entry) { r.Name = "\x1b[0m" }, "control"},
		{"permits below", func(r *entry) { r.Permits = 0 }, "permits 0, want 1 to 2000"},
		{"permits at", func(r *entry) { r.Permits = 1 }, ""},
		{"permits at high", func(r *entry) { r.Permits = 2000 }, ""},
		{"permits above", func(r *entry) { r.Permits = 2001 }, "permits 2001"},
		{"creation below", func(r *entry) { r.Creation = 0 }, "creation 0"},
		{"creation at", func(r *entry) { r.Creation = layout.MaxCreation }, ""},
		{"creation above", func(r *entry) { r.Creation = layout.MaxCreation + 1 }, "creation 17592186044417, want at most 17592186044416"},
		{"creation max", func(r *entry) { r.Creation = math.MaxUint64 }, "creation 18446744073709551615"},
		{"free", func(r *entry) { r.Name, r.Permits = "", 0 }, ""},
		{"free with permits", func(r *entry) { r.Name = "" }, "permits of a free entry 2"},
		{"free without creation", func(r *entry) { *r = entry{Lock: 7} }, "creation 0"},
		{"token", func(r *entry) { r.Token = layout.MakeTicket(1, 1) }, "version on one disk, want none"},
		{"number", func(r *entry) { r.Sequence = 1 }, "version on one disk, want none"},
	})
	for _, lock := range []int{-1, 0, 1001} {
		r := testEntry()
		r.Lock = lock
		require.ErrorIs(t, testSpace.EncodeEntry(make([]byte, 512), r), layout.ErrField)
	}
	checkRaw(t, entrySector("", testEntry()), []raw{
		{"permits", 44, u16(2001), "permits 2001"},
		{"free with permits", 46, append(u16(0), append(u64(9), make([]byte, 128)...)...), "permits of a free entry"},
		{"name length", 46, u16(129), "lock name of 129 bytes"},
		{"name shorter", 46, u16(1), "zeroes after it"},
		{"creation", 48, u64(0), "creation 0"},
		{"name not UTF-8", 56, []byte{0xff}, "UTF-8"},
		{"position", 6, []byte{1}, "reserved bytes 6 to 7"},
		{"generation", 12, []byte{1}, "reserved bytes 12 to 15"},
		{"token", 184, []byte{1}, "reserved bytes 184 to 199"},
		{"number", 199, []byte{1}, "reserved bytes 184 to 199"},
		{"reserved", 200, []byte{1}, "reserved bytes 200 to 511"},
	})
}

func TestSlotLimits(t *testing.T) {
	type slot = layout.Slot
	checkLimits(t, testSlot, slotSector, []limit[slot]{
		{"lock internal", func(r *slot) { r.Lock = 0 }, ""},
		{"lock last", func(r *slot) { r.Lock = 1000 }, ""},
		{"host first", func(r *slot) { r.Host, r.Ticket = 1, layout.MakeTicket(1, 1) }, ""},
		{"host last", func(r *slot) { r.Host, r.Ticket = 20, layout.MakeTicket(1, 20) }, ""},
		{"incarnation", func(r *slot) { r.Incarnation = 0 }, "incarnation 0"},
		{"creation none", func(r *slot) { r.Creation = 0 }, ""},
		{"largest words", func(r *slot) { r.Incarnation, r.Creation, r.Sequence = 1<<64-1, layout.MaxCreation, 1<<64-1 }, ""},
		{"phase at", func(r *slot) { r.Phase = layout.Idle }, ""},
		{"phase above", func(r *slot) { r.Phase = 4 }, "phase 4, want 0 to 3"},
		{"mode at", func(r *slot) { r.Mode = layout.Exclusive }, ""},
		{"mode above", func(r *slot) { r.Mode = 2 }, "mode 2, want 0 to 1"},
		{"ticket none", func(r *slot) { r.Ticket, r.Phase = 0, layout.Idle }, ""},
		{"choosing without a ticket", func(r *slot) { r.Ticket, r.Phase = 0, layout.Choosing }, "choosing without a ticket"},
		{"waiting without a ticket", func(r *slot) { r.Ticket, r.Phase = 0, layout.Waiting }, "waiting without a ticket"},
		{"held without a ticket", func(r *slot) { r.Ticket, r.Phase = 0, layout.Held }, "held without a ticket"},
		{"creation at", func(r *slot) { r.Creation = layout.MaxCreation }, ""},
		{"creation above", func(r *slot) { r.Creation = layout.MaxCreation + 1 }, "creation 17592186044417, want at most 17592186044416"},
		{"ticket least", func(r *slot) { r.Ticket = layout.MakeTicket(0, 3) }, ""},
		{"ticket at", func(r *slot) { r.Ticket = layout.MakeTicket(layout.MaxNumber, 3) }, ""},
		{"ticket of another", func(r *slot) { r.Ticket = layout.MakeTicket(1, 4) }, "ticket 525312 is of host 4, want 3"},
		{"ticket of none", func(r *slot) { r.Ticket = 1 << 19 }, "ticket 524288 is of host 0"},
		{"ticket of a grant", func(r *slot) { r.Ticket = layout.MakeTicket(1, 3).Grant(255) }, "ticket 525311 is the token of grant 255, want 0"},
		{"ticket above", func(r *slot) { r.Ticket = 1<<63 + 3<<8 }, "ticket 9223372036854776576, want a number below 2^63"},
		{"value token none", func(r *slot) { r.ValueToken = 0 }, ""},
		{"value token at", func(r *slot) { r.ValueToken = layout.MakeTicket(layout.MaxNumber, 20).Grant(255) }, ""},
		{"value token of none", func(r *slot) { r.ValueToken = 255 }, "value token 255 is of host 0"},
		{"value token host", func(r *slot) { r.ValueToken = layout.MakeTicket(1, 21) }, "value token 529664 is of host 21, want 1 to 20"},
		{"value token above", func(r *slot) { r.ValueToken = 1 << 63 }, "value token"},
		{"value none", func(r *slot) { r.Value = nil }, ""},
		{"value at", func(r *slot) { r.Value = []byte(strings.Repeat("\x00\xff", 128)) }, ""},
		{"value above", func(r *slot) { r.Value = make([]byte, 257) }, "bytes of value 257, want 0 to 256"},
		{"pid none", func(r *slot) { r.Holder.PID = 0 }, ""},
		{"pid below", func(r *slot) { r.Holder.PID = -1 }, "process id -1"},
		{"pid at", func(r *slot) { r.Holder.PID = math.MaxInt32 }, ""},
		{"pid above", func(r *slot) { r.Holder.PID = math.MaxInt32 + 1 }, "process id 2147483648"},
		{"since none", func(r *slot) { r.Holder.Since = time.Time{} }, ""},
		{"since before", func(r *slot) { r.Holder.Since = time.UnixMicro(-1) }, "since"},
		{"since last", func(r *slot) { r.Holder.Since = lastTime }, ""},
		{"since after", func(r *slot) { r.Holder.Since = lastTime.Add(time.Microsecond) }, "since"},
		{"command none", func(r *slot) { r.Holder.Command = "" }, ""},
		{"command at", func(r *slot) { r.Holder.Command = strings.Repeat("x", 80) }, ""},
		{"command above", func(r *slot) { r.Holder.Command = strings.Repeat("x", 81) }, "command of 81 bytes, want 0 to 80"},
		{"command control", func(r *slot) { r.Holder.Command = "a\nb" }, "control"},
		{"generation", func(r *slot) { r.Generation = 1 }, "generation on one disk, want none"},
	})
	checkLimits(t, requestingSlot, slotSector, []limit[slot]{
		{"request none", func(r *slot) { r.Request = layout.Request{} }, ""},
		{"request ticket least", func(r *slot) { r.Request.Ticket = layout.MakeTicket(0, 1) }, ""},
		{"request ticket at", func(r *slot) { r.Request.Ticket = layout.MakeTicket(layout.MaxNumber, 20) }, ""},
		{"request ticket of its own", func(r *slot) { r.Request.Ticket = r.Ticket }, ""},
		{"request ticket host", func(r *slot) { r.Request.Ticket = layout.MakeTicket(1, 21) }, "request ticket 529664 is of host 21, want 1 to 20"},
		{"request ticket of a grant", func(r *slot) { r.Request.Ticket = layout.MakeTicket(1, 3).Grant(255) }, "request ticket 525311 is the token of grant 255, want 0"},
		{"request ticket above", func(r *slot) { r.Request.Ticket = 1 << 63 }, "request ticket"},
		{"request since none", func(r *slot) { r.Request.At = time.Time{} }, ""},
		{"request since last", func(r *slot) { r.Request.At = lastTime }, ""},
		{"request since after", func(r *slot) { r.Request.At = lastTime.Add(time.Microsecond) }, "request since"},
		{"message none", func(r *slot) { r.Request.Message = "" }, ""},
		{"message at", func(r *slot) { r.Request.Message = strings.Repeat("é", 27) }, ""},
		{"message above", func(r *slot) { r.Request.Message = strings.Repeat("x", 55) }, "request message of 55 bytes, want 0 to 54"},
		{"message control", func(r *slot) { r.Request.Message = "a\x1b[2J" }, "control"},
		{"message no text", func(r *slot) { r.Request.Message = "a\xff" }, "UTF-8"},
		{"message alone", func(r *slot) { r.Request = layout.Request{Message: "x"} }, "request without a ticket"},
		{"since alone", func(r *slot) { r.Request = layout.Request{At: testTime} }, "request without a ticket"},
	})
	for _, at := range [][2]int{{-1, 3}, {1001, 3}, {7, 0}, {7, -1}, {7, 21}} {
		r := testSlot()
		r.Lock, r.Host, r.Ticket = at[0], at[1], 0
		require.ErrorIs(t, testSpace.EncodeSlot(make([]byte, 512), r), layout.ErrField)
	}
	checkRaw(t, slotSector("", testSlot()), []raw{
		{"phase", 46, []byte{4}, "phase 4"},
		{"mode", 47, []byte{2}, "mode 2"},
		{"incarnation", 48, u64(0), "incarnation 0"},
		{"ticket", 72, u64(4 << 8), "ticket 1024 is of host 4, want 3"},
		{"ticket of a grant", 72, []byte{1}, "is the token of grant 1, want 0"},
		{"ticket sign", 79, []byte{0x80}, "below 2^63"},
		{"value token", 80, u64(21 << 8), "value token 5376 is of host 21"},
		{"since", 88, u64(1 << 63), "since"},
		{"pid", 96, u32(1 << 31), "process id 2147483648"},
		{"command length", 100, u16(81), "command of 81 bytes"},
		{"command shorter", 100, u16(3), "zeroes after it"},
		{"command control", 104, []byte{9}, "control"},
		{"value length", 102, u16(257), "value of 257 bytes"},
		{"value shorter", 102, u16(3), "zeroes after it"},
		{"position", 6, []byte{1}, "reserved bytes 6 to 7"},
		{"generation", 12, []byte{1}, "reserved bytes 12 to 15"},
	})
	checkRaw(t, slotSector("", requestingSlot()), []raw{
		{"request ticket", 440, u64(21 << 8), "request ticket 5376 is of host 21"},
		{"request ticket of a grant", 440, []byte{1}, "is the token of grant 1, want 0"},
		{"request ticket sign", 447, []byte{0x80}, "below 2^63"},
		{"request without a ticket", 440, u64(0), "request without a ticket"},
		{"request since", 448, u64(1 << 63), "request since"},
		{"message length", 456, u16(55), "request message of 55 bytes"},
		{"message shorter", 456, u16(3), "zeroes after it"},
		{"message longer", 511, []byte{1}, "zeroes after it"},
		{"message control", 458, []byte{9}, "control"},
	})
}

func TestTimesKeepMicroseconds(t *testing.T) {
	slot := testSlot()
	slot.Holder.Since = testTime.Add(999 * time.Nanosecond).In(time.FixedZone("east", 7200))
	buf := make([]byte, 512)
	require.NoError(t, testSpace.EncodeSlot(buf, slot))
	found, err := testSpace.DecodeSlot(buf, 7, 3)
	require.NoError(t, err)
	require.Equal(t, testTime, found.Holder.Since)

	slot.Holder.Since = time.Unix(0, 999)
	require.NoError(t, testSpace.EncodeSlot(buf, slot))
	found, err = testSpace.DecodeSlot(buf, 7, 3)
	require.NoError(t, err)
	require.True(t, found.Holder.Since.IsZero(), "1970 itself is the unknown time")
}

func TestDecodedValueIsACopy(t *testing.T) {
	buf := encoded(t, slotSector("", testSlot()))
	found, err := testSpace.DecodeSlot(buf, 7, 3)
	require.NoError(t, err)
	clear(buf)
	require.Equal(t, testSlot().Value, found.Value)

	slot := testSlot()
	slot.Value = []byte{}
	require.NoError(t, testSpace.EncodeSlot(buf, slot))
	found, err = testSpace.DecodeSlot(buf, 7, 3)
	require.NoError(t, err)
	require.Nil(t, found.Value)
}

func TestFindSuperblock(t *testing.T) {
	other := testSuperblock
	other.UUID[0]++
	with := func(sb layout.Superblock, stride int) layout.Superblock {
		sb.Geometry.Stride = stride
		return sb
	}
	put := func(head []byte, sb layout.Superblock, which int) {
		at := sb.Geometry.Superblock(which)
		require.NoError(t, sb.Encode(head[at:at+512], which))
	}
	damage := func(head []byte) { head[100] ^= 1 }

	for _, base := range []layout.Superblock{testSuperblock, severalSuperblock} {
		for stride := layout.MinStride; stride <= layout.MaxStride; stride *= 2 {
			sb := with(base, stride)
			head := make([]byte, layout.HeadSize)
			put(head, sb, 0)
			put(head, sb, 1)
			for _, size := range []int{512, stride + 512, layout.HeadSize} {
				found, used, err := layout.FindSuperblock(head[:size])
				require.NoError(t, err)
				require.Equal(t, sb, found)
				require.Equal(t, 0, used)
			}
			damage(head)
			found, used, err := layout.FindSuperblock(head[:stride+512])
			require.NoError(t, err)
			require.Equal(t, sb, found)
			require.Equal(t, 1, used)
			_, _, err = layout.FindSuperblock(head[:stride+511])
			require.ErrorIs(t, err, layout.ErrChecksum, "the copy is not all there")
			clear(head[:512])
			_, used, err = layout.FindSuperblock(head)
			require.NoError(t, err, "a wiped superblock is found by its copy")
			require.Equal(t, 1, used)
		}
	}

	for _, c := range []struct {
		name string
		fill func(head []byte)
		size int
		want error
	}{
		{"no bytes", func([]byte) {}, 0, layout.ErrShort},
		{"few bytes", func([]byte) {}, 511, layout.ErrShort},
		{"zeroes", func([]byte) {}, layout.HeadSize, layout.ErrBlank},
		{"one sector of zeroes", func(head []byte) { head[512] = 1 }, 512, layout.ErrBlank},
		{"zeroes, then a file system", func(head []byte) { head[1080] = 0x53 }, layout.HeadSize, layout.ErrMagic},
		{"partition table", func(head []byte) { head[510], head[511] = 0x55, 0xaa }, layout.HeadSize, layout.ErrMagic},
		{"both damaged", func(head []byte) {
			put(head, testSuperblock, 0)
			put(head, testSuperblock, 1)
			damage(head)
			damage(head[4096:])
		}, layout.HeadSize, layout.ErrChecksum},
		{"copy at the wrong stride", func(head []byte) {
			require.NoError(t, testSuperblock.Encode(head[512:1024], 1))
		}, layout.HeadSize, layout.ErrMagic},
		{"superblock in place of the copy", func(head []byte) {
			require.NoError(t, testSuperblock.Encode(head[4096:4608], 0))
		}, layout.HeadSize, layout.ErrMagic},
		{"later version over a forgotten copy", func(head []byte) {
			put(head, testSuperblock, 0)
			put(head, testSuperblock, 1)
			head[4] = 3
			reseal(head)
		}, layout.HeadSize, layout.ErrVersion},
		{"two copies", func(head []byte) {
			put(head, testSuperblock, 0)
			put(head, with(testSuperblock, 512), 1)
			put(head, with(other, 65536), 1)
			damage(head)
		}, layout.HeadSize, layout.ErrChecksum},
	} {
		t.Run(c.name, func(t *testing.T) {
			head := make([]byte, layout.HeadSize)
			c.fill(head)
			found, used, err := layout.FindSuperblock(head[:c.size])
			require.ErrorIs(t, err, c.want)
			require.Zero(t, found)
			require.Zero(t, used)
		})
	}

	t.Run("damaged version", func(t *testing.T) {
		head := make([]byte, layout.HeadSize)
		put(head, testSuperblock, 0)
		put(head, testSuperblock, 1)
		head[4] = 3
		_, used, err := layout.FindSuperblock(head)
		require.NoError(t, err)
		require.Equal(t, 1, used)
	})
}

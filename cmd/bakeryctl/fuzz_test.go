package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// harmless fails if text contains characters that control a terminal or mislead its reader.
func harmless(t *testing.T, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && !strconv.IsPrint(r) {
			t.Fatalf("%q has %U", text, r)
		}
	}
}

// FuzzEventLine prints a journal of events of untrusted content.
func FuzzEventLine(f *testing.F) { // 8000x
	for _, text := range []string{
		`{"seq":"5","at":"2026-11-21T03:12:00Z","kind":"enter","lock":"x\u001b[2J","host":1,"host_name":"\u202edb","pid":-1,"command":"a\nb","token":"3676650270761156864"}`,
		`{"seq":"6","at":"0001-01-01T00:00:00Z","kind":"\u0007","by_host":3,"by_host_name":"\u009b","reason":"\r","held_ms":-9223372036854775808,"waited_ms":9223372036854775807}`,
		`{"seq":"7","kind":"waiting","ahead":[{"host":2,"phase":"\u001b","command":"\t","pid":7},{"host":0}],"ahead_count":-1,"missed":18446744073709551615}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var e events.Event
		if json.Unmarshal(text, &e) != nil {
			return
		}
		var out bytes.Buffer
		if err := (&show.EventTable{Out: &out}).Row(&e); err != nil {
			t.Fatal(err)
		}
		harmless(t, out.String())
		if n := strings.Count(out.String(), "\n"); n != 1 {
			t.Fatalf("%d lines: %q", n, out.String())
		}
	})
}

// FuzzRecords prints sectors of untrusted content with a valid checksum by dump and status.
func FuzzRecords(f *testing.F) { // 5000x
	g := layout.Geometry{Stride: 512, Hosts: 2, Locks: 1}
	sb := layout.Superblock{UUID: layout.UUID{1}, Geometry: g, Lease: time.Second}
	s := sb.Space()
	places := []int64{g.Superblock(0), g.Superblock(1), g.Host(1), g.Entry(1), g.Slot(1, 1), g.Slot(1, 2), g.Slot(0, 1)}
	whole := blockdev.Alloc(layout.HeadSize)
	for _, err := range []error{
		sb.Encode(whole[places[0]:][:512], 0), sb.Encode(whole[places[1]:][:512], 1),
		s.EncodeHost(whole[places[2]:][:512], layout.HostRecord{ID: 1, Incarnation: 7, State: layout.StateLive, Name: "db1", Verdicts: []layout.Verdict{{Host: 2, Incarnation: 3}}}),
		s.EncodeEntry(whole[places[3]:][:512], layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: 1}),
		s.EncodeSlot(whole[places[4]:][:512], layout.Slot{Lock: 1, Host: 1, Incarnation: 7, Creation: 1, Phase: layout.Held, Ticket: layout.MakeTicket(9, 1),
			Holder: layout.Holder{PID: 1, Command: "sh -c x"}, Value: []byte("\x1b[2J"), ValueToken: layout.MakeTicket(9, 1), Request: layout.Request{Ticket: layout.MakeTicket(9, 1), Message: "m"}}),
	} {
		if err != nil {
			f.Fatal(err)
		}
	}
	f.Add(uint8(2), uint16(112), []byte("\u202edb"))
	f.Add(uint8(3), uint16(56), []byte("\u009b"))
	f.Add(uint8(4), uint16(104), []byte("\u2028"))
	f.Add(uint8(0), uint16(72), []byte("\xff"))
	f.Fuzz(func(t *testing.T, place uint8, at uint16, change []byte) {
		image := blockdev.Alloc(len(whole))
		copy(image, whole)
		off := places[int(place)%len(places)]
		record := image[off:][:layout.RecordSize]
		copy(record[int(at)%len(record):], change)
		copy(record[24:40], whole[24:40])
		binary.LittleEndian.PutUint64(record[16:], uint64(off))
		clear(record[8:12])
		binary.LittleEndian.PutUint32(record[8:], crc32.Checksum(record, crc32.MakeTable(crc32.Castagnoli)))
		disk := disktest.NewMemory(int64(len(image)), 512, 512)
		if err := disk.Open().Write(image, 0); err != nil {
			t.Fatal(err)
		}
		dev := disk.OpenReadOnly()
		found, _, err := lockspace.FindLockspace(dev)
		if err != nil {
			return
		}
		err = lockspace.Walk(dev, found, func(r lockspace.Record) error {
			var text, asJSON bytes.Buffer
			if err := errors.Join(show.Record(&text, r), show.RecordJSON(&asJSON, r)); err != nil {
				return err
			}
			harmless(t, text.String())
			if !json.Valid(asJSON.Bytes()) {
				t.Errorf("not JSON: %q", asJSON.String())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		snapshot, err := lockspace.Inspect(dev)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		status := func(w io.Writer) { show.Show(w, report.FromSnapshot(snapshot), time.Now(), false) }
		if err := render.WriteTable(&out, status); err != nil {
			t.Fatal(err)
		}
		harmless(t, out.String())
	})
}

// FuzzArguments parses flag values.
func FuzzArguments(f *testing.F) { // 20000x
	for _, text := range []string{"03:12", "2h", "-1h", "1e308", "NaN", "1.5", "300ms", "SIGTERM", "RTMIN+3", "-9", "2006-01-02 15:04"} {
		f.Add(text)
	}
	now := time.Date(2026, 11, 21, 3, 12, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		if at, err := cli.ParseMoment(text, now); err == nil {
			if _, durationErr := time.ParseDuration(text); durationErr == nil && at.After(now) {
				t.Fatalf("%q is %v", text, at)
			}
		}
		var wait cli.Wait
		if err := wait.Set(text); err == nil && (wait < 0 || wait > cli.Wait(cli.MaxWait)) {
			t.Fatalf("%q is %v", text, &wait)
		}
		if r, err := supervise.ParseReaction(text); err == nil && (r.Signal < 0 || r.Signal > signals.Last || r.Signal != 0 && r.Script != "") {
			t.Fatalf("%q is %+v", text, r)
		}
		_, _ = format.ParseStride(text) // format checks the value
	})
}

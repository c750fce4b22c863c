//go:build integration

package integration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

// States of host 2, whose records are damaged. A dead host 2 held lock a.
const (
	ownerUp         = "up"
	ownerDeclared   = "dead, declared"
	ownerUndeclared = "dead, not declared"
	ownerManual     = "dead, not declared, policy manual"
	ownerLeft       = "left"
	ownerNever      = "never joined"
	ownerJoining    = "died while joining"
)

// The damaged records. Hosts 1 and 2 have used lock a, only host 2 lock b.
const (
	recordSuper     = "superblock"
	recordCopy      = "copy of the superblock"
	recordHost      = "host record"
	recordKnown     = "entry of a lock that host 1 has used"
	recordUnknown   = "entry of a lock that only host 2 has used"
	recordFree      = "entry of a free place"
	recordDirectory = "slot of the directory's lock"
	recordSlot      = "slot of a lock"
	recordIntent    = "slot with an intent that does not decode"
)

// advised is one row of the table that TestCheck_EachDamagedRecord_AdviceWorks prints.
type advised struct {
	record, owner, space string
	users                string // outcome of commands on host 1 during the damage
	advice               string
	result               string
}

// TestCheck_EachDamagedRecord_AdviceWorks damages every kind of record, one at a time, and follows
// the advice of bakeryctl check. Then a fresh host must join, and take and create every lock.
func TestCheck_EachDamagedRecord_AdviceWorks(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var table []advised
	t.Run("cases", func(t *testing.T) {
		for _, stopped := range []bool{false, true} {
			for _, record := range []string{recordSuper, recordCopy, recordHost, recordKnown, recordUnknown, recordFree,
				recordDirectory, recordSlot, recordIntent} {
				for _, owner := range ownersOf(record, stopped) {
					row := advised{record: record, owner: owner, space: map[bool]string{false: "running", true: "stopped"}[stopped]}
					t.Run(strings.Join([]string{row.record, row.owner, row.space}, "/"), func(t *testing.T) {
						t.Parallel()
						row.result = "FAILED"
						defer func() {
							mu.Lock()
							defer mu.Unlock()
							table = append(table, row)
						}()
						adviceWorks(t, &row)
					})
				}
			}
		}
	})
	slices.SortFunc(table, func(a, b advised) int {
		return cmp.Or(cmp.Compare(a.record, b.record), cmp.Compare(a.owner, b.owner), cmp.Compare(a.space, b.space))
	})
	for _, r := range table {
		t.Logf("| %s | %s | %s | %s | %s | %s |", r.record, r.owner, r.space, r.users, r.advice, r.result)
	}
}

// ownersOf returns the states of host 2 for a record. A slot of a host that did not die reads the
// same in a stopped lockspace as in a running one.
func ownersOf(record string, stopped bool) []string {
	switch record {
	case recordSuper, recordCopy, recordKnown, recordUnknown, recordFree:
		return []string{ownerLeft}
	}
	owners := []string{ownerDeclared, ownerUndeclared, ownerManual}
	switch {
	case !stopped:
		owners = append(owners, ownerLeft, ownerUp)
	case record != recordHost:
		return owners
	default:
		owners = append(owners, ownerLeft)
	}
	if record != recordIntent { // such an intent needs an incarnation that was live
		owners = append(owners, ownerNever, ownerJoining)
	}
	return owners
}

// damagedSpace is a lockspace in which one record of host 2 is damaged.
type damagedSpace struct {
	*space
	first, owner *host // owner is nil if it never ran
	at           int64
}

func adviceWorks(t *testing.T, row *advised) {
	policy := "lease"
	if row.owner == ownerManual {
		policy = "manual"
	}
	s := damagedSpace{space: briefSpace(t, leasedToWatch(2*time.Second), "--policy", policy)}
	s.damaged = true
	s.prepare(row)
	s.spoil(row.record)
	f, found := s.finding()
	row.advice = cmp.Or(f.Remedy, "no finding: host 2 has rewritten it")
	row.users = s.users()
	var done string
	if found {
		done = s.follow(f.Remedy)
	}
	done += s.works()
	verdict := "clean"
	if f, found = s.finding(); found {
		verdict, _, _ = strings.Cut(f.Remedy, ":")
		require.Equal(t, "nothing needed", verdict, "%+v", f)
	}
	row.result = done + "; check: " + verdict
}

// prepare brings the hosts into the state of a row.
func (s *damagedSpace) prepare(row *advised) {
	s.t.Helper()
	s.first = s.host(1)
	switch row.owner {
	case ownerNever, ownerJoining:
		require.Zero(s.t, s.first.lock("b", "--", "true").code)
	default:
		s.owner = s.host(2)
		for _, name := range []string{"a", "b"} {
			require.Zero(s.t, s.owner.lock("-w", "120", name, "--", "true").code)
		}
	}
	require.Zero(s.t, s.first.lock("-w", "120", "a", "--", "true").code)
	if strings.HasPrefix(row.owner, "dead") {
		s.owner.take("a").entered()
		s.first.settles(s.owner, "a")
	}
	if row.owner == ownerDeclared {
		s.owner.powerOff()
		eventually(s.t, "host 2 is declared dead", func() bool {
			return slices.ContainsFunc(s.first.status().Hosts, func(h report.Host) bool { return h.ID == 2 && h.Dead })
		})
	}
	if row.space == "stopped" {
		s.first.leave()
	}
	switch row.owner {
	case ownerUndeclared, ownerManual:
		s.owner.powerOff()
	case ownerLeft:
		s.owner.leave()
	case ownerJoining:
		s.write(s.geo.Host(2), func(sp layout.Space, buf []byte) error {
			return sp.EncodeHost(buf, layout.HostRecord{ID: 2, Name: "joiner", State: layout.StateJoining, Incarnation: 77, Sequence: 1, ReadHorizon: 2})
		})
	}
}

// spoil damages a record.
func (s *damagedSpace) spoil(record string) {
	s.t.Helper()
	switch record {
	case recordSuper:
		s.at = s.geo.Superblock(0)
	case recordCopy:
		s.at = s.geo.Superblock(1)
	case recordHost:
		s.at = s.geo.Host(2)
	case recordKnown:
		s.at = s.geo.Entry(s.number("a"))
	case recordUnknown:
		s.at = s.geo.Entry(s.number("b"))
	case recordFree:
		s.at = s.geo.Entry(s.geo.Locks)
	case recordDirectory:
		s.at = s.geo.Slot(0, 2)
	case recordSlot:
		s.at = s.geo.Slot(s.number("a"), 2)
	case recordIntent:
		s.at = s.geo.Slot(0, 2)
		s.write(s.at, func(sp layout.Space, buf []byte) error {
			slot, err := sp.DecodeSlot(buf, 0, 2)
			slot.Value = []byte("no intent")
			slot.ValueToken = slot.Ticket
			require.NoError(s.t, err)
			return sp.EncodeSlot(buf, slot)
		})
		return
	}
	s.damage(s.at)
}

// write changes a record through a device that no host uses.
func (s *damagedSpace) write(at int64, change func(sp layout.Space, buf []byte) error) {
	s.t.Helper()
	dev, err := blockdev.Open(s.dev, blockdev.Options{})
	require.NoError(s.t, err)
	defer dev.Close()
	buf := blockdev.Alloc(s.geo.Stride)
	require.NoError(s.t, dev.Read(buf, at))
	require.NoError(s.t, change(layout.Space{UUID: s.uuid, Geometry: s.geo}, buf))
	require.NoError(s.t, dev.Write(buf, at))
}

// number returns the number of a lock, from the directory on the disk.
func (s *damagedSpace) number(name string) (lock int) {
	s.t.Helper()
	for d := range s.dump() {
		if d.Kind == "entry" && d.Record.Name == name {
			lock = *d.Lock
		}
	}
	require.NotZero(s.t, lock, "no lock %s", name)
	return lock
}

// users returns the results of commands on host 1 within three leases, if it is up.
func (s *damagedSpace) users() string {
	s.t.Helper()
	if !s.first.running() {
		return "-"
	}
	var seen []string
	for _, name := range []string{"a", "seen"} {
		began := time.Now()
		r := s.first.lock("-w", "6", name, "--", "true")
		what := map[string]string{"a": "lock a", "seen": "new lock"}[name]
		if r.code == 0 {
			seen = append(seen, fmt.Sprintf("%s after %.1f s", what, time.Since(began).Seconds()))
		} else {
			seen = append(seen, fmt.Sprintf("%s exit code %d after %.1f s", what, r.code, time.Since(began).Seconds()))
		}
	}
	return strings.Join(seen, ", ")
}

// finding returns the finding of bakeryctl check for the damaged record.
func (s *damagedSpace) finding() (f check.Finding, found bool) {
	s.t.Helper()
	r := execute(s.t, plain.bakeryctl, "check", s.dev, "--json")
	var c struct{ Findings []check.Finding }
	require.NoError(s.t, json.Unmarshal([]byte(r.stdout), &c), r.stderr)
	i := slices.IndexFunc(c.Findings, func(f check.Finding) bool { return f.Offset == s.at })
	if i < 0 {
		return f, false
	}
	return c.Findings[i], true
}

// follow does what the advice of a finding says, and returns a description.
func (s *damagedSpace) follow(advice string) string {
	s.t.Helper()
	began := time.Now()
	var done string
	switch {
	case strings.HasPrefix(advice, "nothing needed"):
		return ""
	case strings.Contains(advice, "by SIGINT") && s.owner.running():
		done = "restarted host 2"
		s.owner.signal(syscall.SIGINT)
		s.owner.exits(0)
		s.owner.up()
	case strings.Contains(advice, "if it is dead, another host declares it dead"):
		return ""
	case strings.Contains(advice, "bakeryctl evict 2"):
		done = "evict 2"
		if !s.first.running() {
			done = "started host 1, evict 2"
			s.first.up()
		}
		eventually(s.t, "host 2 is silent", func() bool {
			return slices.ContainsFunc(s.first.status().Hosts, func(h report.Host) bool { return h.ID == 2 && h.Health == report.HealthSilent })
		})
		r := s.first.ctl("evict", "2", "--yes")
		require.Zero(s.t, r.code, r.stderr)
	case strings.Contains(advice, "bakeryctl check --repair"):
		done = "check --repair"
		r := execute(s.t, plain.bakeryctl, "check", s.dev, "--repair")
		s.t.Logf("%s%s", r.stderr, r.stdout)
		if r.code != 0 && strings.Contains(r.stdout+r.stderr, "stop bakeryd on all hosts") {
			done = "stopped all hosts, check --repair"
			s.stopAll()
			r = execute(s.t, plain.bakeryctl, "check", s.dev, "--repair")
			s.t.Logf("%s%s", r.stderr, r.stdout)
		}
		require.Zero(s.t, r.code)
	default:
		s.t.Fatalf("the advice names no known action: %s", advice)
	}
	return fmt.Sprintf("%s: %.1f s; ", done, time.Since(began).Seconds())
}

func (s *damagedSpace) stopAll() {
	s.t.Helper()
	for _, h := range []*host{s.first, s.owner} {
		if h != nil && h.running() {
			h.leave()
		}
	}
}

// works checks that a fresh host joins, and that all running hosts take, create and remove locks.
func (s *damagedSpace) works() string {
	s.t.Helper()
	began := time.Now()
	fresh := s.host(6)
	joined := time.Since(began)
	hosts := []*host{fresh}
	if s.first.running() {
		hosts = append(hosts, s.first)
	}
	for i, h := range hosts {
		name := fmt.Sprintf("made%d", i)
		for _, args := range [][]string{{"lock", "-w", "120", "a", "--", "true"}, {"lock", "-w", "120", "b", "--", "true"},
			{"lock", "-w", "120", name, "--", "true"}, {"rm", name}} {
			eventually(s.t, fmt.Sprintf("host %s can %v", h.id, args), func() bool {
				r := h.ctl(args...)
				if r.code == 69 { // it was paused for a lease, and joins again
					return false
				}
				require.Zero(s.t, r.code, "host %s: %v: %s", h.id, args, r.stderr)
				return true
			})
		}
	}
	return fmt.Sprintf("a fresh host joined in %.1f s, all locks after %.1f s", joined.Seconds(), time.Since(began).Seconds())
}

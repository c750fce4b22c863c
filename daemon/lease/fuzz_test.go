package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// liar is a host table whose contents the fuzzer chooses: any record that package layout would
// accept.
type liar struct {
	m     *Machine
	input []byte
	own   layout.HostRecord // as the machine last wrote it
	now   time.Duration
}

func (l *liar) next() int {
	if len(l.input) == 0 {
		return 0
	}
	b := l.input[0]
	l.input = l.input[1:]
	return int(b)
}

const liarHosts = 5

func (l *liar) word() uint64 {
	return []uint64{1, 2, 100, l.own.Incarnation, l.own.Incarnation + 1, l.own.Sequence, l.own.Sequence + 1, 1<<64 - 1}[l.next()%8]
}

func (l *liar) record(id int) Record {
	kind := l.next()
	switch {
	case kind%8 == 7:
		return Record{Err: layout.ErrChecksum}
	case kind%8 == 6:
		return Record{HostRecord: layout.HostRecord{ID: id}}
	case kind%8 < 4 && id == l.m.ID() && l.own.ID == id:
		return Record{HostRecord: l.own}
	}
	r := layout.HostRecord{ID: id, State: layout.HostState(1 + kind/8%3), Incarnation: max(l.word(), 1), Sequence: l.word(),
		MachineID: machineID(byte(1 + kind/64%2)), BootID: machineID(byte(1 + kind/128)), ReadHorizon: l.next() % (liarHosts + 1)}
	if kind&32 != 0 {
		r.WatchdogArmed, r.WatchdogSeconds = true, uint16(l.next()*257)
	}
	for range l.next() % 4 {
		r.Verdicts = append(r.Verdicts, layout.Verdict{Host: 1 + l.next()%liarHosts, Incarnation: max(l.word(), 1), Kind: layout.VerdictKind(l.next() % 3)})
	}
	for range l.next() % 3 {
		host := l.next() % (liarHosts + 1)
		r.Complaints = append(r.Complaints, layout.Complaint{Host: host, Lock: l.next()%4 + max(0, 1-host)})
	}
	return Record{HostRecord: r}
}

// FuzzHostTable checks that with any host table, in any order and at any time, the machine
// neither panics nor writes a record that cannot be encoded. Its lease never runs longer than
// from the moment before an acknowledged write. A foreign record in its own place, or a verdict
// on it, ends the lease immediately and finally.
func FuzzHostTable(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Add([]byte("\x00\x01\x06\x06\x06\x06\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, input []byte) {
		l := &liar{input: input, now: time.Hour}
		cfg := Config{ID: l.next() % (liarHosts + 1), Hosts: liarHosts, Times: times, Policy: layout.Policy(l.next() % 3), Self: self, Left: []uint64{2}}
		next := uint64(1000)
		cfg.Incarnation = func() uint64 { next++; return next }
		if kind := l.next(); kind%4 == 0 {
			cfg.Resume = &Term{ID: kind % 8, Incarnation: 100, T0: l.now - time.Duration(l.next())*time.Second, Ready: kind&8 != 0, Clean: kind&16 != 0}
		}
		l.m = New(cfg)
		space := layout.Space{UUID: layout.UUID{1}, Geometry: layout.Geometry{Stride: 512, Hosts: liarHosts, Locks: 4}}
		var reading, extent = false, 0
		var writeAt, provenT0 time.Duration // of the write under way; of the last one acknowledged
		if cfg.Resume != nil {
			provenT0 = cfg.Resume.T0
		}
		over := false
		carry := func(actions []Action) {
			for _, a := range actions {
				require.False(t, over, "the last word was said, and then %#v", a)
				switch a := a.(type) {
				case ReadTable:
					require.False(t, reading)
					require.LessOrEqual(t, a.Hosts, liarHosts)
					reading, extent = true, a.Hosts
				case Write:
					require.NoError(t, space.EncodeHost(make([]byte, 512), a.Record), "what is to be written can be")
					l.own, writeAt = a.Record, l.now
				case Lost, Refused, Left:
					over = true
				}
			}
		}
		carry(l.m.Start(l.now))
		for len(l.input) > 0 {
			l.now += []time.Duration{0, time.Millisecond, 100 * time.Millisecond, times.Renew(), times.Lease, 2 * times.Lease}[l.next()%6]
			if !over {
				switch kind := l.next() % 8; {
				case kind < 3 && reading:
					reading = false
					records := make([]Record, extent)
					for i := range records {
						records[i] = l.record(i + 1)
					}
					live := l.m.Live(l.now)
					carry(l.m.TableRead(l.now, records))
					if live {
						own := records[l.m.ID()-1]
						if own.Err == nil && own.Incarnation != l.m.Incarnation() {
							require.True(t, over || !l.m.Live(l.now), "a foreign record in the own place")
						}
						for i, r := range records {
							for _, v := range r.Verdicts {
								if i+1 != l.m.ID() && r.Err == nil && v.Kind.Dead() && v.Host == l.m.ID() && v.Incarnation == l.m.Incarnation() && r.State == layout.StateLive && l.m.Live(l.now) {
									require.Fail(t, "it continues under a verdict", "%+v", r)
								}
							}
						}
					}
				case kind < 5 && l.m.Writing():
					provenT0 = writeAt
					carry(l.m.Written(l.now))
				case kind == 5 && l.m.Writing():
					carry(l.m.WriteFailed(l.now))
				case kind == 5 && reading:
					reading = false
					carry(l.m.ReadFailed(l.now))
				case kind == 6:
					host := 1 + l.next()%liarHosts
					actions, err := l.m.Evict(l.now, host, l.word(), l.next()%2 == 0)
					if err == nil {
						carry(actions)
					}
				case kind == 7:
					carry(l.m.HeldUp(l.now, layout.Complaint{Host: 1 + l.next()%liarHosts, Lock: l.next() % 4}, l.next()%2 == 0))
				default:
					carry(l.m.Tick(l.now))
				}
			}
			if l.m.Live(l.now) {
				require.False(t, over)
				require.LessOrEqual(t, l.m.Deadline(), provenT0+times.Lease, "the lease runs longer than was proven")
			}
			if l.m.MayWrite(l.now) {
				require.Less(t, l.now, provenT0+times.Lease)
			}
			require.LessOrEqual(t, l.m.ReadHorizon(), liarHosts)
			l.m.Hosts()
		}
	})
}

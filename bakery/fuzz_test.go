package bakery

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// hostile is a disk whose contents the fuzzer chooses: any slot and any host record that package
// layout accepts.
type hostile struct {
	t     *testing.T
	m     *Machine
	cfg   Config
	input []byte
	told  map[[2]uint64]bool // host and incarnation that the machine may treat as over

	highest int // highest host id whose slot is read
}

func (h *hostile) next() int {
	if len(h.input) == 0 {
		return 0
	}
	b := h.input[0]
	h.input = h.input[1:]
	return int(b)
}

const hostileHosts = 4

// number returns a number close to a limit or to the machine's own.
func (h *hostile) number() uint64 {
	mine := h.m.OwnSlot().Ticket.Number()
	return min([]uint64{0, 1, mine - min(mine, 1), mine, mine + 1, mine + 2, layout.MaxNumber - 1, layout.MaxNumber}[h.next()%8], layout.MaxNumber)
}

func (h *hostile) creation() uint64 {
	c := h.cfg.Creation
	return min([]uint64{c, c, c, c - 1, c + 1, 0, layout.MaxNumber, layout.MaxCreation}[h.next()%8], layout.MaxCreation)
}

func (h *hostile) incarnation(host int) uint64 { return uint64(10*host + h.next()%3) }

func (h *hostile) view(host int) View {
	kind := h.next()
	if kind%8 == 7 {
		return View{}
	}
	v := View{Readable: true}
	if kind%8 == 6 {
		return v // blank
	}
	v.Slot = Slot{Incarnation: h.incarnation(host), Creation: h.creation(), Phase: layout.Phase(kind % 4), Mode: layout.Mode(kind / 8 % 2)}
	v.Slot.Ticket = layout.MakeTicket(h.number(), host)
	if host == h.cfg.Host && kind&64 == 0 {
		v.Slot = h.m.OwnSlot()
	}
	return v
}

func (h *hostile) views() []View {
	h.highest = max(h.highest, 1+h.next()%hostileHosts, h.cfg.Host) // the covered range only grows
	views := make([]View, h.highest)
	for i := range views {
		views[i] = h.view(i + 1)
	}
	return views
}

func (h *hostile) hosts() []Host {
	hosts := make([]Host, h.next()%(hostileHosts+1))
	for i := range hosts {
		kind := h.next()
		hosts[i] = Host{Readable: kind&1 == 0, Incarnation: h.incarnation(i + 1), Gone: kind&2 != 0, Unsettled: kind&4 != 0}
		for n := range 3 {
			inc := uint64(10*(i+1) + n)
			current := inc == hosts[i].Incarnation
			// If a record cannot be read, an earlier read showed that the incarnation is gone.
			if current && hosts[i].Gone || !current && hosts[i].Readable && !hosts[i].Unsettled {
				h.told[[2]uint64{uint64(i + 1), inc}] = true
			}
		}
	}
	return hosts
}

// granted checks from the outside that the slots that the machine was shown last let it enter: no
// slot of a host that the machine may not treat as over stands before it.
func (h *hostile) granted(views []View) {
	mine := h.m.OwnSlot()
	exclusive, shared := 0, 0
	for i, v := range views {
		host := uint64(i + 1)
		if i == h.cfg.Host-1 || v.Readable && (v.Slot.Phase == layout.Idle || v.Slot.Creation != h.cfg.Creation) {
			continue
		}
		if !v.Readable {
			known := false
			for n := range 3 {
				known = known || h.told[[2]uint64{host, 10*host + uint64(n)}]
			}
			require.True(h.t, known, "granted despite an unreadable slot of host %d", host)
			continue
		}
		if h.told[[2]uint64{host, v.Slot.Incarnation}] || v.Slot.Ticket > mine.Ticket {
			continue
		}
		if v.Slot.Mode == layout.Exclusive {
			exclusive++
		} else {
			shared++
		}
	}
	if mine.Mode == layout.Shared {
		require.Zero(h.t, exclusive, "shared next to an earlier exclusive slot")
		return
	}
	require.Zero(h.t, shared, "exclusive next to an earlier shared slot")
	require.Less(h.t, exclusive, h.cfg.Permits)
}

// FuzzMachine checks that with any disk contents, in any order, the machine neither panics nor
// writes a slot that cannot be encoded. It never enters while the slots show a host before it
// that may be alive.
func FuzzMachine(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x01\x00\x02\x00\x00\x05\x05\x05"))
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Add([]byte("\x00\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07"))
	// An unreadable record of a holder that an earlier read showed as gone.
	f.Add([]byte("\xab\xd9*4\x7f\xd1\x1f\xa4!\x99\xa0p\n\x1a\xdf{\xdcO\x98\x00O0\x93\x93\x93\xed\x031\x82\x86\x86\x86\x86\x86\x86\xe7\xeb"))
	f.Fuzz(func(t *testing.T, input []byte) {
		h := &hostile{t: t, input: input, told: map[[2]uint64]bool{}}
		h.cfg = Config{Host: 1 + h.next()%hostileHosts, Permits: 1 + h.next()%3,
			Creation: []uint64{1, 1000, layout.MaxNumber - 3, layout.MaxNumber, layout.MaxCreation}[h.next()%5]}
		h.cfg.Incarnation = uint64(10 * h.cfg.Host)
		h.m = New(h.cfg)
		space := layout.Space{UUID: layout.UUID{1}, Geometry: layout.Geometry{Stride: 512, Hosts: hostileHosts, Locks: 1}}
		var views []View
		var a Action
		begin := func() Action {
			switch h.next() % 4 {
			case 0:
				return h.m.Attach()
			default:
				return h.m.Acquire(Request{Mode: layout.Mode(h.next() % 2), Clock: h.number(), Try: h.next()%4 == 0})
			}
		}
		if h.next()%3 == 0 {
			v := h.view(h.cfg.Host)
			a = h.m.Resume(v.Slot, h.next()%2 == 0)
		} else {
			a = begin()
		}
		for len(h.input) > 0 {
			if h.next()%16 == 0 {
				h.m.Cancel()
			}
			looked := false
			switch a.Kind {
			case Write:
				s := a.Slot
				require.NoError(t, space.EncodeSlot(make([]byte, 512), layout.Slot{Lock: 1, Host: h.cfg.Host, Incarnation: s.Incarnation,
					Creation: s.Creation, Phase: s.Phase, Mode: s.Mode, Ticket: s.Ticket}), "the slot to write can be encoded")
				a = h.m.Written()
			case Read:
				views, looked = h.views(), true
				a = h.m.SlotsRead(views)
			case Poll:
				switch kind := h.next(); {
				case kind%3 == 0:
					host := 1 + h.next()%hostileHosts
					inc := h.incarnation(host)
					h.told[[2]uint64{uint64(host), inc}] = true
					h.m.Over(host, inc)
					a = h.m.Recheck()
				case kind%3 == 1 || a.Host == 0:
					a = h.m.Recheck()
				default:
					a = h.m.Polled(h.view(a.Host))
				}
			case ReadHosts:
				looked = true
				a = h.m.HostsRead(h.hosts())
			case ReadDirectory:
				looked = true
				a = h.m.DirectoryRead(h.creation())
			case ClearDirectory:
				if h.next()%2 == 0 {
					a = h.m.DirectoryCleared()
				} else {
					a = h.m.DirectoryKept()
				}
			case Granted:
				switch h.next() % 6 {
				case 0:
					a = h.m.Settle()
				case 1:
					a = h.m.Downgrade()
				case 2:
					a = h.m.Upgrade()
				case 3:
					a = h.m.Remove()
				default:
					h.m.Others(h.views())
					a = h.m.Release()
				}
			case Done:
				if a.Outcome == Removed {
					return
				}
				a = begin()
			}
			if a.Kind == Granted && looked {
				h.granted(views)
			}
			require.LessOrEqual(t, h.m.OwnSlot().Ticket.Number(), uint64(layout.MaxNumber))
		}
	})
}

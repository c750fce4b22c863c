package bakery

import "encoding/binary"

// key is the world's state. Left out is only what cannot matter any more: a
// field that the next event overwrites, a sum that this scenario does not
// check. Every part is of fixed length or tells its own, so that no two states
// have one key.
func (w *world) key(b []byte) []byte {
	for a := range w.disk {
		if a == 1 && w.sc.removes == 0 {
			break
		}
		for i := range w.sc.hosts {
			s := &w.disk[a][i]
			b = appendView(append(b, bit(s.writing)|bit(s.seen)<<1), s.now)
			if s.writing {
				b = appendView(b, s.next)
			}
		}
	}
	for i := range w.sc.hosts {
		b = w.actors[i].key(b, w)
		if w.sc.records() {
			b = appendHost(b, w.hosts[i])
		}
	}
	b = append(b, byte(w.dir.area), byte(w.removes), byte(w.crashes), byte(w.corrupt), byte(w.fails), byte(w.blind), byte(w.joins), byte(w.resumes), byte(w.losses), byte(w.spans), bit(w.fault != ""))
	for _, v := range []uint64{w.dir.creation, w.lastDir, w.areas[0], w.areas[1]} {
		b = binary.AppendUvarint(b, v)
	}
	if w.sc.permits == 1 {
		return binary.AppendUvarint(b, uint64(w.granted))
	}
	return binary.AppendUvarint(b, uint64(w.ended))
}

func (ac *actor) key(b []byte, w *world) []byte {
	b = append(b, bit(ac.crashed), byte(ac.inc), byte(ac.entry.area), byte(ac.rounds), byte(ac.settles), byte(ac.cancels), byte(ac.changes), byte(ac.heals))
	b = binary.AppendUvarint(b, ac.entry.creation)
	if ac.crashed {
		return b // what it knew is lost
	}
	m, kind := ac.m, ac.act.Kind
	b = append(b, byte(m.step), byte(kind), bit(m.cancel)|bit(m.attached)<<1|bit(m.healing)<<2|bit(ac.healing)<<3|bit(ac.split)<<4|
		bit(ac.doored)<<5|bit(ac.sampled)<<6|bit(m.torn)<<7, ac.where, byte(ac.held)|bit(ac.noted)<<4|bit(ac.resumed)<<5, ac.before)
	b = appendView(b, View{Slot: m.mine, Readable: true})
	b = binary.AppendUvarint(b, m.last)
	if w.sc.permits > 1 {
		b = binary.AppendUvarint(b, uint64(ac.endedMax))
	}
	moot := m.step == stepWithdraw && m.after == Superseded // the attempt goes on
	if kind != 0 && !m.Holding() {
		b = append(b, byte(m.request.Mode), byte(m.request.Clock), bit(m.request.Try), byte(m.after))
	}
	if moot || m.step == stepSuperseded {
		b = append(b, byte(m.met))
	}
	if mu := w.sc.mutate; mu != nil && mu.earlyLook {
		for _, v := range ac.views[:w.sc.hosts] {
			b = appendView(b, v)
		}
	}
	switch kind {
	case Read:
		b = append(b, ac.mask)
		for i := range w.sc.hosts {
			if ac.mask&(1<<i) != 0 {
				b = appendView(b, ac.got[i])
			}
		}
		if w.sc.mutate != nil && w.sc.mutate.staleHosts {
			b = appendTable(b, ac.table[:w.sc.hosts])
		}
	case Poll:
		b = append(b, byte(ac.act.Host), bit(m.doubt))
		if ac.act.Host > 0 {
			b = appendView(b, m.views[ac.act.Host-1])
		}
	case ReadHosts:
		b = appendTable(b, ac.table[:w.sc.hosts])
	case ReadDirectory:
		b = append(b, byte(m.lost), byte(m.metOver))
		b = binary.AppendUvarint(b, ac.found)
		b = appendTable(b, m.hosts)
	}
	if moot || kind == ReadHosts || kind == ReadDirectory {
		for _, v := range m.views {
			b = appendView(b, v)
		}
	}
	for _, p := range m.peers {
		b = append(b, byte(p.live), byte(p.over), byte(p.spared), byte(p.hider), bit(p.early))
		b = binary.AppendUvarint(b, p.hidden)
	}
	return b
}

func appendTable(b []byte, hosts []Host) []byte {
	for _, h := range hosts {
		b = appendHost(b, h)
	}
	return b
}

func appendHost(b []byte, h Host) []byte {
	b = append(b, byte(h.Incarnation), bit(h.Gone)|bit(h.Readable)<<1|bit(h.Unsettled)<<2|bit(h.Joining)<<3, byte(len(h.Ended)))
	for _, inc := range h.Ended {
		b = append(b, byte(inc))
	}
	return b
}

// appendView shortens what is short in nearly all states.
func appendView(b []byte, v View) []byte {
	if !v.Readable {
		return append(b, 0xff)
	}
	s := v.Slot
	b = append(b, byte(s.Phase)<<1|byte(s.Mode), byte(s.Incarnation))
	b = binary.AppendUvarint(b, s.Creation)
	b = binary.AppendUvarint(b, s.Ticket.Number())
	return append(b, byte(s.Ticket.Host()))
}

func bit(v bool) byte {
	if v {
		return 1
	}
	return 0
}

package fence

import (
	"errors"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// lun is a small model of a logical unit's persistent reservations, by SPC-4. Each nexus is one
// host's path to it.
type lun struct {
	mu         sync.Mutex // guards the fields below
	registered []*nexus   // in the order of registration
	held       bool
	kind       byte
	holder     *nexus // creator of the reservation; under all-registrants each registrant holds it
	generation uint32
	persist    bool // registrations outlive a loss of power

	// Features that this target lacks or implements wrongly.
	none         bool // no persistent reservations at all
	noReport     bool // REPORT CAPABILITIES is an invalid field
	noPersist    bool // persist through power loss is an invalid field, as in tgt
	noAbort      bool // PREEMPT AND ABORT is an invalid field, as in tgt
	nvme         bool // RESERVE of another registrant conflicts, and registering does not replace, as in Linux's NVMe target
	dropsHolder  bool // the reservation ends with the registration of its creator
	ignorePrempt bool // PREEMPT succeeds without any effect
}

// nexus is the path of one initiator to a lun: a scsiDevice.
type nexus struct {
	lun        *lun
	key        uint64
	attentions []uint16 // pending unit attentions
	tasks      int      // writes under way
	descriptor bool     // sense data is in descriptor format
	before     func(cdb []byte)
}

func (n *nexus) send(cdb, data []byte, out bool) (scsiResult, error) {
	if n.before != nil {
		n.before(cdb)
	}
	l := n.lun
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(cdb) != 10 || out != (cdb[0] == 0x5f):
		return n.check(5, 0x2000), nil
	case len(n.attentions) > 0:
		code := n.attentions[0]
		n.attentions = n.attentions[1:]
		return n.check(6, code), nil
	case l.none:
		return n.check(5, 0x2000), nil
	case out:
		return n.reserveOut(cdb, data), nil
	}
	return n.reserveIn(cdb, data), nil
}

func (n *nexus) check(key byte, code uint16) scsiResult {
	if n.descriptor {
		return scsiResult{status: 2, sense: []byte{0x72, key, byte(code >> 8), byte(code), 0, 0, 0, 0}}
	}
	return scsiResult{status: 2, sense: []byte{0xf0, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, byte(code >> 8), byte(code), 0, 0, 0, 0}}
}

func (n *nexus) reserveIn(cdb, data []byte) scsiResult {
	l := n.lun
	answer := be.AppendUint32(nil, l.generation)
	switch cdb[1] & 0x1f {
	case 0:
		answer = be.AppendUint32(answer, uint32(8*len(l.registered)))
		for _, r := range l.registered {
			answer = be.AppendUint64(answer, r.key)
		}
	case 1:
		if !l.held {
			answer = be.AppendUint32(answer, 0)
			break
		}
		answer = be.AppendUint32(answer, 16)
		key := l.holder.key
		if l.allRegistrants() {
			key = 0
		}
		answer = be.AppendUint64(answer, key)
		answer = append(answer, 0, 0, 0, 0, 0, l.kind, 0, 0)
	case 2:
		if l.noReport {
			return n.check(5, 0x2400)
		}
		answer = []byte{0, 8, 1, 0x80, 0xea, 1, 0, 0}
		if l.noPersist {
			answer[2] = 0
		}
		if l.persist {
			answer[3] |= 1
		}
	default:
		return n.check(5, 0x2400)
	}
	allocated := min(int(be.Uint16(cdb[7:])), len(data))
	return scsiResult{moved: copy(data[:allocated], answer)}
}

func (n *nexus) reserveOut(cdb, data []byte) scsiResult {
	conflict, good := scsiResult{status: 0x18}, scsiResult{moved: len(data)}
	l, action, kind := n.lun, cdb[1]&0x1f, cdb[2]
	if be.Uint32(cdb[5:]) != 24 || len(data) != 24 {
		return n.check(5, 0x1a00)
	}
	if data[20]&1 != 0 && l.noPersist {
		return n.check(5, 0x2600)
	}
	key, actionKey := be.Uint64(data), be.Uint64(data[8:])
	registered := slices.Contains(l.registered, n)
	switch action {
	case 0, 6:
		return n.register(key, actionKey, action == 6, data[20]&1 != 0)
	case 1, 2, 3, 4, 5:
		if !registered || key != n.key {
			return conflict
		}
	default:
		return n.check(5, 0x2400)
	}
	switch action {
	case 1:
		if kind>>4 != 0 || !slices.Contains([]byte{1, 3, 5, 6, 7, 8}, kind) {
			return n.check(5, 0x2400)
		}
		if l.held && (kind != l.kind || n != l.holder && (!l.allRegistrants() || l.nvme)) {
			return conflict
		}
		if !l.held {
			l.held, l.kind, l.holder = true, kind, n
		}
		return good
	case 2:
		if l.held && (n == l.holder || l.allRegistrants()) {
			l.held = false
		}
		return good
	case 3:
		l.held = false
		for _, r := range slices.Clone(l.registered) {
			l.remove(r, n, 0x2a03)
		}
		return good
	}
	if action == 5 && l.noAbort {
		return n.check(5, 0x2400)
	}
	return n.preempt(kind, actionKey, action == 5)
}

func (n *nexus) register(key, actionKey uint64, ignore, persist bool) scsiResult {
	l := n.lun
	registered := slices.Contains(l.registered, n)
	if !ignore && (registered && key != n.key || !registered && key != 0) {
		return scsiResult{status: 0x18}
	}
	switch {
	case actionKey != 0 && !registered:
		l.registered = append(l.registered, n)
		fallthrough
	case actionKey != 0:
		n.key, l.persist = actionKey, persist
	case registered:
		l.remove(n, n, 0)
	}
	l.generation++
	return scsiResult{moved: 24}
}

func (n *nexus) preempt(kind byte, target uint64, abort bool) scsiResult {
	l := n.lun
	if l.ignorePrempt {
		return scsiResult{moved: 24}
	}
	all := target == 0
	if all && (!l.held || !l.allRegistrants()) {
		return n.check(5, 0x2600)
	}
	var victims []*nexus
	for _, r := range l.registered {
		if all && r != n || r.key == target {
			victims = append(victims, r)
		}
	}
	if len(victims) == 0 && !all {
		return scsiResult{status: 0x18}
	}
	if l.held && (all || !l.allRegistrants() && l.holder.key == target) {
		l.kind, l.holder = kind, n
	}
	for _, v := range victims {
		if abort {
			v.tasks = 0
		}
		l.remove(v, n, 0x2a05)
	}
	l.generation++
	return scsiResult{moved: 24}
}

func (l *lun) allRegistrants() bool { return l.kind == 7 || l.kind == 8 }

// remove removes a registration. The nexus gets a unit attention unless it removed it itself.
func (l *lun) remove(n, by *nexus, why uint16) {
	l.registered = slices.DeleteFunc(l.registered, func(r *nexus) bool { return r == n })
	n.key = 0
	if n != by {
		n.attentions = append(n.attentions, why)
	}
	if l.held && (len(l.registered) == 0 || n == l.holder && (!l.allRegistrants() || l.dropsHolder)) {
		l.held = false
	}
}

// powerLoss loses the state that does not survive a loss of the target's power.
func (l *lun) powerLoss() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.persist {
		l.registered, l.held = nil, false
	}
}

// mayWrite reports whether a write that the nexus began now would be accepted.
func (n *nexus) mayWrite() bool {
	n.lun.mu.Lock()
	defer n.lun.mu.Unlock()
	return !n.lun.held || n.lun.kind == 7 && slices.Contains(n.lun.registered, n)
}

// begin begins a write that is under way until it is aborted.
func (n *nexus) begin() {
	n.lun.mu.Lock()
	defer n.lun.mu.Unlock()
	n.tasks++
}

func (n *nexus) underWay() int {
	n.lun.mu.Lock()
	defer n.lun.mu.Unlock()
	return n.tasks
}

// linux is the kernel's transport on the model: its own errors, and keys that must survive a loss
// of power.
type linux struct{ scsi }

func overLinux(n *nexus) linux { return linux{scsi{persisting{n}}} }

// persisting is a nexus that keeps the keys that it registers through a loss of power.
type persisting struct{ *nexus }

func (p persisting) send(cdb, data []byte, out bool) (scsiResult, error) {
	if a := action(cdb[1]); out && (a == register || a == registerIgnore) {
		data[20] = 1
	}
	return p.nexus.send(cdb, data, out)
}

func (k linux) String() string { return "IOC_PR" }

func (k linux) change(a action, own, other uint64) error {
	if n := k.dev.(persisting); n.lun.nvme && a == registerIgnore {
		n.lun.mu.Lock()
		registered := slices.Contains(n.lun.registered, n.nexus) && n.key != other
		n.lun.mu.Unlock()
		if registered != (own != 0) {
			return k.say(errConflict)
		}
	}
	return k.say(k.scsi.change(a, own, other))
}

func (k linux) say(err error) error {
	real := kernel{}
	switch {
	case errors.Is(err, errRefused):
		return real.outcome("IOC_PR", 0, unix.EINVAL)
	case errors.Is(err, errConflict):
		return real.outcome("IOC_PR", prConflict, nil)
	case errors.Is(err, errAgain):
		return real.outcome("IOC_PR", prIOError, nil)
	}
	return err
}

// blind reads what the device does not have.
func blind() (State, error) {
	return State{}, kernel{}.outcome("NVME_IOCTL_IO_CMD", 0, unix.ENOTTY)
}

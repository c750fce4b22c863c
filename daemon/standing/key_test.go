package standing_test

import (
	"encoding/binary"
	"reflect"
	"time"
	"unsafe"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/layout"
)

// Both machines have private fields, and no code to copy them. They are copied and hashed here by
// reflection: every field counts, including new ones, unless it is named below.

// unkeyed lists fields that the future does not depend on, or that keyMachines adds in another
// form.
var unkeyed = map[string]bool{
	"lease.Machine.cfg": true, "lease.Machine.t": true, // never change
	"lease.Machine.now": true, "lease.Machine.out": true,
	"lease.Machine.sweptAt": true, "lease.Machine.joinersUntil": true, // all reads cover all records
	"lease.Machine.readAt": true, "lease.Machine.writeAt": true, "lease.Machine.looked": true,
	"lease.Machine.watch": true, "lease.Machine.acked": true, "lease.Machine.floor": true,
	"lease.Machine.delayed": true, "lease.Machine.reportAt": true,
	"lease.Host.base": true, "lease.Host.steps": true, "lease.Host.Name": true,
	"bakery.Machine.cfg": true, "bakery.Machine.views": true, "bakery.Machine.hosts": true, "bakery.Machine.polling": true,
}

// spans lists durations that are not moments.
var spans = map[string]bool{"lease.Host.Watchdog": true, "lease.Host.maxWatchdog": true}

// keyer appends values to a key: moments relative to now, sequences relative to the last one of
// their incarnation.
type keyer struct {
	now  time.Duration
	last [64]uint64 // by incarnation
	b    []byte
}

type appender func(k *keyer, p unsafe.Pointer)

var (
	leaseType  = reflect.TypeFor[lease.Machine]()
	bakeryType = reflect.TypeFor[bakery.Machine]()

	appendLease  = appenderOf(leaseType, "")
	appendBakery = appenderOf(bakeryType, "")
	appendRecord = appenderOf(reflect.TypeFor[layout.HostRecord](), "")
	appendTerm   = appenderOf(reflect.TypeFor[lease.Term](), "")
	appendView   = appenderOf(reflect.TypeFor[bakery.View](), "")
)

// appenderOf returns the function that appends a value of a type. field is the field's name with
// its type's.
func appenderOf(t reflect.Type, field string) appender {
	size := t.Size()
	switch {
	case unkeyed[field] || t.Kind() == reflect.Func:
		return func(*keyer, unsafe.Pointer) {}
	case t == reflect.TypeFor[time.Duration]() && !spans[field]:
		return func(k *keyer, p unsafe.Pointer) { k.moment(*(*time.Duration)(p)) }
	}
	switch t.Kind() {
	case reflect.Struct:
		return structAppender(t)
	case reflect.Slice:
		one, size := appenderOf(t.Elem(), ""), int(t.Elem().Size())
		return func(k *keyer, p unsafe.Pointer) {
			n := len(*(*[]byte)(p))
			k.b = append(k.b, byte(n))
			for i := range n {
				one(k, unsafe.Add(unsafe.Pointer(unsafe.SliceData(*(*[]byte)(p))), i*size))
			}
		}
	case reflect.Pointer:
		one := appenderOf(t.Elem(), "")
		return func(k *keyer, p unsafe.Pointer) {
			to := *(*unsafe.Pointer)(p)
			k.b = append(k.b, bit(to != nil))
			if to != nil {
				one(k, to)
			}
		}
	case reflect.String:
		return func(k *keyer, p unsafe.Pointer) {
			s := *(*string)(p)
			k.b = append(append(k.b, byte(len(s))), s...)
		}
	case reflect.Interface: // an error
		return func(k *keyer, p unsafe.Pointer) { k.b = append(k.b, bit(!reflect.NewAt(t, p).Elem().IsNil())) }
	case reflect.Uint64, reflect.Int64, reflect.Int:
		return func(k *keyer, p unsafe.Pointer) { k.b = binary.AppendUvarint(k.b, *(*uint64)(p)) }
	}
	return func(k *keyer, p unsafe.Pointer) { k.b = append(k.b, unsafe.Slice((*byte)(p), size)...) }
}

func structAppender(t reflect.Type) appender {
	type part struct {
		offset uintptr
		add    appender
	}
	var parts []part
	sequence, hasSequence := t.FieldByName("Sequence")
	incarnation, hasIncarnation := t.FieldByName("Incarnation")
	relative := hasSequence && hasIncarnation
	for i := range t.NumField() {
		f := t.Field(i)
		if relative && f.Name == "Sequence" {
			continue
		}
		parts = append(parts, part{f.Offset, appenderOf(f.Type, t.String()+"."+f.Name)})
	}
	return func(k *keyer, p unsafe.Pointer) {
		for _, x := range parts {
			x.add(k, unsafe.Add(p, x.offset))
		}
		if relative {
			k.sequence(*(*uint64)(unsafe.Add(p, incarnation.Offset)), *(*uint64)(unsafe.Add(p, sequence.Offset)))
		}
	}
}

// moment appends a time, rounded up to ticks: machines only get ticks. Times longer ago than any
// wait of a machine are equal; 0 and -1 mean never.
func (k *keyer) moment(t time.Duration) {
	switch {
	case t <= 0:
		k.b = append(k.b, 0x80)
	case t > k.now+100*tick:
		k.b = append(k.b, 0x81)
	default:
		rel := (t-k.now+100*tick+tick-1)/tick - 100
		k.b = append(k.b, byte(int8(max(rel, -longAgo))))
	}
}

func (k *keyer) sequence(incarnation, sequence uint64) {
	k.b = append(k.b, byte(min(k.last[incarnation%64]-sequence, 15)))
}

// knows registers a sequence for relative ones.
func (k *keyer) knows(r layout.HostRecord) {
	l := &k.last[r.Incarnation%64]
	*l = max(*l, r.Sequence)
}

func (k *keyer) bits(bits ...bool) {
	var b byte
	for i, x := range bits {
		b |= bit(x) << i
	}
	k.b = append(k.b, b)
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// private returns access to a private field of a machine.
func private[T, M any](field string) func(*M) *T {
	f, ok := reflect.TypeFor[M]().FieldByName(field)
	if !ok || f.Type.Kind() != reflect.TypeFor[T]().Kind() {
		panic("no such field: " + field)
	}
	return func(m *M) *T { return (*T)(unsafe.Add(unsafe.Pointer(m), f.Offset)) }
}

var (
	leasePhase   = private[uint8, lease.Machine]("phase")
	leaseOwn     = private[layout.HostRecord, lease.Machine]("own")
	leaseAcked   = private[uint64, lease.Machine]("acked")
	leaseFloor   = private[uint64, lease.Machine]("floor")
	leaseReady   = private[bool, lease.Machine]("ready")
	leaseWriting = private[bool, lease.Machine]("writing")
	leaseReadAt  = private[time.Duration, lease.Machine]("readAt")
	leaseWriteAt = private[time.Duration, lease.Machine]("writeAt")
	leaseLooked  = private[time.Duration, lease.Machine]("looked")
	leaseWatch   = private[time.Duration, lease.Machine]("watch")
	leaseHosts   = private[[]lease.Host, lease.Machine]("hosts")
	hostBase     = private[time.Duration, lease.Host]("base")
	hostSteps    = private[int, lease.Host]("steps")
)

const (
	phaseLooking = 1 // lease.looking
	phaseLive    = 4 // lease.live
)

// ready reports whether tickets may be taken.
func ready(m *lease.Machine) bool { return *leasePhase(m) == phaseLive && *leaseReady(m) }

// keyLease appends a lease's machine.
func (k *keyer) keyLease(m *lease.Machine, reading bool) {
	appendLease(k, unsafe.Pointer(m))
	own := leaseOwn(m)
	if reading {
		k.moment(*leaseReadAt(m))
		k.sequence(own.Incarnation, *leaseFloor(m))
	}
	if *leaseWriting(m) {
		k.moment(*leaseWriteAt(m))
	}
	if m.Deadline() == 0 {
		k.moment(*leaseLooked(m))
		if *leasePhase(m) == phaseLooking {
			k.moment(*leaseWatch(m))
		}
	}
	k.sequence(own.Incarnation, *leaseAcked(m))
	for i := range *leaseHosts(m) {
		h := &(*leaseHosts(m))[i]
		k.moment(max(*hostBase(h), k.now-length-tick))
		if !h.Settled { // otherwise no more renewals are counted
			k.b = append(k.b, byte(min(*hostSteps(h), 2)))
		}
	}
}

// A copier copies the slices in a value. The slices of a machine are copied into those of an old
// machine, because no other value shares them. A record's slices are shared with all its copies.
type copier func(p, old unsafe.Pointer)

var (
	leaseSlices  = copierOf(leaseType, 0)
	bakerySlices = copierOf(bakeryType, 0)
)

func copyLease(c, m *lease.Machine) {
	old := *c
	*c = *m
	leaseSlices(unsafe.Pointer(c), unsafe.Pointer(&old))
}

func copyBakery(c, m *bakery.Machine) {
	old := *c
	*c = *m
	bakerySlices(unsafe.Pointer(c), unsafe.Pointer(&old))
}

// copierOf returns nil if values of a type can be copied by assignment.
func copierOf(t reflect.Type, depth int) copier {
	switch t.Kind() {
	case reflect.Struct:
		var parts []copier
		for i := range t.NumField() {
			f := t.Field(i)
			if c := copierOf(f.Type, depth+1); c != nil && f.Name != "cfg" && f.Name != "out" {
				parts = append(parts, func(p, old unsafe.Pointer) { c(unsafe.Add(p, f.Offset), unsafe.Add(old, f.Offset)) })
			}
		}
		if parts == nil {
			return nil
		}
		return func(p, old unsafe.Pointer) {
			for _, c := range parts {
				c(p, old)
			}
		}
	case reflect.Slice:
		one := copierOf(t.Elem(), depth+1)
		return func(p, old unsafe.Pointer) {
			s, c := reflect.NewAt(t, p).Elem(), reflect.NewAt(t, old).Elem()
			switch n := s.Len(); {
			case s.Cap() == 0:
				return
			case depth > 1 || one != nil || c.Cap() < n:
				c = reflect.MakeSlice(t, n, n)
			default:
				c = c.Slice(0, n)
			}
			reflect.Copy(c, s)
			s.Set(c)
			if one != nil {
				none := reflect.New(t.Elem()).UnsafePointer()
				for i := range s.Len() {
					one(s.Index(i).Addr().UnsafePointer(), none)
				}
			}
		}
	}
	return nil
}

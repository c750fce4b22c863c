package check

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// Disk is a member disk of a lockspace on several.
type Disk struct {
	Position int         `json:"position"`
	Device   string      `json:"device"`
	UUID     layout.UUID `json:"uuid"`
	State    string      `json:"state"` // up, checking (it does not answer) or down
	Error    string      `json:"error,omitempty"`
	Damaged  int         `json:"damaged"` // number of copies that are not valid
	Behind   int         `json:"behind"`  // number of copies that are older than those of a majority
}

// The rules about the copies of one record on the member disks.
const (
	ruleDamaged   = "copy damaged"
	ruleMark      = "superblock copy damaged"
	ruleBehind    = "behind"
	ruleUnsettled = "unsettled"
	ruleHalf      = "half-written"
	ruleDiffers   = "copies differ"
)

// few is the greatest number of findings of one rule on one disk that are listed one by one.
const few = 3

// members are the member disks of a lockspace on several, as one examiner reads them.
type members struct {
	set    lockspace.Set
	sb     layout.Superblock
	disks  []lockspace.MemberDisk // when the check began
	need   mirror.Positions       // the members that answered so far, or may answer
	faults []copyFault            // of the current pass
}

// copyFault is a fault of the copies of a record.
type copyFault struct {
	off     int64
	member  int // -1: not of one
	rule    string
	problem string
	state   string // see suspicionKey
	lost    bool   // no majority has a valid copy of the record, which has a finding of its own
}

func newMembers(set lockspace.Set, sb layout.Superblock) *members {
	m := &members{set: set, sb: sb, disks: lockspace.MemberDisks(set)}
	for i := range m.disks {
		m.need |= mirror.At(i)
	}
	return m
}

func (m *members) majority() int { return len(m.disks)/2 + 1 }

// Read reads from all members: p gets the greatest versions, and faults what is wrong with the others.
// A member that does not answer once is not waited for again.
func (m *members) Read(p []byte, off int64) error {
	bad, err := m.compare(p, off)
	stride := m.sb.Geometry.Stride
	if err != nil || !bad || len(p) == stride {
		return err
	}
	// One bad sector makes a member fail the whole range. p has the records already.
	one := lockspace.Pool.Get(stride)
	defer lockspace.Pool.Put(one)
	for at := off; at < off+int64(len(p)); at += int64(stride) {
		if _, err := m.compare(one, at); err != nil && !errors.Is(err, mirror.ErrNoMajority) {
			return err
		}
	}
	return nil
}

// compare reads from all members and adds the faults of each record. If a member has a bad sector in a
// range of several records, it returns true, and adds none.
func (m *members) compare(p []byte, off int64) (bad bool, err error) {
	stride := int64(m.sb.Geometry.Stride)
	records := make([]copies, int64(len(p))/stride)
	var seen mirror.Positions
	err = m.set.ReadCopies(p, off, m.need, func(c mirror.Copy) {
		seen |= mirror.At(c.Position)
		if c.Block != nil || m.set.Members()[c.Position].State != mirror.Down {
			bad = bad || c.Block == nil
			records[c.Record].add(c)
		}
	})
	if err != nil {
		return false, err
	}
	m.need &= seen
	if bad && len(records) > 1 {
		return true, nil
	}
	for i := range records {
		m.judge(&records[i], off+int64(i)*stride)
	}
	return bad, nil
}

// copies are the copies of one record.
type copies struct {
	versions [layout.MaxPositions]mirror.Version // of those that are valid
	valid    mirror.Positions
	errs     [layout.MaxPositions]error // of those that are not
	newest   mirror.Version
	contents []byte // of the first one with the newest version
	differ   bool   // another one with that version has other contents
}

func (r *copies) add(c mirror.Copy) {
	if r.errs[c.Position] = c.Err; c.Err != nil {
		return
	}
	contents := c.Block[:layout.RecordSize]
	layout.PlaceCopy(contents, 1)
	switch {
	case r.valid == 0 || r.newest.Less(c.Version):
		r.newest, r.differ, r.contents = c.Version, false, bytes.Clone(contents)
	case c.Version == r.newest:
		r.differ = r.differ || !bytes.Equal(r.contents, contents)
	}
	r.valid |= mirror.At(c.Position)
	r.versions[c.Position] = c.Version
}

// judge adds the faults of a record.
func (m *members) judge(r *copies, off int64) {
	add := func(member int, rule, problem, state string) {
		m.faults = append(m.faults, copyFault{off, member, rule, problem, state, r.valid.Count() < m.majority()})
	}
	var old []int
	for i := range m.disks {
		switch {
		case r.errs[i] != nil:
			add(i, ruleDamaged, strings.TrimPrefix(r.errs[i].Error(), fmt.Sprintf("copy of the record at byte %d: ", off)), "")
		case r.valid.Has(i) && off < m.sb.Geometry.Host(1) && r.versions[i] == (mirror.Version{}):
			add(i, ruleDamaged, "it is blank", "")
		case r.valid.Has(i) && r.versions[i].Less(r.newest):
			old = append(old, i)
		}
	}
	switch newest := r.valid.Count() - len(old); {
	case r.valid.Count() < m.majority():
	case newest < m.majority():
		rule := ruleHalf
		if recordAt(m.sb.Geometry, off).Kind == lockspace.KindEntry {
			rule = ruleUnsettled
		}
		add(-1, rule, fmt.Sprintf("its newest version, %s, is on %d of the %d disks that were read: its write did not end, or a disk with it is missing",
			versionText(r.newest), newest, r.valid.Count()), versionText(r.newest))
	default:
		for _, i := range old {
			add(i, ruleBehind, fmt.Sprintf("it has version %s, a majority of the disks has %s", versionText(r.versions[i]), versionText(r.newest)), versionText(r.versions[i]))
		}
	}
	if r.differ {
		add(-1, ruleDiffers, fmt.Sprintf("copies with the same version, %s, have different contents", versionText(r.newest)), versionText(r.newest))
	}
}

func versionText(v mirror.Version) string { return fmt.Sprintf("%d.%d", v.Epoch, v.Counter) }

// PathOf returns the path of the disk of a finding: of a member, or that of the only one.
func (c *Result) PathOf(f Finding, only string) string {
	for _, d := range c.Disks {
		if d.Position == f.Disk {
			return d.Device
		}
	}
	return only
}

// recordAt returns the record at an offset, without its contents.
func recordAt(g layout.Geometry, off int64) lockspace.Record {
	n := func(first int64) int { return int(off-first) / g.Stride }
	switch {
	case off == 0:
		return lockspace.Record{Kind: lockspace.KindSuperblock}
	case off < g.Host(1):
		return lockspace.Record{Offset: off, Kind: lockspace.KindCopy}
	case off < g.Entry(1):
		return lockspace.HostAt(g, 1+n(g.Host(1)))
	case off < g.Slot(0, 1):
		return lockspace.EntryAt(g, 1+n(g.Entry(1)))
	}
	slot := n(g.Slot(0, 1))
	return lockspace.SlotAt(g, slot/g.Hosts, 1+slot%g.Hosts)
}

// copyRules checks the copies of each record on the member disks.
func (p *picture) copyRules() {
	for _, f := range p.faults {
		r := recordAt(p.ex.sb.Geometry, f.off)
		rule, severity := f.rule, SeverityWarning
		remedy := remedyNone + ": a majority of the disks has it, and the next write of the record replaces this copy"
		switch {
		case f.rule == ruleDamaged && (r.Kind == lockspace.KindSuperblock || r.Kind == lockspace.KindCopy):
			rule, remedy = ruleMark, remedyRepair+"writes it again from the other one on this disk"
		case f.rule == ruleDamaged && f.lost:
			remedy = "repair the record: no majority of the disks has a valid copy"
		case f.rule == ruleHalf && f.off < p.ex.sb.Geometry.Host(1):
			remedy = "run bakeryctl disk replace: a change of the list of member disks did not end"
		case f.rule == ruleBehind && f.off < p.ex.sb.Geometry.Host(1): // IDENTITY
			severity, remedy = SeverityNote, remedyNone+": the disk counts, although it missed a change of the list of member disks"
		case f.rule == ruleBehind:
			severity = SeverityNote
		case f.rule == ruleUnsettled:
			remedy = "start the disks that are missing; otherwise the entry counts as unreadable until a host that creates or removes a lock has written it again"
		case f.rule == ruleHalf:
			severity, remedy = SeverityNote, remedyNone+": the next write of its host replaces it; if that is dead, its writes are void"
		case f.rule == ruleDiffers:
			severity, remedy = SeverityError, "compare them with bakeryctl dump of each disk: one of the disks, or a program, wrote what no host did"
		}
		s := p.suspect(severity, r, rule, f.problem, remedy)
		s.state = f.state
		if f.member >= 0 {
			s.Disk = p.ex.members.disks[f.member].Position
			s.state += fmt.Sprint(" on ", s.Disk)
		}
		s.Repair = rule == ruleMark
	}
}

// group adds suspicions to the findings. More than few of one rule on one disk become one finding.
func (c *Result) group(found []*suspicion) {
	type key struct {
		disk int
		rule string
	}
	slices.SortFunc(found, func(a, b *suspicion) int { return cmp.Compare(a.Offset, b.Offset) })
	number := map[key]int{}
	for _, s := range found {
		number[key{s.Disk, s.rule}]++
		for i := range c.Disks {
			switch d := &c.Disks[i]; {
			case d.Position != s.Disk:
			case s.rule == ruleDamaged || s.rule == ruleMark:
				d.Damaged++
			case s.rule == ruleBehind:
				d.Behind++
			}
		}
	}
	grouped := map[key]bool{}
	for _, s := range found {
		k, f := key{s.Disk, s.rule}, s.Finding
		n := number[k]
		if what, problem := groupText(s.rule, n); n > few && problem != "" {
			if grouped[k] {
				continue
			}
			grouped[k] = true
			f.What, f.Problem, f.Kind, f.Lock, f.Host = what, fmt.Sprintf("%s; the first is the %s at byte %d", problem, f.What, f.Offset), "", 0, 0
			if s.Disk > 0 {
				f.What = fmt.Sprintf("disk %d", s.Disk)
			}
		}
		c.Findings = append(c.Findings, f)
	}
}

// groupText returns the subject and the problem of several findings of a rule, or nothing if they are
// not grouped.
func groupText(rule string, n int) (what, problem string) {
	switch rule {
	case ruleDamaged:
		return "", fmt.Sprintf("%d copies are damaged", n)
	case ruleBehind:
		return "", fmt.Sprintf("%d copies are older than those of a majority of the disks", n)
	case ruleUnsettled:
		return "lock directory", fmt.Sprintf("%d entries are unsettled: the newest version is on fewer disks than a majority", n)
	case ruleHalf:
		return "records of hosts", fmt.Sprintf("%d have their newest version on fewer disks than a majority", n)
	case ruleDiffers:
		return "copies", fmt.Sprintf("%d records have copies with one version and different contents", n)
	}
	return "", ""
}

// addDisks adds the member disks, and a finding for each that was not read.
func (c *Result) addDisks(m *members) {
	now := lockspace.MemberDisks(m.set)
	for i, at := range m.disks {
		d := Disk{Position: at.Position, Device: at.Name, UUID: at.UUID, State: now[i].State.String()}
		if err := now[i].Err; err != nil {
			d.Error = err.Error()
		}
		f := Finding{Severity: SeverityWarning, What: fmt.Sprintf("disk %d", d.Position), Disk: d.Position,
			Problem: "it does not answer", Remedy: "check the disk and its paths"}
		switch {
		case errors.Is(now[i].Err, lockspace.ErrVacant):
			f.Problem, f.Remedy = "its position is "+d.Error, now[i].Remedy()
		case now[i].State == mirror.Down:
			f.Problem = fmt.Sprintf("it is missing: %s", d.Error)
			f.Remedy = missingRemedy(d, now[i].Err)
		case m.need.Has(i):
			c.Disks = append(c.Disks, d)
			continue
		default:
			d.State = mirror.Checking.String()
		}
		c.Findings = append(c.Findings, f)
		c.Disks = append(c.Disks, d)
	}
}

// missingRemedy returns what to do about a member d that is down because of err. A disk that has lost both
// its superblock and the copy may have lost records as well: as a member it would show them as they were
// before (IDENTITY in bakery/PROTOCOL.md). Therefore no repair makes it a member again.
func missingRemedy(d Disk, err error) string {
	if errors.Is(err, lockspace.ErrReplaced) && !strings.Contains(d.Device, " or ") {
		return "give the path of the new disk"
	}
	lost := []error{layout.ErrBlank, layout.ErrMagic, layout.ErrChecksum}
	if slices.ContainsFunc(lost, func(target error) bool { return errors.Is(err, target) }) {
		return "check that the path is right; if so, the superblock and its copy are lost, other records perhaps as well: " +
			fmt.Sprintf("run bakeryctl disk replace %d NEW, where NEW may be this disk, with --force", d.Position)
	}
	return "check the disk and its paths, and give the path of each disk"
}

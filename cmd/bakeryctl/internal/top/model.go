package top

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/report"
)

// model is the state of top. It changes only by its methods: it has no clock, no terminal and no
// socket.
type model struct {
	source        string         // the socket or device
	events        []events.Event // newest first
	unseen        []events.Event // received during a pause, oldest first
	eventsFailed  error          // why no events arrive; nil if they do
	width, height int            // of the screen; 0: no limit
	now           time.Time

	answer *report.Glance // the last one; nil if none yet
	got    time.Time
	failed error     // why there is no current answer; nil if there is one
	since  time.Time // start of failed
	speed  map[string][]time.Duration

	rows         []row // in display order: hosts, then locks
	hosts, locks []row // these parts of rows

	order   order
	filter  string
	typing  bool // the filter is being edited
	paused  bool
	help    bool
	at      rowID // the selected row, which may not exist
	opened  bool  // the details of that row are shown
	scroll  int   // of the help or the details
	chooses bool  // the operator has moved the selection
}

// rowID identifies a row independent of its position.
type rowID struct {
	lock bool
	id   int
}

// row is a host or a lock of the report.
type row struct {
	rowID
	i int // index into the report
}

type order int

const (
	byNeed order = iota // stuck locks first, then orphans, locks with waiters, held and free locks
	byName
	byWaits
	byAge // by the age of the oldest hold
	orders
)

func (o order) String() string {
	return [...]string{"by need", "by name", "by number of waiters", "longest held first"}[o]
}

// samplesKept is the number of latencies that a sparkline keeps.
const samplesKept = 60

// update applies the result of a read: an answer, or the error.
func (m model) update(a *report.Glance, err error, now time.Time) model {
	if m.paused {
		return m
	}
	m.now = now
	if err != nil {
		_, joining := errors.AsType[*notReady](err)
		if _, before := errors.AsType[*notReady](m.failed); m.failed == nil || before && !joining {
			m.since = now
		}
		m.failed = err
		return m
	}
	m.failed, m.answer, m.got = nil, a, now
	m.sample(a)
	return m.arrange()
}

// sample records the latencies of the sparklines.
func (m *model) sample(a *report.Glance) {
	kept := make(map[string][]time.Duration)
	add := func(what string, d time.Duration) {
		all := append(slices.Clone(m.speed[what]), d)
		kept[what] = all[max(0, len(all)-samplesKept):]
	}
	for _, s := range speedsOf(a.Report) {
		add(s.what, micros(s.P99US))
	}
	add("", time.Duration(a.Read.TookMS)*time.Millisecond)
	m.speed = kept
}

func (m model) addEvent(e events.Event) model {
	if m.paused {
		m.unseen = append(slices.Clone(m.unseen[max(0, len(m.unseen)-eventsKept):]), e)
		return m
	}
	m.events = append([]events.Event{e}, m.events[:min(len(m.events), eventsKept-1)]...)
	return m
}

func (m model) tick(now time.Time) model {
	if !m.paused {
		m.now = now
	}
	return m
}

// key handles a key with its name and text. The message, unless nil, is for the program.
func (m model) key(name, text string) (model, tea.Msg) {
	switch name {
	case "ctrl+c":
		return m, tea.QuitMsg{}
	case "ctrl+z":
		return m, tea.SuspendMsg{}
	}
	if m.typing {
		return m.write(name, text), nil
	}
	by, covered := m.step(name), m.help || m.opened
	switch {
	case covered && slices.Contains([]string{"esc", "enter", "?", "backspace", "left"}, name):
		m.help, m.opened, m.scroll = false, false, 0
		return m, nil
	case covered && by != 0:
		m.scroll = max(0, m.scroll+by) // window limits it to the number of lines
		return m, nil
	case by != 0:
		m.chooses = true
		return m.move(by), nil
	}
	switch name {
	case "q":
		return m, tea.QuitMsg{}
	case "?":
		m.help, m.scroll = true, 0
	case "/":
		m.typing, m.opened, m.help = true, false, false
	case "esc":
		m.filter = ""
		m = m.arrange()
	case "s":
		m.order = (m.order + 1) % orders
		m = m.arrange()
	case "p", "space":
		m.paused = !m.paused
		if !m.paused {
			for _, e := range m.unseen {
				m = m.addEvent(e)
			}
			m.unseen = nil
			return m, readNow{}
		}
	case "enter", "right":
		if m.place() >= 0 {
			m.opened, m.scroll = true, 0
		}
	case "tab", "shift+tab":
		m.chooses = true
		if i := slices.IndexFunc(m.rows, func(r row) bool { return r.lock != m.at.lock }); i >= 0 {
			m.at = m.rows[i].rowID
		}
	}
	return m, nil
}

// write handles a key while the filter is being edited.
func (m model) write(name, text string) model {
	switch name {
	case "enter", "tab", "down", "up":
		m.typing = false
		return m
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		_, n := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-n]
	case "ctrl+u", "ctrl+w":
		m.filter = ""
	default:
		text = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) || r == utf8.RuneError {
				return -1
			}
			return r
		}, text)
		if len(m.filter)+len(text) <= 128 {
			m.filter += text
		}
	}
	return m.arrange()
}

// step returns the number of rows that a key moves, 0 for other keys.
func (m model) step(name string) int {
	const all = 1 << 30
	page := max(1, m.height/2)
	return map[string]int{"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -page, "pgdown": page, "home": -all, "g": -all, "end": all, "G": all}[name]
}

// move moves the selection over all rows.
func (m model) move(by int) model {
	if len(m.rows) > 0 {
		m.at = m.rows[min(max(0, m.place()+by), len(m.rows)-1)].rowID
	}
	return m
}

// place returns the index of the selected row, or -1.
func (m model) place() int {
	return slices.IndexFunc(m.rows, func(r row) bool { return r.rowID == m.at })
}

// arrange filters and sorts the rows. It keeps the selection while that row exists.
func (m model) arrange() model {
	m.rows, m.hosts, m.locks = nil, nil, nil
	if m.answer == nil {
		return m
	}
	r, words := m.answer.Report, strings.Fields(strings.ToLower(m.filter))
	for i, h := range r.Hosts {
		if matches(words, fmt.Sprint(h.ID), h.Name, show.HostState(h)) {
			m.rows = append(m.rows, row{rowID{false, h.ID}, i})
		}
	}
	hosts := len(m.rows)
	for i, l := range r.Locks {
		if matches(words, lockWords(l)...) {
			m.rows = append(m.rows, row{rowID{true, l.Number}, i})
		}
	}
	m.hosts, m.locks = m.rows[:hosts], m.rows[hosts:]
	slices.SortStableFunc(m.hosts, func(a, b row) int {
		return cmp.Or(cmp.Compare(m.hostRank(r.Hosts[a.i]), m.hostRank(r.Hosts[b.i])), cmp.Compare(a.id, b.id))
	})
	slices.SortStableFunc(m.locks, func(a, b row) int { return m.compare(r.Locks[a.i], r.Locks[b.i]) })
	there := m.place() >= 0
	m.opened = m.opened && there
	if there && m.chooses {
		return m
	}
	if first := slices.Concat(m.locks, m.hosts); len(first) > 0 {
		m.at = first[0].rowID
	}
	return m
}

func (m model) compare(a, b report.Lock) int {
	name := cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Number, b.Number))
	need := cmp.Compare(lockRank(a), lockRank(b))
	switch m.order {
	case byName:
		return name
	case byWaits:
		return cmp.Or(cmp.Compare(m.waits(b), m.waits(a)), need, name)
	case byAge:
		free := func(l report.Lock) int { return 1 - min(1, len(l.Holders)) }
		return cmp.Or(cmp.Compare(free(a), free(b)), oldest(a).Compare(oldest(b)), need, name)
	}
	return cmp.Or(need, name)
}

// matches reports whether each word is in one of the texts.
func matches(words []string, texts ...string) bool {
	if len(words) == 0 {
		return true
	}
	all := strings.ToLower(strings.Join(texts, " "))
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(all, w) })
}

// lockWords returns the texts that the filter compares with.
func lockWords(l report.Lock) []string {
	words := []string{show.LockName(l), l.Name, l.Stuck}
	for _, h := range l.Holders {
		words = append(words, h.HostName, h.Command, fmt.Sprint("pid ", h.PID))
	}
	for _, q := range l.Queue {
		words = append(words, q.HostName)
	}
	for _, c := range l.Local {
		words = append(words, c.Command, fmt.Sprint("pid ", c.PID))
	}
	return words
}

// lockRank returns the sort rank of a lock; 0 needs attention most.
func lockRank(l report.Lock) int {
	switch {
	case l.Stuck != "":
		return 0
	case l.Doubt() != "", slices.ContainsFunc(l.Holders, func(h report.Holder) bool { return h.Orphan }):
		return 1
	case len(l.Queue)+len(l.Local) > 0:
		return 2
	case len(l.Holders) > 0:
		return 3
	}
	return 4
}

// hostRank returns the sort rank of a host; 0 needs attention most.
func (m model) hostRank(h report.Host) int {
	switch state := h.Health; {
	case state == report.HealthSilent, state == report.HealthLost:
		return 0
	case h.Unreadable, h.AskedToLeave, state == report.HealthUnknown, state == report.HealthDead && !h.Forgotten:
		return 1
	case m.answer.Report.IsThisHost(h.ID):
		return 2
	case state == report.HealthJoining:
		return 3
	case state == report.HealthLive:
		return 4
	}
	return 5
}

// waits returns the number of waiters of a lock: clients of this host, and other hosts.
func (m model) waits(l report.Lock) int {
	n := len(l.Local)
	for _, q := range l.Queue {
		if len(l.Local) == 0 || !m.answer.Report.IsThisHost(q.Host) {
			n++
		}
	}
	return n
}

// oldest returns the start of the oldest hold of a lock, or zero if it is free or the start is
// unknown.
func oldest(l report.Lock) (since time.Time) {
	for _, h := range l.Holders {
		if since.IsZero() || !h.Since.IsZero() && h.Since.Before(since) {
			since = h.Since
		}
	}
	return since
}

// passed returns the age of the report.
func (m model) passed() time.Duration { return max(0, m.now.Sub(m.got)) }

// known returns how much of the time since the report counts for silence: none if there is no newer
// one, because other hosts may have renewed since.
func (m model) known() time.Duration {
	if m.failed != nil {
		return 0
	}
	return m.passed()
}

func (m model) lease() time.Duration {
	return time.Duration(m.answer.Report.Lockspace.LeaseMS) * time.Millisecond
}

func (m model) left() time.Duration {
	return max(0, time.Duration(m.answer.Report.ThisHost.LeaseLeftMS)*time.Millisecond-m.passed())
}

// heldFor returns how long a lock has been held or waited for, by the clock of bakeryd; "" if that
// is not known.
func (m model) heldFor(since time.Time) string {
	if since.IsZero() {
		return ""
	}
	return render.Age(m.answer.At.Add(m.known()).Sub(since))
}

// leaseLevel rates the rest of a lease, which is renewed six times per lease.
func leaseLevel(left, lease time.Duration) render.Level {
	switch {
	case left < lease/3:
		return render.Bad
	case left < lease*6/10:
		return render.Warn
	}
	return render.Good
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

package timeline

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	_ "embed" // the page
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// The parts of the page. Texts from journals are in its data only. The script inserts them as
// text, never as markup.
var (
	//go:embed page/page.html
	pageHTML string
	//go:embed page/page.css
	pageCSS string
	//go:embed page/model.js
	modelJS string
	//go:embed page/draw.js
	drawJS string
	//go:embed page/rows.js
	rowsJS string
	//go:embed page/input.js
	inputJS string
	//go:embed page/table.js
	tableJS string
)

// PageMark begins every page. Only files that begin with it may be overwritten.
const PageMark = "<!doctype html><!-- bakery timeline -->"

const (
	maxLanes      = 8 // of one host in one lock; further attempts overlap in the last lane
	maxTrackLanes = 6
)

// Write writes the page.
func (t *Timeline) Write(w io.Writer) error {
	script := "'use strict';\n(() => {\n" + modelJS + drawJS + rowsJS + inputJS + tableJS + "})();\n"
	data, err := json.Marshal(t.pageData()) // <, > and & are escaped: no text can end its element
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	page := strings.NewReplacer(
		"{{policy}}", fmt.Sprintf("default-src 'none'; script-src %s; style-src %s; base-uri 'none'; form-action 'none'", digest(script), digest(pageCSS)),
		"{{style}}", pageCSS, "{{script}}", script, "{{data}}", string(data))
	if _, err := out.WriteString(PageMark + "\n"); err != nil {
		return err
	}
	if _, err := page.WriteString(out, pageHTML); err != nil {
		return err
	}
	return out.Flush()
}

// digest returns the hash of an element's text for the policy.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// pageData is the input of the script. Times are microseconds since From.
type pageData struct {
	Title    string        `json:"title"`
	Note     string        `json:"note,omitempty"`
	From     int64         `json:"from"` // since 1970
	Span     int64         `json:"span"`
	Hosts    []pageHost    `json:"hosts"`
	Locks    []pageLock    `json:"locks"`
	Strings  []string      `json:"strings"`
	Attempts [][]any       `json:"attempts"` // in the order of model.js
	Findings []pageFinding `json:"findings"`
	Clocks   []pageClock   `json:"clocks"`
	Notes    []string      `json:"notes"`
}

type pageHost struct {
	ID      int     `json:"id"`
	Name    string  `json:"name"`
	Journal bool    `json:"journal"`
	Changes [][]any `json:"changes"` // at, kind, by, incarnation, reason, others
}

type pageLock struct {
	Name    string  `json:"name"`
	Permits int     `json:"permits"`
	Lanes   int     `json:"lanes"` // of the track of all hosts
	Hosts   [][]int `json:"hosts"` // index, lanes
	Marks   [][]any `json:"marks"` // at, kind, host, text
}

type pageFinding struct {
	Kind     FindingKind `json:"kind"`
	Proven   bool        `json:"proven"`
	At       int64       `json:"at"`
	Until    int64       `json:"until"`
	Lock     int         `json:"lock"`
	Attempts []int       `json:"attempts"`
	Text     string      `json:"text"`
}

type pageClock struct {
	Host    int   `json:"host"`
	Added   int64 `json:"added"`
	Excused int   `json:"excused"`
	By      int64 `json:"by"`
}

// texts numbers texts that many attempts share.
type texts struct {
	all []string
	at  map[string]int
}

func (x *texts) number(text string) int {
	i, ok := x.at[text]
	if !ok {
		i = len(x.all)
		x.at[text] = i
		x.all = append(x.all, printable(text))
	}
	return i
}

func (t *Timeline) pageData() *pageData {
	p := &pageData{Title: printable(t.options.Title), Note: printable(t.options.Note), From: int64(t.from), Span: int64(t.until - t.from),
		Notes: []string{}, Findings: []pageFinding{}, Clocks: []pageClock{}, Attempts: [][]any{}, Hosts: []pageHost{}, Locks: []pageLock{}}
	x := &texts{at: map[string]int{}}
	x.number("")
	for i := range t.Hosts {
		h := &t.Hosts[i]
		ph := pageHost{ID: h.ID, Name: printable(h.Name), Journal: h.Journal, Changes: [][]any{}}
		for _, c := range h.Changes {
			ph.Changes = append(ph.Changes, []any{t.since(c.At), printable(string(c.Kind)), c.By, incarnation(c.Incarnation), printable(c.Reason), c.Others})
		}
		p.Hosts = append(p.Hosts, ph)
	}
	lanes, tracks := t.laneOut(p)
	for i := range t.Attempts {
		p.Attempts = append(p.Attempts, t.pageAttempt(&t.Attempts[i], x, lanes[i], tracks[i]))
	}
	p.Strings = x.all
	for _, f := range t.Findings {
		p.Findings = append(p.Findings, pageFinding{f.Kind, f.Proven, int64(f.At - t.from), int64(f.Until - t.from), f.Lock, f.Attempts, f.Text})
	}
	for _, c := range t.Clocks {
		p.Clocks = append(p.Clocks, pageClock(c))
	}
	p.Notes = append(p.Notes, t.Notes...)
	return p
}

// since returns a moment relative to From, nil for Never.
func (t *Timeline) since(m Moment) any {
	if m == Never {
		return nil
	}
	return int64(m - t.from)
}

func incarnation(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", n)
}

func (t *Timeline) pageAttempt(a *Attempt, x *texts, lane, track int) []any {
	shared := 0
	if a.Shared {
		shared = 1
	}
	token := ""
	if a.Token != 0 {
		token = a.Token.String()
	}
	row := []any{a.Host, a.Lock, t.since(a.Asked), t.since(a.Choosing), t.since(a.Numbered), t.since(a.Entered), t.since(a.Ended),
		string(a.End), shared, token, a.PID, x.number(a.Command), x.number(a.Behind), x.number(a.Reason), lane, track}
	extra := map[string]any{}
	if inc := incarnation(a.Incarnation); inc != "" {
		extra["i"] = x.number(inc)
	}
	if a.Ticket != 0 && !a.held() {
		extra["t"] = a.Ticket.String()
	}
	if a.Lost != Never {
		extra["l"] = t.since(a.Lost)
	}
	if a.Verdict != Never {
		extra["v"] = t.since(a.Verdict)
	}
	if a.held() && a.sure < a.Ended {
		extra["s"] = t.since(a.sure)
	}
	var modes, marks [][]any
	for _, m := range a.Modes {
		modes = append(modes, []any{t.since(m.At), m.Shared})
	}
	for _, m := range a.Marks {
		marks = append(marks, []any{t.since(m.At), string(m.Kind), x.number(m.Text)})
	}
	if modes != nil {
		extra["m"] = modes
	}
	if marks != nil {
		extra["k"] = marks
	}
	return append(row, extra)
}

// laneOut assigns lanes to each attempt: in the row of its host, and, for a hold, in the track of
// its lock.
func (t *Timeline) laneOut(p *pageData) (lanes, tracks []int) {
	lanes, tracks = make([]int, len(t.Attempts)), make([]int, len(t.Attempts))
	rows := map[[2]int]*stack{}
	holds := make([]*stack, len(t.Locks))
	for i := range t.Locks {
		holds[i] = &stack{most: maxTrackLanes}
	}
	byEntry := []int{}
	for i := range t.Attempts { // in the order of their beginnings
		a := &t.Attempts[i]
		k := [2]int{a.Lock, a.Host}
		if rows[k] == nil {
			rows[k] = &stack{most: maxLanes}
		}
		lanes[i] = rows[k].place(a.begin(), a.Ended)
		if a.held() {
			byEntry = append(byEntry, i)
		}
	}
	slices.SortStableFunc(byEntry, func(x, y int) int { return cmp.Compare(t.Attempts[x].Entered, t.Attempts[y].Entered) })
	for _, i := range byEntry {
		a := &t.Attempts[i]
		tracks[i] = holds[a.Lock].place(a.Entered, a.Ended)
	}
	for i := range t.Locks {
		l := &t.Locks[i]
		pl := pageLock{Name: printable(l.Name), Permits: l.Permits, Lanes: max(1, len(holds[i].until)), Hosts: [][]int{}, Marks: [][]any{}}
		for h := range t.Hosts {
			if r := rows[[2]int{i, h}]; r != nil {
				pl.Hosts = append(pl.Hosts, []int{h, len(r.until)})
			}
		}
		for _, m := range l.Marks {
			pl.Marks = append(pl.Marks, []any{t.since(m.At), printable(string(m.Kind)), m.Host, printable(m.Text)})
		}
		p.Locks = append(p.Locks, pl)
	}
	return lanes, tracks
}

// stack assigns lanes to overlapping items.
type stack struct {
	until []Moment
	most  int
}

func (l *stack) place(from, until Moment) int {
	for i, end := range l.until {
		if end <= from {
			l.until[i] = until
			return i
		}
	}
	if len(l.until) < l.most {
		l.until = append(l.until, until)
		return len(l.until) - 1
	}
	last := l.most - 1
	l.until[last] = max(l.until[last], until)
	return last
}

package probe

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Watchdog holds the facts in sysfs about a watchdog. It is never opened: that would arm it.
type Watchdog struct {
	Name      string `json:"name"`           // /dev/NAME
	Identity  string `json:"identity"`       // model
	State     string `json:"state"`          // active: a program has it open
	TimeoutMS int64  `json:"timeout_ms"`     // its current timeout, in milliseconds
	MaxMS     int64  `json:"max_timeout_ms"` // in milliseconds; 0: unknown
	NoWayOut  bool   `json:"nowayout"`       // it cannot be disarmed
}

// Watchdogs returns the watchdogs of this host, by name.
func (s Sys) Watchdogs() []Watchdog {
	dirs, _ := filepath.Glob(filepath.Join(s.Root, "class/watchdog/watchdog[0-9]*")) // the pattern is valid
	dogs := []Watchdog{}
	for _, dir := range dirs {
		w := Watchdog{Name: filepath.Base(dir), Identity: attribute(dir, "identity"), State: attribute(dir, "state"), NoWayOut: attribute(dir, "nowayout") == "1"}
		timeout, _ := number(dir, "timeout")
		most, _ := number(dir, "max_timeout")
		w.TimeoutMS, w.MaxMS = 1000*int64(timeout), 1000*int64(most)
		dogs = append(dogs, w)
	}
	slices.SortFunc(dogs, func(a, b Watchdog) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return dogs
}

// judgeWatchdogs rates whether a watchdog supports the time-out.
func (r *Report) judgeWatchdogs(want time.Duration) {
	const id = "watchdog"
	if len(r.Watchdogs) == 0 {
		r.add(id, OK, "none, which is fine unless this host is to be reset when it cannot stop a command (bakeryd --watchdog); modprobe softdog makes one", "")
		return
	}
	var said []string
	verdict, remedy := Warning, "to use bakeryd --watchdog, end the program that feeds it, or modprobe softdog for one more"
	for _, w := range r.Watchdogs {
		text := fmt.Sprintf("/dev/%s (%s)", w.Name, w.Identity)
		switch {
		case w.State == "active":
			text += " is in use by another program"
		case w.MaxMS > 0 && time.Duration(w.MaxMS)*time.Millisecond < want:
			text += fmt.Sprintf(" lasts for %d s at most, the lease asks for %v", w.MaxMS/1000, want)
		default:
			verdict, remedy = OK, ""
			text += " can be used"
			if w.NoWayOut {
				text += ", but never disarmed: bakeryd that ends resets the host"
			}
		}
		said = append(said, text)
	}
	r.add(id, verdict, strings.Join(said, "; "), remedy)
}

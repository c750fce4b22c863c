package render

import (
	"fmt"
	"slices"
	"strings"
)

// Glyphs are what is drawn with, besides words.
type Glyphs struct {
	full, empty, more, Mark, Dot string
	Spark                        []string // from low to high
	ascii                        bool     // nothing else is shown
}

var (
	Fine   = Glyphs{full: "█", empty: "░", more: "…", Mark: "▸", Dot: "·", Spark: []string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}}
	Simple = Glyphs{full: "#", empty: ".", more: "~", Mark: ">", Dot: "-", Spark: []string{"_", ".", "-", "=", "#"}, ascii: true}
)

// GlyphsFor returns those that a terminal shows, by its environment: as setlocale(3) finds the
// encoding.
func GlyphsFor(env func(string) string) Glyphs {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(env(name)); v != "" {
			if strings.Contains(v, "utf-8") || strings.Contains(v, "utf8") {
				return Fine
			}
			return Simple
		}
	}
	return Simple
}

// Line is a line of the screen, of texts that each have a colour.
type Line []piece

type piece struct {
	level Level
	Text  string
}

// Add adds a text. Whatever it is, it moves no cursor and is as wide as it is taken for: what does
// not show, or not by itself, is written out.
func (l *Line) Add(of Level, text string) { *l = append(*l, piece{of, Safe(text)}) }

// Addf is Add of a format.
func (l *Line) Addf(of Level, format string, args ...any) { l.Add(of, fmt.Sprintf(format, args...)) }

// Cell adds a text in a column of some width, cut or filled up, and the gap behind it.
func (l *Line) Cell(of Level, text string, wide int, g Glyphs) {
	text = cut(Safe(text), wide, g)
	*l = append(*l, piece{of, text}, piece{Plain, strings.Repeat(" ", max(0, wide-Width(text))+2)})
}

// Right puts a text at the right end of a line that is so wide, if there is room for it.
func (l *Line) Right(of Level, text string, wide int) {
	text = Safe(text)
	if gap := wide - l.width() - Width(text); gap > 0 {
		*l = append(*l, piece{Plain, strings.Repeat(" ", gap)}, piece{of, text})
	}
}

func (l Line) width() (n int) {
	for _, s := range l {
		n += Width(s.Text)
	}
	return n
}

// Render makes text of a line, no wider than asked for; 0: as wide as it is.
func (l Line) Render(wide int, p Paint, g Glyphs) string {
	var b strings.Builder
	l = l.trim()
	room, fits := wide, wide <= 0 || l.width() <= wide
	if !fits {
		room -= Width(g.more)
	}
	for _, s := range l {
		text := s.Text
		if !fits {
			text = prefix(text, room)
			room -= Width(text)
		}
		if text != s.Text { // here it ends
			b.WriteString(p.Of(s.level, text+g.more))
			break
		}
		b.WriteString(p.Of(s.level, text))
	}
	if g.ascii {
		return strings.Map(func(r rune) rune {
			if r > '~' {
				return '?'
			}
			return r
		}, b.String())
	}
	return b.String()
}

// trim leaves out the blanks at the end.
func (l Line) trim() Line {
	l = slices.Clone(l)
	for n := len(l); n > 0; n-- {
		if l[n-1].Text = strings.TrimRight(l[n-1].Text, " "); l[n-1].Text != "" {
			return l[:n]
		}
	}
	return nil
}

// Bar shows a part of a whole.
func (l *Line) Bar(of Level, part float64, wide int, g Glyphs) {
	n := int(min(1, max(0, part))*float64(wide) + 0.5)
	if part > 0 && n == 0 {
		n = 1
	}
	l.Add(of, strings.Repeat(g.full, n))
	l.Add(Soft, strings.Repeat(g.empty, wide-n))
}

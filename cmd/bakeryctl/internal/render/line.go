package render

import (
	"fmt"
	"slices"
	"strings"
)

// Glyphs are the characters that drawings consist of.
type Glyphs struct {
	full, empty, more, Mark, Dot string
	Spark                        []string // from low to high
	ascii                        bool     // other characters are shown as ?
}

var (
	Fine   = Glyphs{full: "█", empty: "░", more: "…", Mark: "▸", Dot: "·", Spark: []string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}}
	Simple = Glyphs{full: "#", empty: ".", more: "~", Mark: ">", Dot: "-", Spark: []string{"_", ".", "-", "=", "#"}, ascii: true}
)

// GlyphsFor returns the glyphs that a terminal can show. It determines the encoding from the
// environment as setlocale(3) does.
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

// Line is a screen line: pieces of text with a level each.
type Line []piece

type piece struct {
	level Level
	Text  string
}

// Add appends text, escaped by Safe, so it moves no cursor and its width is known.
func (l *Line) Add(of Level, text string) { *l = append(*l, piece{of, Safe(text)}) }

// Addf appends formatted text.
func (l *Line) Addf(of Level, format string, args ...any) { l.Add(of, fmt.Sprintf(format, args...)) }

// Cell appends text cut or padded to a column width, and the gap after it.
func (l *Line) Cell(of Level, text string, wide int, g Glyphs) {
	text = cut(Safe(text), wide, g)
	*l = append(*l, piece{of, text}, piece{Plain, strings.Repeat(" ", max(0, wide-Width(text))+2)})
}

// Right puts text at the right end of a line of that width, if it fits.
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

// Render returns the line as text, cut to a number of columns; 0 means no limit.
func (l Line) Render(wide int, p Paint, g Glyphs) string {
	var b strings.Builder
	for _, s := range l.trim() {
		b.WriteString(p.Of(s.level, s.Text))
	}
	text := b.String()
	if wide > 0 {
		text = cut(text, wide, g)
	}
	if g.ascii {
		return strings.Map(func(r rune) rune {
			if r > '~' {
				return '?'
			}
			return r
		}, text)
	}
	return text
}

// trim removes trailing blanks.
func (l Line) trim() Line {
	l = slices.Clone(l)
	for n := len(l); n > 0; n-- {
		if l[n-1].Text = strings.TrimRight(l[n-1].Text, " "); l[n-1].Text != "" {
			return l[:n]
		}
	}
	return nil
}

// Bar appends a bar that shows part, 0 to 1.
func (l *Line) Bar(of Level, part float64, wide int, g Glyphs) {
	n := int(min(1, max(0, part))*float64(wide) + 0.5)
	if part > 0 && n == 0 {
		n = 1
	}
	l.Add(of, strings.Repeat(g.full, n))
	l.Add(Soft, strings.Repeat(g.empty, wide-n))
}

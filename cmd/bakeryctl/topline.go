package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// glyphs are what is drawn with, besides words.
type glyphs struct {
	full, empty, more, mark, dot string
	spark                        []string // from low to high
	ascii                        bool     // nothing else is shown
}

var (
	fine   = glyphs{full: "█", empty: "░", more: "…", mark: "▸", dot: "·", spark: []string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}}
	simple = glyphs{full: "#", empty: ".", more: "~", mark: ">", dot: "-", spark: []string{"_", ".", "-", "=", "#"}, ascii: true}
)

// glyphsFor returns those that a terminal shows, by its environment: as setlocale(3) finds the encoding.
func glyphsFor(env func(string) string) glyphs {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(env(name)); v != "" {
			if strings.Contains(v, "utf-8") || strings.Contains(v, "utf8") {
				return fine
			}
			return simple
		}
	}
	return simple
}

// topLine is a line of the screen, of texts that each have a colour.
type topLine []piece

type piece struct {
	level level
	text  string
}

// add adds a text. Whatever it is, it moves no cursor and is as wide as it is taken for: what does not show, or not by
// itself, is written out.
func (l *topLine) add(of level, text string) { *l = append(*l, piece{of, safe(text)}) }

func (l *topLine) addf(of level, format string, args ...any) { l.add(of, fmt.Sprintf(format, args...)) }

// cell adds a text in a column of some width, cut or filled up, and the gap behind it.
func (l *topLine) cell(of level, text string, wide int, g glyphs) {
	text = cut(safe(text), wide, g)
	*l = append(*l, piece{of, text}, piece{plain, strings.Repeat(" ", max(0, wide-width(text))+2)})
}

// right puts a text at the right end of a line that is so wide, if there is room for it.
func (l *topLine) right(of level, text string, wide int) {
	text = safe(text)
	if gap := wide - l.width() - width(text); gap > 0 {
		*l = append(*l, piece{plain, strings.Repeat(" ", gap)}, piece{of, text})
	}
}

func (l topLine) width() (n int) {
	for _, s := range l {
		n += width(s.text)
	}
	return n
}

// render makes text of a line, no wider than asked for; 0: as wide as it is.
func (l topLine) render(wide int, p paint, g glyphs) string {
	var b strings.Builder
	l = l.trim()
	room, fits := wide, wide <= 0 || l.width() <= wide
	if !fits {
		room -= width(g.more)
	}
	for _, s := range l {
		text := s.text
		if !fits {
			text = prefix(text, room)
			room -= width(text)
		}
		if text != s.text { // here it ends
			b.WriteString(p.of(s.level, text+g.more))
			break
		}
		b.WriteString(p.of(s.level, text))
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
func (l topLine) trim() topLine {
	l = slices.Clone(l)
	for n := len(l); n > 0; n-- {
		if l[n-1].text = strings.TrimRight(l[n-1].text, " "); l[n-1].text != "" {
			return l[:n]
		}
	}
	return nil
}

// width is how many columns of a terminal a text takes.
func width(text string) int { return ansi.StringWidthWc(text) }

// cut shortens a text to so many columns, and shows that it did.
func cut(text string, wide int, g glyphs) string {
	if width(text) <= wide {
		return text
	}
	if wide < width(g.more) {
		return ""
	}
	return prefix(text, wide-width(g.more)) + g.more
}

// prefix is as much of a text as there is room for.
func prefix(text string, room int) string {
	for i, r := range text {
		if room -= width(string(r)); room < 0 {
			return text[:i]
		}
	}
	return text
}

// safe writes out what would not show as one or two columns of its own, or would change how its neighbours show: control and
// format characters, invalid bytes, what is laid over others in heaps, and blanks that are not the space.
func safe(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return text
	}
	var b strings.Builder
	marks := 2 // that lie on what was before: nothing yet
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		combines := unicode.In(r, unicode.Mn, unicode.Mc)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
			marks = 0
		case r == '\n' || r == '\t':
			b.WriteByte(' ')
			marks = 2
		case !unicode.IsPrint(r) || hidden(r) || combines && marks >= 2:
			fmt.Fprintf(&b, `\u{%x}`, r)
			marks = 0
		default:
			if combines {
				marks++
			} else {
				marks = 0
			}
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}

// hidden are letters and marks that do not show, or change the width of what they are on.
func hidden(r rune) bool {
	return unicode.In(r, unicode.Me, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) ||
		r >= 0x1100 && r <= 0x11FF || r >= 0xA960 && r <= 0xA97F || r >= 0xD7B0 && r <= 0xD7FF || // parts of Hangul, which terminals join or not
		r >= 0x1F1E6 && r <= 0x1F1FF || r >= 0x1F3FB && r <= 0x1F3FF // flags by halves, shades of skin
}

// bar shows a part of a whole.
func (l *topLine) bar(of level, part float64, wide int, g glyphs) {
	n := int(min(1, max(0, part))*float64(wide) + 0.5)
	if part > 0 && n == 0 {
		n = 1
	}
	l.add(of, strings.Repeat(g.full, n))
	l.add(soft, strings.Repeat(g.empty, wide-n))
}

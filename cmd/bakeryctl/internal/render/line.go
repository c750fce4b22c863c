package render

import (
	"cmp"
	"strings"
)

// Glyphs are the characters that drawings consist of.
type Glyphs struct {
	full, empty, More, Mark, Dot string
	Spark                        []string // from low to high
	ascii                        bool     // other characters are shown as ?
}

var (
	Fine   = Glyphs{full: "█", empty: "░", More: "…", Mark: "▸", Dot: "·", Spark: []string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}}
	Simple = Glyphs{full: "#", empty: ".", More: "~", Mark: ">", Dot: "-", Spark: []string{"_", ".", "-", "=", "#"}, ascii: true}
)

// GlyphsFor returns the glyphs that a terminal can show. It determines the encoding from the
// environment as setlocale(3) does.
func GlyphsFor(env func(string) string) Glyphs {
	locale := strings.ToLower(cmp.Or(env("LC_ALL"), env("LC_CTYPE"), env("LANG")))
	if strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8") {
		return Fine
	}
	return Simple
}

// Pad cuts or pads a coloured text to a number of columns.
func (g Glyphs) Pad(text string, wide int) string {
	text = cut(text, wide, g)
	return text + strings.Repeat(" ", max(0, wide-Width(text)))
}

// Fit returns a coloured line without trailing blanks, cut to a number of columns.
func (g Glyphs) Fit(line string, wide int) string {
	line = cut(strings.TrimRight(line, " "), wide, g)
	if !g.ascii {
		return line
	}
	return strings.Map(func(r rune) rune {
		if r > '~' {
			return '?'
		}
		return r
	}, line)
}

// Bar returns a bar of that width that shows part, 0 to 1.
func (g Glyphs) Bar(p Paint, of Level, part float64, wide int) string {
	n := int(min(1, max(0, part))*float64(wide) + 0.5)
	if part > 0 && n == 0 {
		n = 1
	}
	return p.Of(of, strings.Repeat(g.full, n)) + p.Of(Soft, strings.Repeat(g.empty, wide-n))
}

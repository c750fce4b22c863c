package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Width returns the number of terminal columns of text.
func Width(text string) int { return ansi.StringWidthWc(text) }

// cut shortens text to a number of columns and marks the cut with g.More.
func cut(text string, wide int, g Glyphs) string { return ansi.TruncateWc(text, wide, g.More) }

// Wrap breaks a text without colours into lines of at most that many columns, at blanks if possible.
func Wrap(text string, wide int) []string {
	return strings.Split(ansi.WrapWc(text, max(1, wide), ""), "\n")
}

// Middle shortens a text without colours to a number of columns. It keeps the start and the end,
// and marks the cut.
func (g Glyphs) Middle(text string, wide int) string {
	all := Width(text)
	if all <= wide {
		return text
	}
	rest := max(0, wide-Width(g.More))
	return ansi.TruncateWc(text, rest/2, "") + g.More + ansi.TruncateLeftWc(text, all-(rest-rest/2), "")
}

// Safe escapes every character that is not one or two columns of its own, or that changes how its
// neighbours look: control and format characters, invalid bytes, third and further combining marks,
// and blanks other than the space.
func Safe(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return text
	}
	var b strings.Builder
	marks := 2 // combining marks on the last character; at the start there is no character
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

// hidden reports whether r is invisible or changes the width of its neighbour.
func hidden(r rune) bool {
	return unicode.In(r, unicode.Me, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) ||
		r >= 0x1100 && r <= 0x11FF || r >= 0xA960 && r <= 0xA97F || r >= 0xD7B0 && r <= 0xD7FF || // parts of Hangul: terminals differ in joining them
		r >= 0x1F1E6 && r <= 0x1F1FF || r >= 0x1F3FB && r <= 0x1F3FF // halves of flags, skin tones
}

// Count formats a number and a noun whose plural ends in s.
func Count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// WriteTable writes lines of cells that end with a tab, except the last. It aligns the cells of a
// column in adjacent lines, whatever their colours, and removes trailing spaces.
func WriteTable(out io.Writer, fill func(w io.Writer)) error {
	var text bytes.Buffer
	fill(&text)
	var rows [][]string
	var widths [][]*int // of the cells; adjacent lines share those of a column
	var above []*int
	for line := range strings.Lines(text.String()) {
		cells := strings.Split(strings.TrimRight(line, "\n"), "\t")
		wide := make([]*int, len(cells)-1)
		for i := range wide {
			if wide[i] = new(int); i < len(above) {
				wide[i] = above[i]
			}
			*wide[i] = max(*wide[i], Width(cells[i])+2)
		}
		rows, widths, above = append(rows, cells), append(widths, wide), wide
	}
	for i, cells := range rows {
		for j, wide := range widths[i] {
			cells[j] += strings.Repeat(" ", *wide-Width(cells[j]))
		}
		if _, err := fmt.Fprintln(out, strings.TrimRight(strings.Join(cells, ""), " ")); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSON writes v as indented JSON, without HTML escapes.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

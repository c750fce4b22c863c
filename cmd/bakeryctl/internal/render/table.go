package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

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

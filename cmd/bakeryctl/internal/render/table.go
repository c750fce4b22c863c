package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable writes lines of aligned cells. It removes trailing spaces and replaces colour marks.
func WriteTable(out io.Writer, fill func(w io.Writer)) error {
	var text bytes.Buffer
	w := NewTable(&text)
	fill(w)
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(out, paintLine(strings.TrimRight(line, " \n"))); err != nil {
			return err
		}
	}
	return nil
}

// NewTable returns a writer that aligns the cells of lines. Its Flush writes them to w.
func NewTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// WriteJSON writes v as indented JSON, without HTML escapes.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

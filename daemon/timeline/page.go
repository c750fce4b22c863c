package timeline

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// The parts of the page. Texts from journals are in its data only. The script inserts them as
// text, never as markup.
//
//go:embed page
var parts embed.FS

// PageMark begins every page. Only files that begin with it may be overwritten.
const PageMark = "<!doctype html><!-- bakery timeline -->"

// Write writes the page.
func (t *Timeline) Write(w io.Writer) error {
	script, style := "'use strict';\n(() => {\n", part("page.css")
	for _, name := range []string{"model.js", "draw.js", "rows.js", "input.js", "table.js"} {
		script += part(name)
	}
	script += "})();\n"
	data, err := json.Marshal(t) // <, > and & are escaped: no text can end its element
	if err != nil {
		return err
	}
	_, err = strings.NewReplacer(
		"{{policy}}", fmt.Sprintf("default-src 'none'; script-src %s; style-src %s; base-uri 'none'; form-action 'none'", digest(script), digest(style)),
		"{{style}}", style, "{{script}}", script, "{{data}}", string(data)).WriteString(w, PageMark+"\n"+part("page.html"))
	return err
}

func part(name string) string {
	text, err := parts.ReadFile("page/" + name)
	if err != nil {
		panic(err) // the parts are embedded
	}
	return string(text)
}

// digest returns the hash of an element's text for the policy.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

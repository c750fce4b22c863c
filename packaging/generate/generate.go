// Package generate writes the files of the packages that derive from the programs: the manual, bakeryd.env and the
// completions. Pages are templates in Markdown. Those of bakeryctl are filled with the help of its commands
// (bakeryctl.go), so each command has a page, as in git: "man bakeryctl-lock" finds it, and so does completion. The
// others are filled with the flags of bakeryd (bakeryd.go). Only a bakeryctl with the build tag packaging has this
// package: only package main of bakeryctl knows the commands.
package generate

import (
	"embed"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
)

// Source is what the files are made of.
type Source struct {
	Version   string
	Date      time.Time
	Bakeryctl *cobra.Command // the root of all commands, not executed yet
	Bakeryd   string         // path of the program
	Format    string         // path of layout/FORMAT.md
	Policy    string         // path of packaging/policy.example
}

//go:embed templates
var templates embed.FS

// outputs has the files that are written for templates, by name.
var outputs = map[string]string{
	"bakeryd.8.md":          "man/bakeryd.8",
	"bakeryd.env.5.md":      "man/bakeryd.env.5",
	"bakery-lockspace.5.md": "man/bakery-lockspace.5",
	"bakery-policy.5.md":    "man/bakery-policy.5",
	"bakeryd.env":           "bakeryd.env",
	"bakeryd.bash":          "completion/bash/bakeryd",
	"bakeryd.zsh":           "completion/zsh/_bakeryd",
	"bakeryd.fish":          "completion/fish/bakeryd.fish",
}

// Write writes all files below out.
func (s Source) Write(out string) error {
	made, err := s.files()
	if err != nil {
		return err
	}
	for name, text := range made {
		name = filepath.Join(out, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// files returns all files, by path.
func (s Source) files() (map[string]string, error) {
	flags, err := bakerydFlags(s.Bakeryd)
	if err != nil {
		return nil, err
	}
	format, formatErr := os.ReadFile(s.Format)
	policy, policyErr := os.ReadFile(s.Policy)
	if err := errors.Join(formatErr, policyErr); err != nil {
		return nil, err
	}
	data := map[string]any{
		"version": s.Version, "date": s.Date.Format(time.DateOnly), "flags": flags, "format": formatPage(string(format)),
		"policy": strings.TrimSpace(string(policy)),
	}
	all, err := template.New("").Funcs(functions).ParseFS(templates, "templates/*")
	if err != nil {
		return nil, err
	}
	fill := func(name string) string {
		var b strings.Builder
		err = errors.Join(err, all.ExecuteTemplate(&b, name, data))
		return b.String()
	}
	made := map[string]string{}
	for name, path := range outputs {
		made[path] = fill(name)
		if strings.HasSuffix(name, ".md") {
			made[path] = roff(made[path])
		}
	}
	topics := map[string]string{}
	for _, c := range s.Bakeryctl.Commands() {
		if c.IsAdditionalHelpTopicCommand() {
			topics[c.Name()] = c.Long
			data["page"] = topicPage(c)
			made["man/bakeryctl-"+c.Name()+".7"] = roff(fill("topic.md"))
		}
	}
	commands := pages(s.Bakeryctl, topics)
	refer(commands)
	for _, p := range commands {
		data["page"] = p
		made["man/"+p.Name+".1"] = roff(fill("command.md"))
	}
	return made, errors.Join(err, s.completions(made))
}

// functions are those of the templates.
var functions = template.FuncMap{
	"upper": strings.ToUpper,
	"list":  func(all ...string) []string { return all },
	"bold": func(page string) string { // of a page and its section
		at := strings.Index(page, "(")
		return "**" + page[:at] + "**" + page[at:]
	},
	// The next two quote a text for single quotes in a shell.
	"zsh":  strings.NewReplacer("[", `\[`, "]", `\]`, ":", `\:`, "'", `'\''`).Replace,
	"fish": strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace,
}

var (
	title   = regexp.MustCompile(`^# .*\n`)
	section = regexp.MustCompile(`(?m)^## .*`)
	row     = regexp.MustCompile(`(?m)^\|.*`)
	// elsewhere replaces paths of the source tree by those of the package.
	elsewhere = strings.NewReplacer("`bakery/PROTOCOL.md`", "`/usr/share/doc/bakeryd/PROTOCOL.md`",
		"`testdata`", "`layout/testdata` of the source")
)

// formatPage returns layout/FORMAT.md as a part of a manual page. Cells of tables have no code: it could not be broken.
func formatPage(markdown string) string {
	markdown = section.ReplaceAllStringFunc(title.ReplaceAllString(elsewhere.Replace(markdown), ""), strings.ToUpper)
	return row.ReplaceAllStringFunc(markdown, func(r string) string { return strings.ReplaceAll(r, "`", "") })
}

// plain makes a rendered page show the characters of the source, so that commands can be copied from it; and tables
// without boxes, at most as wide as the terminal.
var plain = strings.NewReplacer(
	"'\\\" t\n", "'\\\" t\n", // it makes man run tbl
	`\-`, `\-`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`,
	"\nallbox;\n", "\n", "\nl l .\n", "\nl lx .\n", "\nl l l .\n", "\nl lx lx .\n",
	".EE\n", ".EE\n.nh\n", // .EE turns hyphenation on
	".SH EXAMPLE\n", ".SH EXAMPLES\n",
)

var titleLine = regexp.MustCompile(`(?m)^\.TH .*`)

// roff returns a page in Markdown as man(1) shows it: with the characters of the source, tables without boxes, and
// no hyphenation.
func roff(markdown string) string {
	page := foldCells(plain.Replace(string(md2man.Render([]byte(markdown)))))
	return titleLine.ReplaceAllStringFunc(page, func(line string) string {
		return strings.ReplaceAll(line, `\-`, "-") + "\n.nh\n.ad l" // mandoc reads the date
	})
}

// foldCells makes the long cells of tables text blocks: tbl breaks the lines of these only.
func foldCells(page string) string {
	const short = 16
	var b strings.Builder
	table, block := false, false
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		switch {
		case cells[0] == ".TS":
			table = true
		case cells[0] == ".TE":
			table = false
		case table && len(cells) > 1 && (!block || cells[0] == "T}"):
			for i, c := range cells {
				if len(c) > short {
					cells[i] = "T{\n" + c + "\nT}"
				}
			}
			line = strings.Join(cells, "\t") + "\n"
		}
		if table {
			block = cells[len(cells)-1] == "T{" || block && cells[0] != "T}"
		}
		b.WriteString(line)
	}
	return b.String()
}

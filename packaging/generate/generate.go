// Package generate writes the files of the packages that derive from the programs: the manual, bakeryd.env and the
// completions. Those of bakeryctl come from cobra (bakeryctl.go), so the help of a command is its page. The others
// are templates, filled with the flags of bakeryd (bakeryd.go). Only a bakeryctl with the build tag packaging has this
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
}

//go:embed templates
var templates embed.FS

// outputs has the files that are written for templates, by name.
var outputs = map[string]string{
	"bakeryd.8.md":          "man/bakeryd.8",
	"bakery-lockspace.5.md": "man/bakery-lockspace.5",
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
	format, err := os.ReadFile(s.Format)
	if err != nil {
		return nil, err
	}
	data := map[string]any{
		"version": s.Version, "date": s.Date.Format(coarse), "flags": flags, "format": formatPage(string(format)),
		"commands": s.Bakeryctl.Commands(),
	}
	all, err := template.New("").Funcs(quoting).ParseFS(templates, "templates/*")
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
			made[path] = s.finish(string(md2man.Render([]byte(made[path]))))
		}
	}
	s.Bakeryctl.Long += "\n\n" + fill("bakeryctl.1.md")
	return made, errors.Join(err, s.completions(made), s.pages(s.Bakeryctl, made))
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

// coarse is the format of the date that cobra writes.
const coarse = "Jan 2006"

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

// finish completes a page that md2man has rendered: its characters, its tables, its date, and no hyphenation.
func (s Source) finish(page string) string {
	return titleLine.ReplaceAllStringFunc(plain.Replace(page), func(line string) string {
		return strings.Replace(line, s.Date.Format(coarse), s.Date.Format(time.DateOnly), 1) + "\n.nh\n.ad l"
	})
}

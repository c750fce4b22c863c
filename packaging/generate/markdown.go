package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// elsewhere replaces paths of the source tree by those of the package.
var elsewhere = strings.NewReplacer("`bakery/PROTOCOL.md`", "`/usr/share/doc/bakeryd/PROTOCOL.md`", "`testdata`", "`layout/testdata` of the source")

// lockspacePage returns bakery-lockspace(5), from layout/FORMAT.md.
func lockspacePage(markdown string, r release) (string, error) {
	m := newPage("bakery-lockspace", 5, r.date, r.version, manual)
	m.section("Name")
	m.WriteString("bakery\\-lockspace \\- what is on a disk that hosts share for bakeryd\n")
	lines := strings.Split(strings.TrimSpace(elsewhere.Replace(markdown)), "\n")
	if !strings.HasPrefix(lines[0], "# ") {
		return "", errors.New("the description of the format has no title")
	}
	m.section("Description")
	m.paragraph()
	m.text("This is " + strings.ToLower(lines[0][2:3]) + lines[0][3:] + ".")
	if err := m.markdown(lines[1:]); err != nil {
		return "", err
	}
	m.section("Tools")
	m.text("These show the records of a device, and check them:")
	m.block([]string{"bakeryctl dump /dev/mapper/locks", "bakeryctl dump /dev/mapper/locks --json | jq 'select(.error)'", "bakeryctl check /dev/mapper/locks"})
	m.paragraph()
	m.text("The superblock and its copy, where the stride is 4096 bytes:")
	m.block([]string{"dd if=/dev/mapper/locks iflag=direct bs=4096 count=2 | hexdump -C"})
	m.seeAlso("bakeryd(8)", "bakeryctl(8)")
	return m.String(), nil
}

var numbered = regexp.MustCompile(`^(\d+\.|-) (.*)$`)

// markdown writes the Markdown that the description of the format uses: headings of two levels,
// paragraphs, lists, tables and blocks of code.
func (p *page) markdown(lines []string) error {
	for i := 0; i < len(lines); {
		line, end := lines[i], i+1
		switch {
		case line == "":
		case strings.HasPrefix(line, "## "):
			p.section(strings.Replace(plain(line[3:]), "Example", "Examples", 1))
		case strings.HasPrefix(line, "### "):
			p.subsection(plain(line[4:]))
		case strings.HasPrefix(line, "#"):
			return fmt.Errorf("unsupported level of heading: %q", line)
		case strings.HasPrefix(line, "```"):
			for end < len(lines) && lines[end] != "```" {
				end++
			}
			if end == len(lines) {
				return errors.New("a block of code without an end")
			}
			p.block(lines[i+1 : end])
			end++
		case strings.HasPrefix(line, "    "):
			for end < len(lines) && strings.HasPrefix(lines[end], "    ") {
				end++
			}
			p.block(lines[i:end])
		case strings.HasPrefix(line, "|"):
			for end < len(lines) && strings.HasPrefix(lines[end], "|") {
				end++
			}
			p.table(lines[i:end])
		case numbered.MatchString(line):
			for end < len(lines) && strings.HasPrefix(lines[end], "  ") {
				end++
			}
			m := numbered.FindStringSubmatch(line)
			p.begun = true
			fmt.Fprintf(p, ".IP %s 4\n", strings.Replace(m[1], "-", `\(bu`, 1))
			p.marked(strings.Join(append([]string{m[2]}, lines[i+1:end]...), " "))
		default:
			for end < len(lines) && lines[end] != "" && !strings.HasPrefix(lines[end], "|") && !numbered.MatchString(lines[end]) {
				end++
			}
			p.paragraph()
			p.marked(strings.Join(lines[i:end], " "))
		}
		i = end
	}
	return nil
}

var (
	marks = regexp.MustCompile("(`+)([^`]+)`+|\\*\\*([^*]+)\\*\\*|\\*([^* ][^*]*)\\*")
	links = regexp.MustCompile(`\[([^]]+)\]\([^)]*\)`)
)

// plain removes the markup.
func plain(s string) string { return marks.ReplaceAllString(links.ReplaceAllString(s, "$1"), "$2$3$4") }

// marked writes running text that contains code and emphasis.
func (p *page) marked(s string) {
	var words []string
	for _, w := range strings.Fields(inlineRoff(s)) {
		words = append(words, strings.ReplaceAll(w, `\~`, `\ `))
	}
	p.words(words, func(w string) string { return w })
}

// inlineRoff converts code and emphasis to roff, with unbreakable blanks in them.
func inlineRoff(s string) string {
	s = links.ReplaceAllString(s, "$1")
	var out strings.Builder
	for s != "" {
		m := marks.FindStringSubmatchIndex(s)
		if m == nil {
			out.WriteString(literal(s))
			break
		}
		out.WriteString(literal(s[:m[0]]))
		group := func(n int) string {
			if m[2*n] < 0 {
				return ""
			}
			return strings.ReplaceAll(literal(s[m[2*n]:m[2*n+1]]), " ", `\~`)
		}
		if text := group(2) + group(3); text != "" {
			out.WriteString(`\fB` + text + `\fR`)
		} else {
			out.WriteString(`\fI` + group(4) + `\fR`)
		}
		s = s[m[1]:]
	}
	return out.String()
}

// broad is the width of a table column, in characters, from which its cells are broken into lines.
const broad = 30

func (p *page) table(lines []string) {
	var rows [][]string
	for i, line := range lines {
		if i == 1 {
			continue // the rule below the header
		}
		var cells []string
		for _, cell := range strings.Split(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		rows = append(rows, cells)
	}
	breaks := make([]bool, len(rows[0]))
	for _, cells := range rows {
		for i, cell := range cells {
			breaks[i] = breaks[i] || len(plain(cell)) > broad
		}
	}
	var format []string
	for _, b := range breaks {
		if b {
			format = append(format, "lx")
		} else {
			format = append(format, "l")
		}
	}
	p.paragraph()
	p.WriteString(".TS\n" + strings.Repeat("lb ", len(breaks)-1) + "lb\n" + strings.Join(format, " ") + ".\n")
	for n, cells := range rows {
		for i, cell := range cells {
			if i > 0 {
				p.WriteString("\t")
			}
			text := strings.ReplaceAll(inlineRoff(cell), `\~`, " ")
			if breaks[i] && n > 0 && text != "" {
				text = "T{\n" + guard(text) + "\nT}"
			}
			p.WriteString(text)
		}
		p.WriteString("\n")
	}
	p.WriteString(".TE\n")
}

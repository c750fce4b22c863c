package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// page builds a manual page in man(7) macros.
type page struct {
	strings.Builder
	begun bool // the section has text, so a paragraph needs a macro
}

func newPage(name string, section int, date, version, manual string) *page {
	p := new(page)
	fmt.Fprintf(p, "'\\\" t\n.TH %s %d %s \"bakeryd %s\" \"%s\"\n.nh\n.ad l\n", strings.ToUpper(name), section, date, literal(version), manual)
	return p
}

func (p *page) section(title string) {
	fmt.Fprintf(p, ".SH %s\n", quoted(strings.ToUpper(title)))
	p.begun = false
}

func (p *page) subsection(title string) {
	fmt.Fprintf(p, ".SS %s\n", quoted(title))
	p.begun = false
}

func quoted(s string) string { return `"` + literal(s) + `"` }

// paragraph begins a paragraph, unless a heading just did.
func (p *page) paragraph() {
	if p.begun {
		p.WriteString(".PP\n")
	}
	p.begun = true
}

var special = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`, `"`, `\(dq`)

// literal escapes text that must be rendered unchanged.
func literal(s string) string {
	var out strings.Builder
	for _, r := range special.Replace(s) {
		if r < utf8.RuneSelf {
			out.WriteRune(r)
		} else {
			fmt.Fprintf(&out, `\[u%04X]`, r)
		}
	}
	return out.String()
}

// guard keeps a line of text from being read as a request.
func guard(line string) string {
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		return `\&` + line
	}
	return line
}

var (
	optionWord = regexp.MustCompile(`^([("]*)(--?[a-zA-Z][a-z-]*)(.*)$`)
	manualWord = regexp.MustCompile(`^([("]*)([a-z_][a-z0-9_.-]*)(\([1-8]\))(.*)$`)
)

// word makes flags and the names of other manual pages bold.
func word(w string) string {
	for _, re := range []*regexp.Regexp{optionWord, manualWord} {
		if m := re.FindStringSubmatch(w); m != nil {
			return literal(m[1]) + `\fB` + literal(m[2]) + `\fR` + literal(strings.Join(m[3:], ""))
		}
	}
	return literal(w)
}

// text writes running text; each sentence begins on a new line.
func (p *page) text(s string) { p.words(strings.Fields(s), word) }

func (p *page) words(words []string, show func(string) string) {
	p.begun = true
	width := 0
	for i, w := range words {
		shown := show(w)
		end := i+1 == len(words)
		if width == 0 {
			shown = guard(shown)
		}
		p.WriteString(shown)
		width += len(shown) + 1
		switch {
		case end, strings.ContainsAny(w[len(w)-1:], ".!?"), width+len(show(words[min(i+1, len(words)-1)])) > 76:
			p.WriteString("\n")
			width = 0
		default:
			p.WriteString(" ")
		}
	}
}

// block writes lines unchanged.
func (p *page) block(lines []string) {
	p.paragraph()
	p.WriteString(".RS 2\n.nf\n")
	for _, line := range unindent(lines) {
		if line == "" {
			p.WriteString(".sp\n")
			continue
		}
		p.WriteString(guard(literal(line)) + "\n")
	}
	p.WriteString(".fi\n.RE\n")
}

func unindent(lines []string) []string {
	least := 1 << 20
	for _, line := range lines {
		if line != "" {
			least = min(least, indent(line))
		}
	}
	out := make([]string, len(lines))
	for i, line := range lines {
		if line != "" {
			out[i] = line[least:]
		}
	}
	return out
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// item writes a term, which is already roff, and its meaning.
func (p *page) item(term, about string) {
	p.begun = true
	p.WriteString(".TP\n" + guard(term) + "\n")
	if about == "" {
		about = "Likewise."
	}
	p.text(about)
}

var (
	listed = regexp.MustCompile(`^( *)(\S+(?: \S+)*)  +(\S.*)$`)
	dashed = regexp.MustCompile(`^ *- (\S.*)$`)
)

// prose writes the text of a help: paragraphs, lists of terms and meanings, dashed lists, and other
// indented lines unchanged.
func (p *page) prose(lines []string) {
	for i := 0; i < len(lines); {
		if lines[i] == "" {
			i++
			continue
		}
		end := i
		for end < len(lines) && lines[end] != "" {
			end++
		}
		p.chunk(lines[i:end])
		i = end
	}
}

// chunk writes lines that have no blank line among them.
func (p *page) chunk(lines []string) {
	for i := 0; i < len(lines); {
		end := i + 1
		switch {
		case dashed.MatchString(lines[i]):
			for end < len(lines) && indent(lines[end]) > indent(lines[i]) {
				end++
			}
			all := append([]string{dashed.FindStringSubmatch(lines[i])[1]}, lines[i+1:end]...)
			p.begun = true
			p.WriteString(".IP \\(bu 2\n")
			p.text(strings.Join(all, " "))
		case table(lines[i:]):
			end = len(lines)
			p.block(lines[i:])
		case columns(lines[i:]) > 0:
			end = i + columns(lines[i:])
			p.list(lines[i:end])
		case indent(lines[i]) > 0:
			for end < len(lines) && indent(lines[end]) > 0 {
				end++
			}
			p.block(lines[i:end])
		default:
			for end < len(lines) && indent(lines[end]) == 0 {
				end++
			}
			p.paragraph()
			p.text(strings.Join(lines[i:end], " "))
		}
		i = end
	}
}

var gap = regexp.MustCompile(`  +`)

// table reports whether lines have more than two columns.
func table(lines []string) bool {
	wide := 0
	for _, line := range lines {
		if len(gap.FindAllString(strings.TrimSpace(line), -1)) > 1 {
			wide++
		}
	}
	return wide > len(lines)/2
}

// columns returns how many lines form a list of terms and meanings, from the first on; 0 if none.
func columns(lines []string) int {
	if !listed.MatchString(lines[0]) {
		return 0
	}
	n := 0
	for _, line := range lines {
		if indent(line) < indent(lines[0]) || indent(line) == indent(lines[0]) && !listed.MatchString(line) {
			break
		}
		n++
	}
	return n
}

func (p *page) list(lines []string) {
	for i := 0; i < len(lines); {
		m := listed.FindStringSubmatch(lines[i])
		end, about := i+1, m[3]
		for end < len(lines) && indent(lines[end]) > indent(lines[i]) {
			about += " " + strings.TrimSpace(lines[end])
			end++
		}
		p.item(`\fB`+literal(m[2])+`\fR`, about)
		i = end
	}
}

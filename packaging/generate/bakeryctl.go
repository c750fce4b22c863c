package generate

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// completions adds the completions of bakeryctl.
func (s Source) completions(made map[string]string) error {
	var bash, zsh, fish strings.Builder
	root := s.Bakeryctl
	err := errors.Join(
		root.GenBashCompletionV2(&bash, true),
		root.GenZshCompletion(&zsh),
		root.GenFishCompletion(&fish, true),
	)
	made["completion/bash/bakeryctl"] = bash.String()
	made["completion/zsh/_bakeryctl"] = zsh.String()
	made["completion/fish/bakeryctl.fish"] = fish.String()
	return err
}

// pages adds the pages of a command and of those below it.
func (s Source) pages(c *cobra.Command, made map[string]string) error {
	if c.HasAvailableSubCommands() {
		c.Use += " COMMAND"
	}
	c.Long = markdown(c.Long)
	c.DisableAutoGenTag = true
	c.NonInheritedFlags().VisitAll(showValue)
	var page strings.Builder
	header := doc.GenManHeader{Date: &s.Date, Source: "bakeryd " + s.Version, Manual: "Locks on a shared disk"}
	err := doc.GenMan(c, &header, &page)
	text := strings.TrimSpace(optionLine.ReplaceAllString(page.String(), ".TP\n$1 \\fI$2\\fP\n")) + seeAlso
	made["man/"+strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"] = s.finish(text)
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			err = errors.Join(err, s.pages(sub, made))
		}
	}
	return err
}

// showValue makes cobra show the name of a flag's value, and the default at the end of the text, as in a help.
func showValue(f *pflag.Flag) {
	switch f.DefValue {
	case "false":
		return
	case "", "0", "[]":
	default:
		f.Usage += fmt.Sprintf(" (default %s)", f.DefValue)
	}
	f.DefValue, _ = pflag.UnquoteUsage(f)
}

// optionLine matches what cobra has for an option: a paragraph with a tab in it, and "[=false]", or a value in quotes.
var optionLine = regexp.MustCompile(`(?m)(?:^\.PP\n)?^(\\fB-.*\\fP)(?:\[=false\]|="?(.*?)"?)\n\t`)

const seeAlso = `, \fBbakeryd(8)\fP, \fBbakery-lockspace(5)\fP, \fBflock(1)\fP

.PP
Guides: /usr/share/doc/bakeryd/guides
.br
Project: https://github.com/bakeryd/bakeryd
`

var (
	definition = regexp.MustCompile(`(?m)^  (\S+(?: \S+)*)  +(\S.*(?:\n {3,}\S.*)*)$`)
	newline    = regexp.MustCompile(`\n +`)
)

// markdown returns the text of a help as Markdown. Its lists of terms and meanings become definitions.
func markdown(help string) string {
	help = strings.Replace(help, "Exit codes:\n", "# EXIT STATUS\n", 1)
	help = strings.ReplaceAll(help, ":\n  - ", ":\n\n  - ")
	return definition.ReplaceAllStringFunc(help, func(item string) string {
		return newline.ReplaceAllString(definition.ReplaceAllString(item, "\n**$1**\n: $2"), " ") + "\n"
	})
}

// Command generate writes the package files that derive from the programs: the manual, bakeryd.env
// and the completions. It runs bakeryd and bakeryctl for their help, and reads layout/FORMAT.md. It
// knows nothing of packages. Begin with run; pages.go has the texts of the pages.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	var r release
	flag.StringVar(&r.version, "version", "(devel)", "the version that pages bear")
	flag.StringVar(&r.date, "date", "", "their date, YYYY-MM-DD")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: generate [-version V] -date YYYY-MM-DD DIRECTORY-OF-PROGRAMS FORMAT.md OUT")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 3 || r.date == "" {
		flag.Usage()
		os.Exit(64)
	}
	if err := run(r, flag.Arg(0), flag.Arg(1), flag.Arg(2)); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// run writes all generated files below out.
func run(r release, bin, format, out string) error {
	made, err := generate(r, bin, format)
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

// generate returns the generated files, by path.
func generate(r release, bin, format string) (map[string]string, error) {
	p, err := askPrograms(bin)
	if err != nil {
		return nil, err
	}
	markdown, err := os.ReadFile(format)
	if err != nil {
		return nil, err
	}
	lockspace, err := lockspacePage(string(markdown), r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", format, err)
	}
	made := map[string]string{
		"man/bakeryd.8":                bakerydPage(p, r),
		"man/bakeryctl.8":              bakeryctlPage(p, r),
		"man/bakery-lockspace.5":       lockspace,
		"bakeryd.env":                  settingsFile(p.bakeryd),
		"completion/bash/bakeryd":      bashCompletion(p.bakeryd),
		"completion/zsh/_bakeryd":      zshCompletion(p.bakeryd),
		"completion/fish/bakeryd.fish": fishCompletion(p.bakeryd),
	}
	for shell, name := range map[string]string{"bash": "bakeryctl", "zsh": "_bakeryctl", "fish": "bakeryctl.fish"} {
		text, err := ask(filepath.Join(bin, "bakeryctl"), "completion", shell)
		if err != nil {
			return nil, err
		}
		made["completion/"+shell+"/"+name] = text
	}
	return made, nil
}

// askPrograms reads all help texts.
func askPrograms(bin string) (p programs, err error) {
	if p.bakeryd, err = learn(filepath.Join(bin, "bakeryd"), ""); err != nil {
		return p, err
	}
	ctl := filepath.Join(bin, "bakeryctl")
	if p.bakeryctl, err = learn(ctl, ""); err != nil {
		return p, err
	}
	for name, topic := range map[string]**command{"exit-codes": &p.exitCodes, "environment": &p.environment} {
		text, err := ask(ctl, "help", name)
		if err != nil {
			return p, err
		}
		if *topic, _, err = parseHelp(text); err != nil {
			return p, fmt.Errorf("help %s: %w", name, err)
		}
	}
	return p, nil
}

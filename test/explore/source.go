package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// listed is a package in the output of go list.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	Standard        bool
	Module          *struct {
		Path, Dir, Version, GoVersion string
		Main                          bool
		Replace                       *struct{ Path, Version string }
	}

	// Files of other kinds.
	CgoFiles, CFiles, CXXFiles, HFiles, SFiles, SysoFiles, EmbedFiles []string
}

// sources returns everything that the result of an exploration depends on, with a hash or version
// of each. The Go toolchain and the other tools are not among it: the quick scenarios, whose
// states are compared at every run, show whether they matter.
func (x explorer) sources(s subject) (map[string]string, error) {
	all := map[string]string{"command": strings.Join(s.full, " ")}
	if s.target == nil {
		return all, x.plainSources(s, all)
	}
	cmd := x.command(append([]string{"go", "list", "-deps", "-test", "-json"}, s.target...)...)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the sources of %s: %w", s.dir, err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("list the sources of %s: %w", s.dir, err)
		}
		if err := x.addPackage(all, p); err != nil {
			return nil, err
		}
	}
}

// addPackage adds the files of a package of this module, or the version of another module.
func (x explorer) addPackage(all map[string]string, p listed) error {
	within := strings.HasPrefix(p.Dir, x.root+"/")
	switch {
	case p.Standard || strings.HasSuffix(p.ImportPath, ".test"): // the latter is generated
		return nil
	case p.Module == nil && !within: // otherwise its files are the target
		return fmt.Errorf("package %s belongs to no module", p.ImportPath)
	case p.Module != nil && !p.Module.Main:
		m, version := p.Module, p.Module.Version
		if m.Replace != nil {
			m.Path, version = m.Replace.Path, m.Replace.Version
		}
		if version == "" || within {
			return fmt.Errorf("package %s comes from %s, whose changes its version does not show", p.ImportPath, p.Dir)
		}
		all[m.Path] = version
		return nil
	}
	if p.Module != nil {
		all["language"] = "go" + p.Module.GoVersion
	}
	for _, file := range slices.Concat(p.CgoFiles, p.CFiles, p.CXXFiles, p.HFiles, p.SFiles, p.SysoFiles, p.EmbedFiles) {
		if err := x.add(all, filepath.Join(p.Dir, file), whole); err != nil {
			return err
		}
	}
	for _, file := range p.GoFiles {
		if err := x.add(all, filepath.Join(p.Dir, file), tokens); err != nil {
			return err
		}
	}
	return nil
}

func (x explorer) plainSources(s subject, all map[string]string) error {
	for _, pattern := range s.files {
		found, err := filepath.Glob(filepath.Join(x.root, s.dir, pattern))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("no source %s in %s", pattern, s.dir)
		}
		for _, file := range found {
			if err := x.add(all, file, whole); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds the hash of the part of a file that matters.
func (x explorer) add(all map[string]string, file string, matters func([]byte) ([]byte, error)) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	name, err := filepath.Rel(x.root, file)
	if err != nil {
		return err
	}
	if data, err = matters(data); err != nil {
		return fmt.Errorf("scan %s: %w", name, err)
	}
	all[filepath.ToSlash(name)] = fmt.Sprintf("%x", sha256.Sum256(data))
	return nil
}

func whole(data []byte) ([]byte, error) { return data, nil }

// tokens returns a Go file without its comments, other than directives, and its layout: rewording
// a comment does not change what is explored.
func tokens(data []byte) ([]byte, error) {
	var (
		s      scanner.Scanner
		errs   scanner.ErrorList
		result []byte
	)
	s.Init(token.NewFileSet().AddFile("", -1, len(data)), data, errs.Add, scanner.ScanComments)
	for {
		_, tok, lit := s.Scan()
		switch {
		case tok == token.EOF:
			return result, errs.Err()
		case tok == token.COMMENT && !strings.HasPrefix(lit, "//go:"):
		default:
			result = fmt.Appendf(result, "%v %q\n", tok, lit)
		}
	}
}

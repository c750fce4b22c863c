// Command overlay writes an overlay for go build: a runtime without randomness, so that a
// simulation is reproducible, and, if asked for, a fault in the project's own code (faults.go).
//
//	overlay -out DIR [-fault NAME]    writes DIR/overlay.json
//	overlay -faults                   lists the faults
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/build"
	"os"
	"path/filepath"
	"strings"
)

// patch replaces text that must occur exactly once.
type patch struct {
	file, old, new string
}

// replaced writes the patched files to dir, and returns their paths.
func replaced(dir, root string, patches []patch) (map[string]string, error) {
	text, files := map[string]string{}, map[string]string{}
	for _, p := range patches {
		path := filepath.Join(root, p.file)
		if _, ok := text[path]; !ok {
			b, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			text[path] = string(b)
		}
		if n := strings.Count(text[path], p.old); n != 1 {
			return nil, fmt.Errorf("%s: %q occurs %d times, want once", path, p.old, n)
		}
		text[path] = strings.Replace(text[path], p.old, p.new, 1)
	}
	for path, s := range text {
		out := filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "_"))
		if err := os.WriteFile(out, []byte(s), 0o600); err != nil {
			return nil, err
		}
		files[path] = out
	}
	return files, nil
}

func run() error {
	out := flag.String("out", "", "directory for the overlay")
	name := flag.String("fault", "", "fault to put into the project's code")
	list := flag.Bool("faults", false, "list the faults")
	flag.Parse()
	if *list {
		for _, f := range faults {
			stays := "-"
			if f.stays {
				stays = "-standing"
			}
			fmt.Printf("%s\t%s\t%s\t%s\n", f.name, f.caughtAs, stays, f.what)
		}
		for _, f := range memberFaults {
			fmt.Printf("%s\t%s\t-several\t%s\n", f.name, f.caughtAs, f.what)
		}
		return nil
	}
	if *out == "" {
		return errors.New("-out is missing")
	}
	dir, err := filepath.Abs(*out)
	if err != nil {
		return err
	}
	all, err := replaced(dir, filepath.Join(build.Default.GOROOT, "src"), runtimePatches)
	if err != nil {
		return fmt.Errorf("patch the runtime of this Go version: %w", err)
	}
	if *name != "" {
		f, err := faultNamed(*name)
		if err != nil {
			return err
		}
		here, err := os.Getwd()
		if err != nil {
			return err
		}
		ours, err := replaced(dir, here, f.patches)
		if err != nil {
			return fmt.Errorf("fault %s: %w", *name, err)
		}
		for path, to := range ours {
			all[path] = to
		}
	}
	b, err := json.MarshalIndent(map[string]any{"Replace": all}, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "overlay.json"), b, 0o600)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "overlay:", err)
		os.Exit(1)
	}
}

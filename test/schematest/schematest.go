// Package schematest checks real output against the schemas in packaging/schema. It is strict: a
// member or a value that the schema does not list is an error, while readers of the schemas accept
// it.
package schematest

import (
	"bytes"
	"fmt"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/bakeryd/bakeryd/packaging/schema"
)

// Set is the schemas of one file.
type Set struct {
	file     string
	document any
	compiler *jsonschema.Compiler

	mu    sync.Mutex // guards known
	known map[string]*jsonschema.Schema
}

// Open returns the schemas of a file, in which every member and value must be listed.
func Open(file string) (*Set, error) {
	f, err := schema.Files.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := &Set{file: file, compiler: jsonschema.NewCompiler(), known: map[string]*jsonschema.Schema{}}
	if s.document, err = jsonschema.UnmarshalJSON(f); err != nil {
		return nil, err
	}
	restrict(s.document)
	s.compiler.AssertFormat()
	s.compiler.AssertContent()
	return s, s.compiler.AddResource(file, s.document)
}

// restrict makes a schema strict.
func restrict(v any) {
	switch v := v.(type) {
	case []any:
		for _, each := range v {
			restrict(each)
		}
	case map[string]any:
		_, open := v["properties"].(map[string]any)
		if _, given := v["additionalProperties"]; v["type"] == "object" && open && !given {
			v["additionalProperties"] = false
		}
		if values, ok := v[schema.Extensible].([]any); ok {
			v["enum"] = values
		}
		for _, each := range v {
			restrict(each)
		}
	}
}

// Check checks a JSON value against the schema at a place of the file: empty, or a JSON pointer.
func (s *Set) Check(place string, text []byte) error {
	compiled, err := s.at(place)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err == nil {
		err = compiled.Validate(v)
	}
	if err != nil {
		return fmt.Errorf("%s%s: %.2000s\nin %.500s", s.file, place, err.Error(), text)
	}
	return nil
}

func (s *Set) at(place string) (*jsonschema.Schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if compiled := s.known[place]; compiled != nil {
		return compiled, nil
	}
	compiled, err := s.compiler.Compile(s.file + "#" + place)
	s.known[place] = compiled
	return compiled, err
}

// lines checks each line of a stream. The last one may be incomplete.
func lines(text []byte, check func(line []byte) error) error {
	for {
		line, rest, complete := bytes.Cut(text, []byte("\n"))
		if !complete {
			return nil
		}
		if err := check(line); err != nil {
			return err
		}
		text = rest
	}
}

var outputs sync.Map // of functions that return a Set, by file

// Output checks the output of a command of bakeryctl.
func Output(command string, text []byte) error {
	file := "bakeryctl-" + strings.ReplaceAll(command, " ", "-") + ".json"
	open, _ := outputs.LoadOrStore(file, sync.OnceValues(func() (*Set, error) { return Open(file) }))
	s, err := open.(func() (*Set, error))()
	if err != nil {
		return err
	}
	if command == "dump" || command == "events" {
		return lines(text, func(line []byte) error { return s.Check("", line) })
	}
	return s.Check("", text)
}

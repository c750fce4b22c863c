// Package schema has the JSON Schemas of bakeryd's answers and bakeryctl's output, and writes them:
// they derive from the Go types of both and their comments. README.md describes the files. Only a
// bakeryctl with the build tag packaging writes them: only its package main, and package server,
// know the types. Start reading at Write.
package schema

import (
	"embed"
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/invopop/jsonschema"
)

// Files has the schemas of the repository.
//
//go:embed *.json
var Files embed.FS

// Extensible is the keyword for the known values of a member that may get others: a reader must
// expect values that it does not know.
const Extensible = "x-extensible-enum"

// Command is a command of bakeryctl that has --json.
type Command struct {
	Path   string // disk replace
	Lines  bool   // one JSON object per line
	Output []any  // the types of its output, alternatives
	Inside []any  // the types of a member that is an interface, which refers to them by a tag
}

// Write writes the schemas of commands and operations into a directory. The working directory is
// the root of the source.
func Write(dir string, commands []Command, about string, operations []Operation) error {
	src, err := readSource("blockdev", "cmd/bakeryctl", "daemon", "layout", "packaging/schema")
	if err != nil {
		return err
	}
	version, err := os.ReadFile("packaging/VERSION")
	if err != nil {
		return err
	}
	made := map[string]any{"openapi.json": src.openAPI(strings.TrimSpace(string(version)), about, operations)}
	for _, c := range commands {
		made["bakeryctl-"+strings.ReplaceAll(c.Path, " ", "-")+".json"] = src.command(c)
	}
	for name, document := range made {
		text, err := json.MarshalIndent(document, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (s *source) command(c Command) *jsonschema.Schema {
	d := s.definitions()
	root := &jsonschema.Schema{Version: jsonschema.Version, Title: "bakeryctl " + c.Path + " --json"}
	if c.Lines {
		root.Description = "A line of the output."
	}
	for _, v := range c.Output {
		root.AnyOf = append(root.AnyOf, d.answer(v))
	}
	if len(root.AnyOf) == 1 {
		root.Ref, root.AnyOf = root.AnyOf[0].Ref, nil
	}
	for _, v := range c.Inside {
		d.answer(v)
	}
	root.Definitions = d.all
	return root
}

// definitions are the types of one document.
type definitions struct {
	*source
	all   jsonschema.Definitions
	types map[string]reflect.Type // by the names in all

	refusals object // responses of the OpenAPI document, by name
}

func (s *source) definitions() *definitions {
	return &definitions{s, jsonschema.Definitions{}, map[string]reflect.Type{}, object{}}
}

// answer adds the type of v, which bakeryd or bakeryctl writes: members without omitempty are
// always there.
func (d *definitions) answer(v any) *jsonschema.Schema {
	r := d.reflector()
	r.AdditionalFields = written
	return d.add(r, v)
}

// request adds the type of v, which bakeryd reads: only members with the tag are required.
func (d *definitions) request(v any) *jsonschema.Schema {
	r := d.reflector()
	r.RequiredFromJSONSchemaTags = true
	s := d.add(r, v)
	for name, of := range d.all {
		if strings.HasSuffix(name, "Request") {
			limit(name, of)
		}
	}
	return s
}

func (d *definitions) add(r *jsonschema.Reflector, v any) *jsonschema.Schema {
	root := r.Reflect(v)
	maps.Copy(d.all, root.Definitions)
	root.Version, root.Definitions = "", nil
	return root
}

func (d *definitions) reflector() *jsonschema.Reflector {
	return &jsonschema.Reflector{Anonymous: true, AllowAdditionalProperties: true, Namer: d.name, Mapper: d.mapped, LookupComment: d.comment}
}

// known are types whose names other types have, too.
var known = map[string]string{"api.Event": "LockEvent"}

// name returns the name of a type in its document.
func (d *definitions) name(t reflect.Type) string {
	name := schemaName(t)
	if name == "" {
		return ""
	}
	if d.types[name] == nil {
		d.types[name] = t
	}
	if d.types[name] != t {
		panic(fmt.Sprintf("%v and %v have the same name %s: give one another", t, d.types[name], name))
	}
	return name
}

// schemaName returns the name of a type in all documents.
func schemaName(t reflect.Type) string {
	name := strings.TrimSuffix(t.Name(), "JSON")
	if other, ok := known[t.String()]; ok || name == "" {
		return other
	}
	return string(unicode.ToUpper(rune(name[0]))) + name[1:]
}

// mapped returns the schemas of types that are texts in JSON.
func (d *definitions) mapped(t reflect.Type) *jsonschema.Schema {
	texts, isText := reflect.Zero(t).Interface().(encoding.TextMarshaler)
	switch values := d.constants[typeName(t)]; {
	case t.PkgPath() == "time":
	case t.Kind() == reflect.String && len(values) > 0:
		return extensible(values)
	case isText && t.Kind() == reflect.Uint8: // the values that can be marshalled
		s := &jsonschema.Schema{Type: "string"}
		for i := range 256 {
			v := reflect.New(t).Elem()
			v.SetUint(uint64(i))
			if text, err := v.Interface().(encoding.TextMarshaler).MarshalText(); err == nil {
				s.Enum = append(s.Enum, string(text))
			}
		}
		return s
	case isText && t.Kind() == reflect.Uint64:
		if zero, err := texts.MarshalText(); err == nil && len(zero) == 16 {
			return &jsonschema.Schema{Type: "string", Pattern: "^[0-9a-f]{16}$"}
		}
		return &jsonschema.Schema{Type: "string", Pattern: decimal}
	case isText:
		return &jsonschema.Schema{Type: "string", Format: "uuid"}
	}
	return nil
}

// decimal is the pattern of a number of 64 bits, which is a text in JSON.
const decimal = "^[0-9]+$"

// written returns the fields of a type that is written, as they would be with further tags: for
// pointers that may be null, and for numbers that are texts.
func written(t reflect.Type) (changed []reflect.StructField) {
	for f := range t.Fields() {
		options := strings.Split(f.Tag.Get("json"), ",")
		tag := ""
		switch {
		case f.Anonymous || options[0] == "-" || options[0] == "":
		case slices.Contains(options, "string"):
			tag = "pattern=" + decimal
		case f.Type.Kind() == reflect.Pointer && len(options) == 1:
			tag = "nullable"
		}
		if tag != "" {
			f.Tag += reflect.StructTag(` jsonschema:"` + tag + `"`)
			changed = append(changed, f)
		}
	}
	return changed
}

// extensible returns the schema of a text with known values.
func extensible(values []constant) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	var names, meanings []string
	for _, v := range values {
		names, meanings = append(names, v.value), append(meanings, v.meaning)
	}
	s.Extras = map[string]any{Extensible: names}
	if slices.ContainsFunc(meanings, func(text string) bool { return text != "" }) {
		s.Extras["x-enum-descriptions"] = meanings
	}
	return s
}

package schema

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// module is the path of this module.
const module = "github.com/bakeryd/bakeryd"

// source is what reflection does not show of the types of the module.
type source struct {
	comments  map[string]string     // by type, or by type and field: import/path.Type.Field
	constants map[string][]constant // by type; those without one by import/path and a dot
}

// constant is a text with a name.
type constant struct{ name, value, meaning string }

// readSource reads the files below directories of the working directory, which is the root of the
// module.
func readSource(dirs ...string) (*source, error) {
	s := &source{map[string]string{}, map[string][]constant{}}
	for _, dir := range dirs {
		if err := filepath.WalkDir(dir, s.read); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *source) read(name string, d fs.DirEntry, err error) error {
	if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
		return err
	}
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	pkg := path.Join(module, filepath.Dir(name))
	if f.Name.Name == "main" {
		pkg = "main" // as reflection has it
	}
	s.declarations(pkg, f)
	return nil
}

func (s *source) declarations(pkg string, f *ast.File) {
	for _, d := range f.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				name := pkg + "." + spec.Name.Name
				s.comments[name] = either(spec.Doc, decl.Doc)
				if t, ok := spec.Type.(*ast.StructType); ok {
					s.fields(name, t)
				}
			case *ast.ValueSpec:
				if decl.Tok == token.CONST {
					s.values(pkg, spec)
				}
			}
		}
	}
}

func (s *source) fields(of string, t *ast.StructType) {
	for _, f := range t.Fields.List {
		for _, name := range f.Names {
			s.comments[of+"."+name.Name] = either(f.Doc, f.Comment)
		}
	}
}

// values adds a constant that is a text.
func (s *source) values(pkg string, spec *ast.ValueSpec) {
	if len(spec.Values) != 1 {
		return
	}
	if text, ok := spec.Values[0].(*ast.BasicLit); ok && text.Kind == token.STRING {
		value, err := strconv.Unquote(text.Value)
		if err != nil {
			return
		}
		name := pkg + "."
		if of, ok := spec.Type.(*ast.Ident); ok {
			name += of.Name
		}
		meaning := strings.TrimPrefix(either(spec.Doc, spec.Comment), spec.Names[0].Name+" is ")
		s.constants[name] = append(s.constants[name], constant{spec.Names[0].Name, value, meaning})
	}
}

// either returns the text of a comment before or behind a declaration, in one line.
func either(before, behind *ast.CommentGroup) string {
	text := before.Text()
	if text == "" {
		text = behind.Text()
	}
	return strings.Join(strings.Fields(text), " ")
}

func typeName(t reflect.Type) string { return t.PkgPath() + "." + t.Name() }

var nothing = regexp.MustCompile(`\bnil\b`)

// comment returns the comment of a type, or of its field. A field without one has the meaning of
// all members with its name.
func (s *source) comment(t reflect.Type, field string) string {
	if field == "" {
		text := s.comments[typeName(t)]
		if rest, ok := strings.CutPrefix(text, t.Name()+" "); ok {
			text = schemaName(t) + " " + rest
		}
		return nothing.ReplaceAllString(text, "absent")
	}
	f, _ := t.FieldByName(field)
	member, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	text := s.comments[typeName(t)+"."+field]
	if rest, ok := strings.CutPrefix(text, field+" "); ok {
		text = member + " " + rest
	}
	text = cmp.Or(text, meanings[member])
	if nullable(f) {
		return nothing.ReplaceAllString(text, "null")
	}
	return nothing.ReplaceAllString(text, "absent")
}

// nullable reports whether the member of a field is written if there is none, as null.
func nullable(f reflect.StructField) bool {
	_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return f.Type.Kind() == reflect.Pointer && options == "" || strings.Contains(f.Tag.Get("jsonschema"), "nullable")
}

// meanings are those of members that mean the same in every type.
var meanings = map[string]string{
	"boot_id":        "id of the boot of the host, from /proc/sys/kernel/random/boot_id; empty if not known",
	"by_host_name":   "name of the host by_host",
	"clients":        "number of clients",
	"command":        "command of the client, shortened; empty if unknown",
	"count":          "number of operations",
	"creation":       "number of the creation of the lock: another one if it is removed and created again",
	"device":         "path of the device, or of several, with commas between",
	"elapsed_ms":     "duration, in milliseconds",
	"epoch":          "number of the list of member disks, which grows with each change",
	"error":          "why it failed",
	"fence_after_ms": "how long a host may be silent before others fence it, in milliseconds",
	"fence_after_us": "how long a host may be silent before others fence it, in microseconds",
	"floor_p50_us":   "median of the floor, in microseconds",
	"formatted":      "time when the lockspace was formatted",
	"generation":     "number of claims of the host id, in a lockspace on several disks",
	"held_ms":        "duration of the hold, in milliseconds",
	"host":           "id of the host",
	"host_name":      "name of the host; empty if unknown",
	"id":             "id of the host",
	"incarnation":    "number of this join of the host, random and never used again",
	"kind":           "what it is about",
	"lease_ms":       "how long a host may continue without a renewal of its lease, in milliseconds",
	"lease_us":       "how long a host may continue without a renewal of its lease, in microseconds",
	"lock_number":    "number of the lock: its place on the disk",
	"machine_id":     "id of the machine, from /etc/machine-id; empty if not known",
	"max_us":         "the longest, in microseconds",
	"mean_us":        "mean, in microseconds",
	"message":        "text for people",
	"mode":           "mode of the request or the hold",
	"name":           "name of the lock: 1 to 128 bytes of UTF-8 without control characters",
	"offset":         "place on the device, in bytes",
	"outcome":        "how it ended",
	"p50_us":         "median, in microseconds",
	"p90_us":         "90 % take at most this time, in microseconds",
	"p99_9_us":       "99.9 % take at most this time, in microseconds",
	"p999_us":        "99.9 % take at most this time, in microseconds",
	"p99_us":         "99 % take at most this time, in microseconds",
	"per_second":     "number of times per second",
	"permits":        "limit of exclusive holders",
	"phase":          "step of the protocol that the slot of the host shows",
	"pid":            "process id of the client; 0 if unknown",
	"policy":         "when a silent host counts as dead",
	"position":       "position of the member disk, from 1",
	"disk":           "position of the member disk, from 1",
	"pr_key":         "key of its SCSI reservation; 0 if none",
	"ratio":          "ratio of the medians",
	"read_horizon":   "highest host id whose slots the host reads",
	"sequence":       "number of the last write of the record by its host",
	"severity":       "how bad it is",
	"since":          "when it began",
	"state":          "state",
	"stride":         "bytes from one record to the next",
	"text":           "text for people",
	"ticket":         "ticket of the host: the lower one is served first",
	"times":          "the times in the texts",
	"token":          "fencing token of the hold",
	"toy_p50_us":     "median of the toy, in microseconds",
	"toy_per_second": "number of times per second, with the toy",
	"toy_wait":       "the same with the toy",
	"uuid":           "UUID of the lockspace, or of the member disk",
	"verdict":        "rating",
	"watchdog_armed": "whether a hardware watchdog of the host is armed",
	"watchdog_ms":    "timeout of that watchdog",
}

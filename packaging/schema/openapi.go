package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/bakeryd/bakeryd/daemon/api"
)

// Operation is a call of the API.
type Operation struct {
	Pattern  string   // method and path of its route
	Summary  string   // a line
	Result   string   // what the answer is
	Text     string   // more; may be empty
	Query    any      // a value of the type that has the parameters; nil: none
	Body     any      // a value of the type of the body; nil: none
	Answer   any      // a value of the type of the answer, or of a line; nil: no JSON
	Media    string   // media type of the answer; empty: application/json
	Refusals []string // the codes of refusals, but for those that every call has
	Link     bool     // the connection becomes a link: Body and Answer are its lines
}

// always are the codes that every call may be refused with.
var always = []string{api.CodeInvalid, api.CodeForbidden, api.CodeUnavailable, api.CodeDevice}

// refusal is the answer to a call that was refused.
type refusal struct {
	Error api.Error `json:"error"` // why
}

type object = map[string]any

// openAPI returns the OpenAPI document of operations.
func (s *source) openAPI(version, about string, operations []Operation) any {
	d := s.definitions()
	paths := map[string]object{}
	for _, o := range operations {
		method, path, _ := strings.Cut(o.Pattern, " ")
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path][strings.ToLower(method)] = d.operation(o)
	}
	d.enumerate("Error", "code", api.Codes(), true)
	d.enumerate("LockEvent", "code", api.Codes(), true)
	d.enumerate("LockEvent", "event", api.Kinds(), false)
	d.require(api.Kinds())
	document := struct {
		OpenAPI    string            `json:"openapi"`
		Dialect    string            `json:"jsonSchemaDialect"`
		Info       object            `json:"info"`
		Servers    []object          `json:"servers"`
		Paths      map[string]object `json:"paths"`
		Components object            `json:"components"`
	}{
		"3.1.0", jsonschema.Version,
		object{"title": "bakeryd", "version": version, "description": about, "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		[]object{{"url": "http://bakery", "description": "the Unix socket /run/bakery/bakeryd.sock"}},
		paths, object{"schemas": d.all, "responses": d.refusals},
	}
	text, err := json.Marshal(document)
	if err != nil {
		panic(err) // of types, not of input
	}
	return json.RawMessage(strings.ReplaceAll(string(text), `"#/$defs/`, `"#/components/schemas/`))
}

func (d *definitions) operation(o Operation) object {
	_, path, _ := strings.Cut(o.Pattern, " ")
	op := object{"summary": o.Summary, "operationId": operationID(o.Pattern), "responses": d.responses(o)}
	if o.Text != "" {
		op["description"] = o.Text
	}
	if o.Query != nil {
		op["parameters"] = d.parameters(o.Query)
	}
	switch {
	case o.Link:
		op["x-client-line"], op["x-server-line"] = d.request(o.Body), d.answer(o.Answer)
		upgrade := object{"description": "the connection is a link: lines of JSON in both directions, x-client-line and x-server-line"}
		op["responses"].(object)["101"] = upgrade
		delete(op["responses"].(object), "200")
		op["responses"].(object)["426"] = d.refused([]string{api.CodeInvalid})
	case o.Body != nil:
		op["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": d.request(o.Body)}}}
	}
	if strings.HasPrefix(path, "/page/") {
		op["x-internal"] = true
	}
	return op
}

// operationID returns getEvents for GET /v1/events.
func operationID(pattern string) string {
	id := ""
	for i, word := range strings.FieldsFunc(strings.Replace(pattern, "/v1/", "/", 1), func(r rune) bool { return r == ' ' || r == '/' }) {
		word = strings.ToLower(word)
		if i > 0 {
			word = strings.ToUpper(word[:1]) + word[1:]
		}
		id += word
	}
	return id
}

// parameters returns the members of a type as those of a query.
func (d *definitions) parameters(query any) (all []object) {
	r := d.reflector()
	r.ExpandedStruct = true
	r.RequiredFromJSONSchemaTags = true
	s := r.Reflect(query)
	for name, p := range s.Properties.FromOldest() {
		parameter := object{"name": name, "in": "query", "description": p.Description, "schema": p}
		p.Description = ""
		if slices.Contains(s.Required, name) {
			parameter["required"] = true
		}
		all = append(all, parameter)
	}
	return all
}

// responses returns the answers of an operation, by status.
func (d *definitions) responses(o Operation) object {
	done := object{"description": o.Result, "content": d.content(o)}
	if o.Body != nil && o.Media == "" {
		done["headers"] = object{"Warning": object{
			"description": "the members of the request that this bakeryd does not know and ignores; absent if there are none",
			"schema":      object{"type": "string"},
		}}
	}
	all := object{"200": done}
	codes := map[string][]string{}
	for _, code := range append(slices.Clone(always), o.Refusals...) {
		status := (&api.Error{Code: code}).Status()
		if status == 200 {
			status = 409 // in a stream it is a line
		}
		codes[strconv.Itoa(status)] = append(codes[strconv.Itoa(status)], code)
	}
	for status, of := range codes {
		all[status] = d.refused(of)
	}
	return all
}

func (d *definitions) content(o Operation) object {
	switch media := o.Media; {
	case o.Answer == nil:
		return object{media: object{"schema": object{"type": "string"}}}
	case media == "":
		return object{"application/json": object{"schema": d.answer(o.Answer)}}
	default: // a stream, of which each line is described
		return object{media: object{"schema": d.answer(o.Answer)}}
	}
}

// refused returns a reference to the answer that has one of these codes.
func (d *definitions) refused(codes []string) object {
	name := strings.Join(codes, "_or_")
	code := object{"properties": object{"error": object{"properties": object{"code": object{Extensible: codes}}}}}
	d.refusals[name] = object{
		"description": "refused: " + strings.Join(codes, ", "),
		"content":     object{"application/json": object{"schema": object{"allOf": []any{d.answer(refusal{}), code}}}},
	}
	return object{"$ref": "#/components/responses/" + name}
}

// enumerate lists the known values of a member, which are constants of package api: codes, or kinds
// of event.
func (d *definitions) enumerate(of, member string, values []string, codes bool) {
	all := slices.DeleteFunc(slices.Clone(d.constants[module+"/daemon/api."]), func(c constant) bool {
		return strings.HasPrefix(c.name, "Code") != codes || !slices.Contains(values, c.value)
	})
	d.all[of].Properties.Value(member).Extras = extensible(all).Extras
}

// require says which members an event of each kind has: those that are there even if all are zero.
func (d *definitions) require(kinds []string) {
	e := d.all["LockEvent"]
	e.Required = []string{"event"}
	for _, kind := range kinds {
		var members map[string]any
		if err := json.Unmarshal((&api.Event{Kind: kind}).Append(nil), &members); err != nil {
			panic(fmt.Sprintf("event %s: %v", kind, err))
		}
		if len(members) == 1 {
			continue
		}
		properties := jsonschema.NewProperties()
		properties.Set("event", &jsonschema.Schema{Const: kind})
		then := &jsonschema.Schema{}
		for name := range members {
			then.Required = append(then.Required, name)
		}
		slices.Sort(then.Required)
		e.AllOf = append(e.AllOf, &jsonschema.Schema{If: &jsonschema.Schema{Properties: properties, Required: []string{"event"}}, Then: then})
	}
}

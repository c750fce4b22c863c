package schematest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// API returns the OpenAPI document. The first call takes tens of milliseconds, and more on a busy
// machine: a test process with clients that must answer in time makes it at its start.
var API = sync.OnceValue(func() *Set {
	s, err := Open("openapi.json")
	if err != nil {
		panic(err) // the file is embedded
	}
	for _, o := range operations(s) {
		s.Statuses(o, nil) // compiles the schemas
	}
	_, _ = s.at("/components/schemas/LockEvent")
	return s
})

// Operations returns the patterns of all operations.
func Operations() []string { return operations(API()) }

func operations(s *Set) (patterns []string) {
	for path, methods := range s.document.(map[string]any)["paths"].(map[string]any) {
		for method := range methods.(map[string]any) {
			patterns = append(patterns, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(patterns)
	return patterns
}

// place returns where the document has an operation.
func place(operation string) string {
	method, path, _ := strings.Cut(operation, " ")
	return "/paths/" + strings.ReplaceAll(path, "/", "~1") + "/" + strings.ToLower(method)
}

// answer returns where the document has the answer of an operation with a status; empty if it has
// none.
func (s *Set) answer(operation, status string) string {
	at := place(operation) + "/responses/" + status
	if ref, ok := s.find(at + "/$ref").(string); ok {
		return strings.TrimPrefix(ref, "#")
	}
	if s.find(at) == nil {
		return ""
	}
	return at
}

// CheckBody checks the body of a request.
func (s *Set) CheckBody(operation string, body []byte) error {
	return s.Check(place(operation)+"/requestBody/content/application~1json/schema", body)
}

// CheckAnswer checks an answer in JSON, or a line of it.
func (s *Set) CheckAnswer(operation, status string, text []byte) error {
	content, _ := s.find(s.answer(operation, status) + "/content").(map[string]any)
	for media := range content {
		return s.Check(s.answer(operation, status)+"/content/"+strings.ReplaceAll(media, "/", "~1")+"/schema", text)
	}
	return fmt.Errorf("%s: status %s is not in the document: %s", operation, status, text)
}

// Statuses returns those with which an operation may have an answer.
func (s *Set) Statuses(operation string, text []byte) (all []string) {
	responses, _ := s.find(place(operation) + "/responses").(map[string]any)
	for status := range responses {
		if s.CheckAnswer(operation, status, text) == nil {
			all = append(all, status)
		}
	}
	return all
}

// Checks are those of the answers of servers. The zero value is ready for use.
type Checks struct {
	mu     sync.Mutex // guards the fields below
	served map[string]bool
	failed []error
}

// Handler returns a handler that also checks the answers of h, and the requests that were served.
func (c *Checks) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		if r.Body != nil {
			r.Body = struct {
				io.Reader
				io.Closer
			}{io.TeeReader(r.Body, &body), r.Body}
		}
		rec := &recorder{ResponseWriter: w, status: http.StatusOK}
		h.ServeHTTP(rec, r)
		err := rec.check(r, body.Bytes())
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			c.failed = append(c.failed, fmt.Errorf("%s %s: %w", r.Method, r.URL, err))
		} else if rec.status < 300 && (rec.began || rec.status == http.StatusSwitchingProtocols) {
			if c.served == nil {
				c.served = map[string]bool{}
			}
			c.served[operation(r.Pattern)] = true
		}
	})
}

// Served returns the operations that had an answer other than a refusal.
func (c *Checks) Served() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.served))
}

// Failed returns the answers that are not as the document says.
func (c *Checks) Failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.failed...)
}

// Report returns the exit code of a test process that would exit with code. It writes to out the answers
// that are not as the document says, and, if all tests have run, the operations that had no answer.
// Those in without have none.
func (c *Checks) Report(out io.Writer, code int, without ...string) int {
	if err := c.Failed(); err != nil {
		fmt.Fprintf(out, "FAIL: answers that packaging/schema/openapi.json does not describe:\n%v\n", err)
		return max(code, 1)
	}
	if code != 0 || !AllTests() {
		return code
	}
	served := c.Served()
	for _, o := range Operations() {
		if slices.Contains(served, o) == slices.Contains(without, o) {
			fmt.Fprintf(out, "FAIL: %s of packaging/schema/openapi.json had an answer in the tests: %v\n", o, slices.Contains(served, o))
			code = 1
		}
	}
	return code
}

// AllTests reports whether no flag selects some of the tests of this process.
func AllTests() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.fuzz"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	return !testing.Short()
}

// operation returns the operation of a route.
func operation(pattern string) string {
	if pattern == "/{$}" {
		return "GET /"
	}
	return pattern
}

// recorder keeps an answer.
type recorder struct {
	http.ResponseWriter
	began  bool
	status int
	text   bytes.Buffer
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Hijack implements http.Hijacker.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil {
		r.status = http.StatusSwitchingProtocols
	}
	return conn, buffered, err
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if !r.began {
		r.began, r.status = true, status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(p []byte) (int, error) {
	r.began = true
	r.text.Write(p)
	return r.ResponseWriter.Write(p)
}

// check checks the answer to a request, and the body of that if it was served.
func (r *recorder) check(to *http.Request, body []byte) error {
	pattern := operation(to.Pattern)
	media, _, _ := strings.Cut(r.Header().Get("Content-Type"), ";")
	if !strings.Contains(pattern, " ") { // the files of the page, and no call at all
		if media == "application/json" {
			return API().Check("/components/schemas/Refusal", r.text.Bytes())
		}
		return nil
	}
	switch {
	case r.status == http.StatusSwitchingProtocols || !r.began:
		return nil // the client has gone before, or reads lines
	case r.status == http.StatusNotFound && API().Check("/components/responses/invalid/content/application~1json/schema", r.text.Bytes()) == nil:
		return nil // there is no such call
	}
	status := strconv.Itoa(r.status)
	if content := API().find(API().answer(pattern, status) + "/content"); content == nil || content.(map[string]any)[media] == nil {
		return fmt.Errorf("status %d of type %q is not in the document: %s", r.status, media, r.text.Bytes())
	}
	ignores := r.Header().Get("Warning") != "" // members that it does not know
	if r.status < 300 && !ignores && API().find(place(pattern)+"/requestBody") != nil {
		if err := API().CheckBody(pattern, body); err != nil {
			return fmt.Errorf("served although the body is not valid: %w", err)
		}
	}
	text := r.text.Bytes()
	if r.Header().Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(&r.text)
		if err != nil {
			return err
		}
		if text, err = io.ReadAll(z); err != nil {
			return err
		}
	}
	switch media {
	case "application/json":
		return API().CheckAnswer(pattern, status, text)
	case "application/x-ndjson":
		return lines(text, func(line []byte) error { return API().CheckAnswer(pattern, status, line) })
	}
	return nil
}

// find returns what is at a JSON pointer of the document, nil if nothing.
func (s *Set) find(pointer string) any {
	v := s.document
	for _, name := range strings.Split(pointer, "/")[1:] {
		object, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
	}
	return v
}

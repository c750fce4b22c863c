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
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// API is the OpenAPI document.
var API = sync.OnceValue(func() *Set {
	s, err := Open("openapi.json")
	if err != nil {
		panic(err) // the file is embedded
	}
	return s
})

// Operations returns the patterns of all operations.
func Operations() (patterns []string) {
	for path, methods := range API().document.(map[string]any)["paths"].(map[string]any) {
		for method := range methods.(map[string]any) {
			patterns = append(patterns, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(patterns)
	return patterns
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

// Report returns the exit code of a test process that would exit with code. It prints the answers that are not as the
// document says, and, if all tests have run, the operations that had no answer. Those in without have none.
func (c *Checks) Report(code int, without ...string) int {
	if err := c.Failed(); err != nil {
		fmt.Fprintf(os.Stderr, "FAIL: answers that packaging/schema/openapi.json does not describe:\n%v\n", err)
		return max(code, 1)
	}
	if code != 0 || !AllTests() {
		return code
	}
	served := c.Served()
	for _, o := range Operations() {
		if slices.Contains(served, o) == slices.Contains(without, o) {
			fmt.Fprintf(os.Stderr, "FAIL: %s of packaging/schema/openapi.json had an answer in the tests: %v\n", o, slices.Contains(served, o))
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
	method, path, known := strings.Cut(pattern, " ")
	if !known { // the files of the page, and no call at all
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
	place := "/paths/" + strings.ReplaceAll(path, "/", "~1") + "/" + strings.ToLower(method)
	answer := fmt.Sprintf("%s/responses/%d", place, r.status)
	if API().find(answer) == nil {
		return fmt.Errorf("status %d is not in the document: %s", r.status, r.text.Bytes())
	}
	if ref, ok := API().find(answer + "/$ref").(string); ok {
		answer = strings.TrimPrefix(ref, "#")
	}
	answer += "/content/" + strings.ReplaceAll(media, "/", "~1") + "/schema"
	if API().find(answer) == nil {
		return fmt.Errorf("status %d has the type %q, which is not in the document", r.status, media)
	}
	if r.status < 300 && API().find(place+"/requestBody") != nil {
		if err := API().Check(place+"/requestBody/content/application~1json/schema", body); err != nil {
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
		return API().Check(answer, text)
	case "application/x-ndjson":
		return API().Lines(answer, text)
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

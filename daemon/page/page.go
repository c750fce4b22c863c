// Package page is the status page of bakeryd: a few files that a browser loads once. Their script
// requests the data from bakeryd. The package knows neither locks nor hosts, nor which users may
// see them: package daemon serves the data.
//
// Begin with [Handler]. In files, page.js has the loop that requests and draws. model.js
// interprets an answer, judge.js words the faults that it lists, and dom.js is the only code that inserts text.
// hosts.js, locks.js, latency.js and events.js draw the sections.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"
)

// Below is the path of the page's files. The page itself is "/".
const Below = "/page/"

// policy lets the page load only resources of its own origin.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed files
var files embed.FS

// kinds sets the content types, because the tables of a system are unreliable.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// front is the file that "/" has.
const front = "page.html"

// Handler serves "/" and the files Below. A browser caches the files and revalidates them each
// time, so that the script of an earlier bakeryd is not used with a later one.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Guard(w.Header())
		name, found := strings.CutPrefix(r.URL.Path, Below)
		found = found && name != front
		if r.URL.Path == "/" {
			name, found = front, true
		}
		text, err := files.ReadFile("files/" + name)
		switch {
		case !found || err != nil:
			http.Error(w, "the page has no such file", http.StatusNotFound)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, fmt.Sprintf("read-only: want GET, not %s", r.Method), http.StatusMethodNotAllowed)
		default:
			sum := sha256.Sum256(text)
			w.Header().Set("Content-Type", kinds[path.Ext(name)])
			w.Header().Set("Cache-Control", "no-cache")
			w.Header().Set("ETag", `"`+base64.RawURLEncoding.EncodeToString(sum[:12])+`"`)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
		}
	})
}

// Guard sets the headers that prevent other pages from using an answer.
func Guard(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
}

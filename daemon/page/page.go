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
	"io/fs"
	"net/http"
	"path"
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

// Handler serves "/" and the files Below. A browser caches the files and revalidates them each
// time, so that the script of an earlier bakeryd is not used with a later one.
func Handler() http.Handler {
	served := map[string]http.HandlerFunc{}
	all, err := fs.ReadDir(files, "files")
	if err != nil {
		panic(err) // the files are embedded
	}
	for _, f := range all {
		text, err := files.ReadFile("files/" + f.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(text)
		kind, tag := kinds[path.Ext(f.Name())], `"`+base64.RawURLEncoding.EncodeToString(sum[:12])+`"`
		at := Below + f.Name()
		if f.Name() == "page.html" {
			at = "/"
		}
		served[at] = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Cache-Control", "no-cache")
			w.Header().Set("ETag", tag)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Guard(w.Header())
		serve, found := served[r.URL.Path]
		switch {
		case !found:
			http.Error(w, "the page has no such file", http.StatusNotFound)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, fmt.Sprintf("read-only: want GET, not %s", r.Method), http.StatusMethodNotAllowed)
		default:
			serve(w, r)
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

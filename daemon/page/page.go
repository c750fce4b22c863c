// Package page is the status page of bakeryd: a few files that a browser loads once, and a script in them that asks bakeryd
// for what it shows. It knows neither locks nor hosts, nor who may see them: what the page asks for is served by package daemon.
//
// Begin with [Handler]. In files, page.js has the loop that asks and draws; model.js is what an answer means, judge.js
// whether all is well, dom.js the only way of a text into the page. hosts.js, locks.js, latency.js and events.js are its parts.
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

// Below is where the files of the page are; the page itself is "/".
const Below = "/page/"

// policy lets the page load what comes from where it comes from itself, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed files
var files embed.FS

// kinds are told, not guessed: the tables of a system may say anything.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// file is one as it is served.
type file struct {
	kind, tag string
	text      []byte
}

// Handler serves "/" and what is Below. A browser keeps the files, and asks each time whether they are still the same:
// a bakeryd that was updated is not looked at by the script of its predecessor.
func Handler() http.Handler {
	served := map[string]file{}
	all, err := fs.ReadDir(files, "files")
	if err != nil {
		panic(err) // they are in this program
	}
	for _, f := range all {
		text, err := files.ReadFile("files/" + f.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(text)
		at := Below + f.Name()
		if f.Name() == "page.html" {
			at = "/"
		}
		served[at] = file{kinds[path.Ext(f.Name())], `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`, text}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Guard(w.Header())
		f, found := served[r.URL.Path]
		switch {
		case !found:
			http.Error(w, "the page has no such file", http.StatusNotFound)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, fmt.Sprintf("this is only to be looked at: want GET, not %s", r.Method), http.StatusMethodNotAllowed)
		default:
			w.Header().Set("Content-Type", f.kind)
			w.Header().Set("Cache-Control", "no-cache")
			w.Header().Set("ETag", f.tag)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.text))
		}
	})
}

// Guard sets the headers that keep an answer from being used by any other page than this one.
func Guard(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
}

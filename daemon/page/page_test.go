package page

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func get(t *testing.T, method, at string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, at, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w.Result()
}

func TestHandler(t *testing.T) {
	for at, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/page/page.css": "text/css; charset=utf-8", "/page/page.js": "text/javascript; charset=utf-8",
		"/page/judge.js": "text/javascript; charset=utf-8", "/page/well.svg": "image/svg+xml",
	} {
		r := get(t, "GET", at)
		require.Equal(t, http.StatusOK, r.StatusCode, at)
		require.Equal(t, kind, r.Header.Get("Content-Type"))
		require.Equal(t, "nosniff", r.Header.Get("X-Content-Type-Options"))
		require.Equal(t, "no-cache", r.Header.Get("Cache-Control"), "kept, but asked for")
		require.Regexp(t, `^default-src 'none'; `, r.Header.Get("Content-Security-Policy"))
		require.NotContains(t, r.Header.Get("Content-Security-Policy"), "unsafe")
		require.Equal(t, "same-origin", r.Header.Get("Cross-Origin-Resource-Policy"))
		tag := r.Header.Get("ETag")
		require.Regexp(t, `^"[\w-]{16}"$`, tag)

		head := get(t, "HEAD", at)
		require.Equal(t, http.StatusOK, head.StatusCode)
		require.Equal(t, r.Header, head.Header)
		n, _ := head.Body.Read(make([]byte, 1))
		require.Zero(t, n)
		require.Equal(t, http.StatusNotModified, get(t, "GET", at, "If-None-Match", tag).StatusCode)
		require.Equal(t, http.StatusOK, get(t, "GET", at, "If-None-Match", `"another"`).StatusCode)
		for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
			r := get(t, method, at)
			require.Equal(t, http.StatusMethodNotAllowed, r.StatusCode, method)
			require.Equal(t, "GET, HEAD", r.Header.Get("Allow"))
		}
	}
	for _, at := range []string{"/page/", "/page/page.html", "/page/files/page.js", "/page/../page.go", "/page/none", "/index.html"} {
		require.Equal(t, http.StatusNotFound, get(t, "GET", at).StatusCode, at)
	}
}

// TestNothingFromElsewhere: the policy and the files allow only the own origin. Only dom.js
// inserts text.
func TestNothingFromElsewhere(t *testing.T) {
	all, err := fs.ReadDir(files, "files")
	require.NoError(t, err)
	elsewhere := regexp.MustCompile(`(?i)(https?:|url\(|@import|["'(]//)`)
	markup := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|Function\(|srcdoc|setAttribute\(['"](on|style|src)|\bon\w+=`)
	for _, f := range all {
		text, err := files.ReadFile("files/" + f.Name())
		require.NoError(t, err)
		require.Contains(t, kinds, path.Ext(f.Name()))
		require.Empty(t, elsewhere.FindAllString(strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", ""), -1), f.Name())
		if path.Ext(f.Name()) != ".css" {
			require.Empty(t, markup.FindAllString(string(text), -1), f.Name())
		}
	}
}

package daemon

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
)

// fromBrowsers lets a browser only look. Who has the socket forwarded to a port, as for the status page, lends it to
// every other page that the browser shows: these can send whatever a form can, to any address, and if their own name is
// made to stand for 127.0.0.1 also read what comes back. Browsers say of both where they come from. named tells
// what this machine may be called.
func fromBrowsers(named func(host string) bool, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		look := r.Method == http.MethodGet || r.Method == http.MethodHead
		switch {
		case (r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "") && !look:
			writeError(w, http.StatusForbidden, &api.Error{Code: "forbidden", Message: "a browser may only look: it cannot " + r.Method + " here",
				Hint: "bakeryctl does, and whatever else is no browser"})
		case !named(r.Host):
			writeError(w, http.StatusForbidden, &api.Error{Code: "forbidden", Message: fmt.Sprintf("this is not %q", r.Host),
				Hint: "ask for it as localhost, or by an address in figures"})
		case forAnotherPage(r):
			writeError(w, http.StatusForbidden, &api.Error{Code: "forbidden", Message: "this is not for the pages of others",
				Hint: "type the address, or follow a link to the status page"})
		case look && r.ContentLength != 0:
			_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // nobody waits for what is announced
			w.Header().Set("Connection", "close")
			writeError(w, http.StatusBadRequest, &api.Error{Code: "invalid", Message: "a " + r.Method + " with a body", Hint: "leave the body out"})
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// forAnotherPage tells whether a browser asks on behalf of a page that is not this server's. To be led to the status page by
// a link is all that others are for.
func forAnotherPage(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return r.URL.Path != "/" || r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
}

// ownName tells whether a host in a request may be this one: no name of the DNS that somebody else has made stand for it.
func ownName(host string) bool { return localName(host) || !strings.Contains(bareHost(host), ".") }

// localName tells whether a host in a request is this one whoever is asked what names stand for.
func localName(host string) bool {
	host = bareHost(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(host) != nil
}

func bareHost(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

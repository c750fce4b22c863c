package server

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
)

// restrict restricts browsers to reading. A user that forwards the socket to a port, as for the
// status page, exposes it to every other page in the browser. Such pages can send any form to any
// address. If their own name resolves to 127.0.0.1, they can also read the answer. Browsers report
// the origin in both cases. By an address of this host, other clients may only read, too.
func restrict(byAddress bool, h http.Handler) http.Handler {
	named := ownName
	if byAddress {
		named = localName
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		look := r.Method == http.MethodGet || r.Method == http.MethodHead
		switch {
		case (r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "") && !look:
			refuse(w, &api.Error{Code: api.CodeForbidden, Message: "a browser may only read: it cannot " + r.Method + " here",
				Hint: "use bakeryctl, or another client that is no browser"})
		case !named(r.Host):
			refuse(w, &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf("unknown host name %q", r.Host),
				Hint: "use localhost or an IP address"})
		case forAnotherPage(r):
			refuse(w, &api.Error{Code: api.CodeForbidden, Message: "this is not for pages of other sites",
				Hint: "type the address, or follow a link to the status page"})
		case look && r.ContentLength != 0:
			// do not wait for the announced body
			_ = http.NewResponseController(w).SetReadDeadline(time.Now())
			w.Header().Set("Connection", "close")
			refuse(w, &api.Error{Code: api.CodeInvalid, Message: "a " + r.Method + " with a body", Hint: "leave the body out"})
		case byAddress && !look:
			refuse(w, &api.Error{Code: api.CodeForbidden,
				Message: fmt.Sprintf("this address is read-only: it does not serve %s %s", r.Method, r.URL.Path),
				Hint:    "use the Unix socket"})
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// forAnotherPage reports whether a browser asks on behalf of a page of another site. Such a page
// may only link to the status page.
func forAnotherPage(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return r.URL.Path != "/" || r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
}

// ownName reports whether a host in a request may be this one. A name with a dot is refused,
// because another party may have made it resolve to this host.
func ownName(host string) bool { return localName(host) || !strings.Contains(bareHost(host), ".") }

// localName reports whether a host in a request is this one by any resolver.
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

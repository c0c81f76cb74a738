package ui

import (
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

//go:embed page
var page embed.FS

// types of the page's files by how their names end.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// headers are those of every answer. Nothing comes from elsewhere, nothing is sent elsewhere, and
// nobody frames the page.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src " +
		"'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cache-Control":                "no-store",
}

// handler answers browsers. Everybody on the machine can connect to loopback, so that what is known
// of the node is for those who have the key that Run has printed.
type handler struct {
	board    *board
	key      string
	port     string
	patience time.Duration
	streams  atomic.Int32
}

// ServeHTTP refuses what no browser sends that was pointed here, and answers the rest.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	switch {
	case !h.hosts(r.Host):
		h.fail(w, http.StatusForbidden,
			fmt.Sprintf("this is http://127.0.0.1:%s/ and not %.100q: forward the port by the same number",
				h.port, r.Host))
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		h.fail(w, http.StatusMethodNotAllowed, "this page only reads")
	case r.URL.Path == "/stream":
		h.stream(w, r)
	default:
		h.file(w, r)
	}
}

// hosts reports whether a request names this place. A name that another site has made to mean
// loopback is none (DNS rebinding).
func (h *handler) hosts(host string) bool {
	name, number, err := net.SplitHostPort(host)
	if err != nil { // a browser leaves out port 80
		name, number = strings.Trim(host, "[]"), "80"
	}
	return number == h.port && slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, name)
}

// knows reports whether what was given is the key, in a time that does not tell how much of it is
// right.
func (h *handler) knows(given []string) bool {
	if len(given) != 1 {
		return false
	}
	is, want := sha256.Sum256([]byte(given[0])), sha256.Sum256([]byte(h.key))
	return subtle.ConstantTimeCompare(is[:], want[:]) == 1
}

// file is GET of a file of the page, which tells nothing of the node.
func (h *handler) file(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Path
	if name == "/" {
		name = "/index.html"
	}
	text, err := fs.ReadFile(page, "page"+name)
	kind, known := types[path.Ext(name)]
	if err != nil || !known {
		h.fail(w, http.StatusNotFound, "no such path: the page is at /")
		return
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(text) // the browser is gone: there is no one to tell
}

// fail answers with what is wrong, in one line.
func (h *handler) fail(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, "jettison ui:", text)
}

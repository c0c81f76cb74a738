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

// contentTypes maps file extensions of the page to content types.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// headers are sent with every response. They restrict the page to its own files and origin, and
// forbid framing.
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

// handler serves browsers. All users of the machine can connect to loopback, so that the data about
// the node needs the key that Run prints.
type handler struct {
	board        *board
	key          string
	port         string
	writeTimeout time.Duration
	streams      atomic.Int32
}

// ServeHTTP serves the page and its stream. It rejects requests for another host and other methods
// than GET and HEAD.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	switch {
	case !h.validHost(r.Host):
		h.fail(w, http.StatusForbidden,
			fmt.Sprintf("this server is http://127.0.0.1:%s/, not %.100q: forward the port under the same number",
				h.port, r.Host))
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		h.fail(w, http.StatusMethodNotAllowed, "the page is read-only")
	case r.URL.Path == "/stream":
		h.stream(w, r)
	default:
		h.file(w, r)
	}
}

// validHost reports whether a request names this server. It rejects names that another site
// resolves to loopback (DNS rebinding).
func (h *handler) validHost(host string) bool {
	name, number, err := net.SplitHostPort(host)
	if err != nil { // a browser leaves out port 80
		name, number = strings.Trim(host, "[]"), "80"
	}
	return number == h.port && slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, name)
}

// validKey reports whether given is the key, in constant time.
func (h *handler) validKey(given []string) bool {
	if len(given) != 1 {
		return false
	}
	got, want := sha256.Sum256([]byte(given[0])), sha256.Sum256([]byte(h.key))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// file serves a file of the page. The files contain no data about the node.
func (h *handler) file(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Path
	if name == "/" {
		name = "/index.html"
	}
	text, err := fs.ReadFile(page, "page"+name)
	contentType, known := contentTypes[path.Ext(name)]
	if err != nil || !known {
		h.fail(w, http.StatusNotFound, "no such path: the page is at /")
		return
	}
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(text) // an error means that the browser has disconnected
}

// fail responds with a one-line error.
func (h *handler) fail(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, "jettison ui:", text)
}

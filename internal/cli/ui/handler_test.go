package ui

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testHandler() *handler {
	return &handler{board: newBoard(Options{Node: "w1", Version: "test", Socket: "/s"}), key: "secret", port: "5388", writeTimeout: writeTimeout}
}

// request returns the response to a request. Streams are requested with HEAD, because their GET does not end.
func (h *handler) request(method, host, target string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.Host = host
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// The page is read-only, and only served to a browser that names this server.
func TestAccess(t *testing.T) {
	const here = "127.0.0.1:5388"
	for _, c := range []struct {
		method, host, target string
		status               int
		text                 string
	}{
		{"GET", here, "/", 200, "<!doctype html>"},
		{"GET", "localhost:5388", "/", 200, ""},
		{"GET", "[::1]:5388", "/", 200, ""},
		{"HEAD", here, "/app.js", 200, ""},
		{"GET", "evil.example:5388", "/", 403, "forward the port under the same number"},
		{"GET", "127.0.0.1.evil.example:5388", "/", 403, ""},
		{"GET", "127.0.0.1:5389", "/", 403, ""},
		{"GET", "127.0.0.1", "/", 403, ""},
		{"GET", "localhost", "/", 403, ""},
		{"GET", "", "/", 403, ""},
		{"GET", "10.0.0.1:5388", "/", 403, ""},
		{"POST", here, "/", 405, "read-only"},
		{"PUT", here, "/stream?key=secret", 405, ""},
		{"OPTIONS", here, "/stream?key=secret", 405, ""},
		{"DELETE", here, "/nothing", 405, ""},
		{"HEAD", here, "/stream?key=secret", 200, ""},
		{"HEAD", here, "/stream", 403, "wrong key: open the address"},
		{"HEAD", here, "/stream?key=", 403, ""},
		{"HEAD", here, "/stream?key=Secret", 403, ""},
		{"HEAD", here, "/stream?key=secret&key=secret", 403, ""},
		{"HEAD", here, "/stream?key=secret%00", 403, ""},
		{"HEAD", "evil.example:5388", "/stream?key=secret", 403, ""},
		{"GET", here, "/page", 404, "the page is at /"},
		{"GET", here, "/../ui.go", 404, ""},
		{"GET", here, "/nothing.js", 404, ""},
		{"GET", here, "/index.html/", 404, ""},
	} {
		got := testHandler().request(c.method, c.host, c.target)
		if got.Code != c.status || !strings.Contains(got.Body.String(), c.text) {
			t.Errorf("%s %s at %q: status %d, want %d with %q: %s", c.method, c.target, c.host, got.Code, c.status, c.text, got.Body)
		}
		for name, want := range headers {
			if have := got.Header().Get(name); have != want {
				t.Errorf("%s %s at %q: header %s = %q, want %q", c.method, c.target, c.host, name, have, want)
			}
		}
		if got.Header().Get("Access-Control-Allow-Origin") != "" || got.Header().Get("Content-Type") == "" {
			t.Errorf("%s %s at %q: headers %v, want a Content-Type and no CORS", c.method, c.target, c.host, got.Header())
		}
	}
	if allow := testHandler().request("POST", here, "/").Header().Get("Allow"); allow != "GET, HEAD" {
		t.Errorf("Allow header of POST = %q, want GET, HEAD", allow)
	}
}

// The content security policy allows only the page's own files and origin.
func TestContentSecurityPolicy(t *testing.T) {
	policy := headers["Content-Security-Policy"]
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("content security policy lacks %s: %s", want, policy)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") || strings.Contains(policy, "http") {
		t.Errorf("policy allows unsafe or foreign content: %s", policy)
	}
}

// maxPage is the limit of all files of the page in bytes.
const maxPage = 64 << 10

var (
	foreignURL = regexp.MustCompile(`(https?:)?//[a-z][a-z0-9-]*\.[a-z]`)
	asMarkup   = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|createContextualFragment`)
	inline     = regexp.MustCompile(`<style|\sstyle=|\son[a-z]+=|<script(?:[^>]*)>[^<]`)
)

// The page is small, loads nothing from other sites, and never interprets text as markup.
func TestPageIsSelfContained(t *testing.T) {
	size := 0
	err := fs.WalkDir(page, "page", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := fs.ReadFile(page, path)
		if err != nil {
			return err
		}
		size += len(raw)
		text := strings.ReplaceAll(string(raw), "http://www.w3.org/2000/svg", "") // an XML namespace, never fetched
		for _, wrong := range []*regexp.Regexp{foreignURL, asMarkup} {
			if found := wrong.FindString(text); found != "" {
				t.Errorf("page file %s contains forbidden %s", path, found)
			}
		}
		if found := inline.FindString(text); found != "" && strings.HasSuffix(path, ".html") {
			t.Errorf("%s contains inline %s, which the policy forbids", path, found)
		}
		if got := testHandler().request("GET", "127.0.0.1:5388", strings.TrimPrefix(path, "page")); got.Code != http.StatusOK {
			t.Errorf("GET of %s: status %d, want 200", path, got.Code)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if size > maxPage {
		t.Errorf("page has %d bytes, want at most %d", size, maxPage)
	}
}

func TestParseListen(t *testing.T) {
	for address, want := range map[string]string{
		DefaultListen: DefaultListen, "localhost:0": "127.0.0.1:0", "[::1]:80": "[::1]:80", "127.0.0.1:65535": "127.0.0.1:65535",
		"[::ffff:127.0.0.1]:1": "127.0.0.1:1",
	} {
		got, err := ParseListen(address)
		if err != nil || got != want {
			t.Errorf("ParseListen(%s) = %s, %v, want %s", address, got, err, want)
		}
	}
	for address, text := range map[string]string{
		"0.0.0.0:5388": "ssh -L 5388:127.0.0.1:5388 NODE", "[::]:1": "loopback only", ":5388": "loopback only", "10.0.0.1:1": "loopback only",
		"example.com:1": "loopback only", "127.9.9.9:1": "loopback only", "[::1%lo]:1": "loopback only", "127.0.0.1": "want an address and a port", "": "want an address and a port",
		"127.0.0.1:": "want a number", "127.0.0.1:65536": "want a number", "127.0.0.1:http": "want a number", "127.0.0.1:-1": "want a number",
	} {
		if got, err := ParseListen(address); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("ParseListen(%q) = %s, %v, want an error with %q", address, got, err, text)
		}
	}
}

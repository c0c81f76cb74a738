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
	return &handler{board: newBoard(Options{Node: "w1", Version: "test", Socket: "/s"}), key: "secret", port: "5388", patience: patience}
}

// asked is what a request gets. A stream is asked for by HEAD, which has an end.
func (h *handler) asked(method, host, target string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.Host = host
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// The page only reads, and only for a browser that was pointed here.
func TestWhoIsAnswered(t *testing.T) {
	const here = "127.0.0.1:5388"
	for _, c := range []struct {
		method, host, target string
		status               int
		says                 string
	}{
		{"GET", here, "/", 200, "<!doctype html>"},
		{"GET", "localhost:5388", "/", 200, ""},
		{"GET", "[::1]:5388", "/", 200, ""},
		{"HEAD", here, "/app.js", 200, ""},
		{"GET", "evil.example:5388", "/", 403, "forward the port by the same number"},
		{"GET", "127.0.0.1.evil.example:5388", "/", 403, ""},
		{"GET", "127.0.0.1:5389", "/", 403, ""},
		{"GET", "127.0.0.1", "/", 403, ""},
		{"GET", "localhost", "/", 403, ""},
		{"GET", "", "/", 403, ""},
		{"GET", "10.0.0.1:5388", "/", 403, ""},
		{"POST", here, "/", 405, "only reads"},
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
		got := testHandler().asked(c.method, c.host, c.target)
		if got.Code != c.status || !strings.Contains(got.Body.String(), c.says) {
			t.Errorf("%s %s at %q: %d %s", c.method, c.target, c.host, got.Code, got.Body)
		}
		for name, want := range headers {
			if have := got.Header().Get(name); have != want {
				t.Errorf("%s %s at %q: %s: %q", c.method, c.target, c.host, name, have)
			}
		}
		if got.Header().Get("Access-Control-Allow-Origin") != "" || got.Header().Get("Content-Type") == "" {
			t.Errorf("%s %s at %q: %v", c.method, c.target, c.host, got.Header())
		}
	}
	if allow := testHandler().asked("POST", here, "/").Header().Get("Allow"); allow != "GET, HEAD" {
		t.Errorf("Allow: %q", allow)
	}
}

// The browser is told to take nothing from elsewhere, to send nothing there, and to run what the page's own files say and nothing else.
func TestThePolicyIsNarrow(t *testing.T) {
	policy := headers["Content-Security-Policy"]
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("no %s in %s", want, policy)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") || strings.Contains(policy, "http") {
		t.Error(policy)
	}
}

// maxPage is what the files of the page may have together in bytes.
const maxPage = 64 << 10

var (
	elsewhere = regexp.MustCompile(`(https?:)?//[a-z][a-z0-9-]*\.[a-z]`)
	asMarkup  = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|createContextualFragment`)
	inline    = regexp.MustCompile(`<style|\sstyle=|\son[a-z]+=|<script(?:[^>]*)>[^<]`)
)

// The page is small, has all that it needs, and makes no markup of a text.
func TestThePageStandsAlone(t *testing.T) {
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
		text := strings.ReplaceAll(string(raw), "http://www.w3.org/2000/svg", "") // a name, which nobody fetches
		for _, wrong := range []*regexp.Regexp{elsewhere, asMarkup} {
			if found := wrong.FindString(text); found != "" {
				t.Errorf("%s: %s", path, found)
			}
		}
		if found := inline.FindString(text); found != "" && strings.HasSuffix(path, ".html") {
			t.Errorf("%s: %s, which the policy forbids", path, found)
		}
		if got := testHandler().asked("GET", "127.0.0.1:5388", strings.TrimPrefix(path, "page")); got.Code != http.StatusOK {
			t.Errorf("%s: %d", path, got.Code)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if size > maxPage {
		t.Errorf("the page has %d bytes, more than %d", size, maxPage)
	}
}

func TestParseListen(t *testing.T) {
	for address, want := range map[string]string{
		DefaultListen: DefaultListen, "localhost:0": "127.0.0.1:0", "[::1]:80": "[::1]:80", "127.0.0.1:65535": "127.0.0.1:65535",
		"[::ffff:127.0.0.1]:1": "127.0.0.1:1",
	} {
		got, err := ParseListen(address)
		if err != nil || got != want {
			t.Errorf("%s: %s, %v", address, got, err)
		}
	}
	for address, says := range map[string]string{
		"0.0.0.0:5388": "ssh -L 5388:127.0.0.1:5388 NODE", "[::]:1": "loopback only", ":5388": "loopback only", "10.0.0.1:1": "loopback only",
		"example.com:1": "loopback only", "127.9.9.9:1": "loopback only", "[::1%lo]:1": "loopback only", "127.0.0.1": "want an address and a port", "": "want an address and a port",
		"127.0.0.1:": "want a number", "127.0.0.1:65536": "want a number", "127.0.0.1:http": "want a number", "127.0.0.1:-1": "want a number",
	} {
		if got, err := ParseListen(address); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %s, %v", address, got, err)
		}
	}
}

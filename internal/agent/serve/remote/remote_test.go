package remote

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// large exceeds all buffers between server and client.
var large = make([]byte, 32<<20)

// reads has some paths, one of which is the kubelet's.
type reads struct{}

func (reads) Remote(path string) (http.HandlerFunc, string) {
	switch path {
	case "/healthz":
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }, ""
	case "/large":
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(large) }, ""
	case "/stats/summary":
		return nil, "query the kubelet"
	}
	return nil, ""
}

func start(t *testing.T, o Options) *Server {
	t.Helper()
	o.Reads = reads{}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func ask(t *testing.T, c *http.Client, method, url string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(text)
}

func client(t *testing.T, roots *x509.CertPool) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// The loopback listener serves requests with a loopback host, read-only.
func TestLoopback(t *testing.T) {
	s := start(t, Options{})
	c, url := client(t, nil), "http://"+s.Address()
	for _, x := range []struct {
		method, path, host string
		status             int
		text               string
	}{
		{"GET", "/healthz", "", 200, "ok"},
		{"GET", "/healthz", "localhost:9100", 200, "ok"},
		{"GET", "/healthz", "[::1]:9100", 200, "ok"},
		{"GET", "/healthz", "evil.example", 403, "not a loopback name"},
		{"GET", "/healthz", "10.0.0.1:9100", 403, "not a loopback name"},
		{"PUT", "/healthz", "", 405, "GET or HEAD"},
		{"GET", "/stats/summary", "", 403, "query the kubelet"},
		{"PUT", "/v1/pods", "", 404, "/metrics"},
		{"GET", "/debug/pprof/", "", 404, "no path"},
	} {
		var header []string
		if x.host != "" {
			header = []string{"Host", x.host}
		}
		if status, body := ask(t, c, x.method, url+x.path, header...); status != x.status || !strings.Contains(body, x.text) {
			t.Errorf("%s %s with host %q = %d %s, want %d with %q", x.method, x.path, x.host, status, body, x.status, x.text)
		}
	}
	conn, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\nX: "+strings.Repeat("x", 64<<10)+"\r\n\r\n")
	}()
	if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || res.StatusCode != 431 {
		t.Errorf("response to a header of 64 KiB = %v, %v; want status 431", res, err)
	}
}

// An address that is not loopback requires certificate, key and token.
func TestPublicAddressNeedsTLSAndToken(t *testing.T) {
	cert, key, _ := pair(t, t.TempDir(), 1)
	for _, o := range []Options{
		{Listen: "0.0.0.0:0"}, {Listen: "[::]:0", TLSCertFile: cert, TLSPrivateKeyFile: key}, {Listen: "192.0.2.1:1", BearerTokenFile: "/t"},
	} {
		if s, err := Listen(o); err == nil || !strings.Contains(err.Error(), "not a loopback address") {
			t.Errorf("listen with %+v: %v, %v; want an error about loopback", o, s, err)
		}
	}
	short := filepath.Join(t.TempDir(), "t")
	if err := os.WriteFile(short, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(Options{Listen: "127.0.0.1:0", BearerTokenFile: short}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("listen with a short token: error %v, want one without the token", err)
	}
	if _, err := Listen(Options{Listen: "127.0.0.1:0", TLSCertFile: key, TLSPrivateKeyFile: cert}); err == nil {
		t.Error("listen accepted a key file as certificate")
	}
}

// pair writes a certificate of 127.0.0.1 and its key.
func pair(t *testing.T, dir string, serial int64) (certFile, keyFile string, cert *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "jettison"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	for path, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile, cert
}

// Token and certificate are read again after a change, with the swapped links of a Secret too. A
// broken token file rejects all requests; a broken certificate leaves the previous one.
func TestFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	volume := func(name, secret string, serial int64) *x509.Certificate {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		_, _, cert := pair(t, filepath.Join(dir, name), serial)
		if err := os.WriteFile(filepath.Join(dir, name, "token"), []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(name, filepath.Join(dir, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		return cert
	}
	first := volume("one", "the-first-token-of-all", 1)
	at := func(name string) string { return filepath.Join(dir, "..data", name) }
	token, err := openToken(at("token"))
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := openCertificate(at("cert"), at("key"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	token.now, certificate.now = func() time.Time { return now }, func() time.Time { return now }
	serial := func() int64 {
		c, err := certificate.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := x509.ParseCertificate(c.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return parsed.SerialNumber.Int64()
	}
	for header, want := range map[string]bool{
		"Bearer the-first-token-of-all": true, "bearer the-first-token-of-all": true, "Bearer the-first-token-of-al": false, "": false,
		"Basic the-first-token-of-all": false, "the-first-token-of-all": false, "Bearer ": false,
	} {
		if got := token.matches(header); got != want {
			t.Errorf("matches(%q) = %v, want %v", header, got, want)
		}
	}
	if got := serial(); got != first.SerialNumber.Int64() {
		t.Errorf("certificate serial = %d, want %d", got, first.SerialNumber.Int64())
	}
	volume("two", "the-second-token-of-all", 2)
	now = now.Add(2 * recheck)
	if token.matches("Bearer the-first-token-of-all") || !token.matches("Bearer the-second-token-of-all") || serial() != 2 {
		t.Error("changed files not read: want only the second token and certificate 2")
	}
	for _, name := range []string{"token", "cert"} {
		if err := os.WriteFile(at(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(2 * recheck)
	if token.matches("Bearer the-second-token-of-all") || token.matches("Bearer ") || serial() != 2 {
		t.Error("after broken files: want all tokens rejected and certificate 2")
	}
}

// With TLS and a token, the paths are served.
func TestOverTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key, parsed := pair(t, dir, 1)
	secret := filepath.Join(dir, "token")
	if err := os.WriteFile(secret, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, Options{TLSCertFile: cert, TLSPrivateKeyFile: key, BearerTokenFile: secret})
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	c, url := client(t, roots), "https://"+s.Address()+"/healthz"
	if status, text := ask(t, c, "GET", url); status != 401 {
		t.Errorf("status without the token = %d %s, want 401", status, text)
	}
	if status, text := ask(t, c, "GET", url, "Authorization", "Bearer 0123456789abcdef", "Host", "node.example"); status != 200 || text != "ok" {
		t.Errorf("response with the token = %d %s, want 200 ok", status, text)
	}
}

// Of a thousand idle connections the last ones have places, and later ones are served after the
// others close.
func TestManyConnections(t *testing.T) {
	s := start(t, Options{})
	var served []net.Conn
	for range 1000 {
		c, err := net.Dial("tcp", s.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		served = append(served, c)
	}
	// The longest idle connections are closed as later ones are accepted. A request before that
	// would be answered.
	for i, c := range served[:len(served)-maxConnections] {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d: %d bytes, %v; want its end", i, n, err)
		}
	}
	got := 0
	for _, c := range served[len(served)-maxConnections:] {
		_, _ = fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if res, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil && res.StatusCode == 200 {
			got++
		}
	}
	if got != maxConnections {
		t.Errorf("%d connections served, want %d", got, maxConnections)
	}
	for _, c := range served {
		_ = c.Close()
	}
	for deadline := time.Now().Add(time.Minute); ; {
		c, err := net.Dial("tcp", s.Address())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		_ = c.Close()
		if err == nil && res.StatusCode == 200 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no place released within a minute")
		}
	}
}

// Unread responses beyond the budget are refused, except one that alone exceeds it. Small responses
// are always served.
func TestUnreadResponsesAreBounded(t *testing.T) {
	s := start(t, Options{})
	begin := func(path string) int {
		c, err := net.Dial("tcp", s.Address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = fmt.Fprint(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode
	}
	unread := 0
	for range 8 {
		if begin("/large") == http.StatusOK {
			unread++
		}
	}
	if unread != 1 {
		t.Errorf("%d unread responses of %d MiB accepted, want 1", unread, len(large)>>20)
	}
	if status := begin("/healthz"); status != http.StatusOK {
		t.Errorf("status of a small response = %d, want 200", status)
	}
}

// A token file that could not be read for a moment is read again, although it has not changed.
func TestUnreadableTokenIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("the-first-token-of-all")
	token, err := openToken(path)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	token.now = func() time.Time { return now }
	write("the-second-token-of-all")
	now = now.Add(2 * recheck)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	accepted := token.matches("Bearer the-second-token-of-all")
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if accepted {
		t.Fatal("token accepted although its file could not be opened")
	}
	now = now.Add(2 * recheck)
	if !token.matches("Bearer the-second-token-of-all") {
		t.Error("valid token rejected after the file became readable")
	}
}

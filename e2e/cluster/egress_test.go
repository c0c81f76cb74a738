package cluster

import (
	"bufio"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// The egress proxy connects to configured addresses only, and closes its connections when it ends.
func TestTheWayToKubelets(t *testing.T) {
	kubelet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "pods") }))
	defer kubelet.Close()
	socket := filepath.Join(t.TempDir(), "s")
	e, err := newEgress(filepath.Join(t.TempDir(), "config"), socket)
	if err != nil {
		t.Fatal(err)
	}
	e.route("10.0.2.15:10250", kubelet.Listener.Addr().String())
	connect := func(to string) (net.Conn, *bufio.Reader, int) {
		t.Helper()
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", to)
		in := bufio.NewReader(conn)
		res, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
		if err != nil {
			t.Fatal(err)
		}
		return conn, in, res.StatusCode
	}
	if _, _, status := connect("10.0.2.15:22"); status != http.StatusBadGateway {
		t.Errorf("CONNECT to an unknown address: status %d, want 502", status)
	}
	conn, in, status := connect("10.0.2.15:10250")
	if status != http.StatusOK {
		t.Fatalf("CONNECT to a known address: status %d, want 200", status)
	}
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: kubelet\r\n\r\n")
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.ContentLength != 4 {
		t.Fatalf("request through the proxy = %v, %v", res, err)
	}
	if _, err := in.Discard(4); err != nil {
		t.Fatal(err)
	}
	e.close()
	if _, err := in.ReadByte(); err == nil {
		t.Error("the connection is still open after the proxy closed")
	}
}

// Certificates verify only against their authority, for their purpose and their names.
func TestCertificates(t *testing.T) {
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca.pair.cert) {
		t.Fatal("the authority's certificate cannot be parsed")
	}
	verify := func(p pair, name string, usage x509.ExtKeyUsage) error {
		block, _ := pem.Decode(p.cert)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		_, err = cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, KeyUsages: []x509.ExtKeyUsage{usage}})
		return err
	}
	server, err := ca.server("localhost", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	user, err := ca.client("system:node:a", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what  string
		pair  pair
		name  string
		usage x509.ExtKeyUsage
		ok    bool
	}{
		{"server by name", server, "localhost", x509.ExtKeyUsageServerAuth, true},
		{"server by address", server, "127.0.0.1", x509.ExtKeyUsageServerAuth, true},
		{"server by another name", server, "example.org", x509.ExtKeyUsageServerAuth, false},
		{"server as a client", server, "", x509.ExtKeyUsageClientAuth, false},
		{"client", user, "", x509.ExtKeyUsageClientAuth, true},
		{"client as a server", user, "", x509.ExtKeyUsageServerAuth, false},
	} {
		if err := verify(c.pair, c.name, c.usage); (err == nil) != c.ok {
			t.Errorf("verify certificate of %s: unexpected result %v", c.what, err)
		}
	}
	if !strings.Contains(string(user.key), "PRIVATE KEY") {
		t.Error("the user's pair has no key")
	}
}

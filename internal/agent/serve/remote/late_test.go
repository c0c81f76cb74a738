package remote

import (
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"
)

// The server starts when another process frees the address. An error that a retry cannot fix is
// returned immediately.
func TestAddressInUse(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Listen: other.Addr().String(), Reads: reads{}}
	late, err := listenLate(o, slog.New(slog.DiscardHandler), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	c := client(t, nil)
	for deadline := time.Now().Add(time.Minute); ; {
		if res, err := c.Get("http://" + o.Listen + "/healthz"); err == nil {
			_ = res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("status of /healthz = %d, want 200", res.StatusCode)
			}
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := late.Close(); err != nil {
			t.Error(err)
		}
	}
	if late, err := ListenLate(Options{Listen: "192.0.2.1:1", Reads: reads{}}, slog.Default()); err == nil {
		t.Error("listening without TLS on a public address accepted; close:", late.Close())
	}
}

// A server that never gets its address can be closed.
func TestAddressThatStaysInUse(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	late, err := listenLate(Options{Listen: other.Addr().String(), Reads: reads{}}, slog.New(slog.DiscardHandler), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := late.Close(); err != nil {
		t.Error(err)
	}
}

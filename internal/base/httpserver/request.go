package httpserver

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// IsLoopbackHost reports whether a Host header names loopback.
func IsLoopbackHost(host string) bool {
	address, localhost := parseHost(host)
	return localhost || address.Unmap().IsLoopback()
}

// IsNamedHost reports whether a Host header has another name than localhost, and no address. A page
// in a browser on this host may resolve such a name to loopback, and could then read the responses
// (DNS rebinding).
func IsNamedHost(host string) bool {
	address, localhost := parseHost(host)
	return !localhost && !address.IsValid()
}

func parseHost(host string) (address netip.Addr, localhost bool) {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	address, _ = netip.ParseAddr(host) // invalid: a name
	return address, strings.EqualFold(host, "localhost")
}

// SkipBody prevents the server from waiting for the body of a request, and closes the connection
// after the response. Call it if no path accepts a body.
func SkipBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
		_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // fails only if it is closed
	}
}

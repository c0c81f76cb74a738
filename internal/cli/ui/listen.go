package ui

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// DefaultListen is where the page is if nothing else is said.
const DefaultListen = "127.0.0.1:5388"

// ParseListen checks an address: 127.0.0.1 or ::1 and a port, 0 for any that is free. No other
// address is taken: these are the names that requests may have.
func ParseListen(address string) (string, error) {
	host, number, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("--listen %.60q: want an address and a port, as %s", address, DefaultListen)
	}
	if _, err := strconv.ParseUint(number, 10, 16); err != nil {
		return "", fmt.Errorf("--listen %.60q: port %.20q: want a number of 0 to 65535", address, number)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if ip = ip.Unmap(); err != nil || ip != netip.AddrFrom4([4]byte{127, 0, 0, 1}) &&
		ip != netip.IPv6Loopback() {
		return "", fmt.Errorf("--listen %.60q: the page is on loopback only (127.0.0.1, [::1]): to see "+
			"it from another machine, "+
			"leave it there and forward the port: ssh -L %s:127.0.0.1:%s NODE", address, number, number)
	}
	return net.JoinHostPort(ip.String(), number), nil
}

// port is the one that a listener has.
func port(l net.Listener) string {
	_, number, _ := net.SplitHostPort(l.Addr().String()) // it has one
	return number
}

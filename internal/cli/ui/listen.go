package ui

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// DefaultListen is the default address of the page.
const DefaultListen = "127.0.0.1:5388"

// ParseListen returns the normalized form of an address: localhost, 127.0.0.1 or ::1, and a port; 0
// means any free port. It rejects other addresses, because requests may name only these.
func ParseListen(address string) (string, error) {
	host, number, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("--listen %.60q: want an address and a port, such as %s", address, DefaultListen)
	}
	if _, err := strconv.ParseUint(number, 10, 16); err != nil {
		return "", fmt.Errorf("--listen %.60q: port %.20q: want a number from 0 to 65535", address, number)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if ip = ip.Unmap(); err != nil || ip != netip.AddrFrom4([4]byte{127, 0, 0, 1}) &&
		ip != netip.IPv6Loopback() {
		return "", fmt.Errorf("--listen %.60q: the page is served on loopback only (127.0.0.1, [::1]): "+
			"to open it from another machine, forward the port: ssh -L %s:127.0.0.1:%s NODE", address, number, number)
	}
	return net.JoinHostPort(ip.String(), number), nil
}

// port returns the port of a listener.
func port(l net.Listener) string {
	_, number, _ := net.SplitHostPort(l.Addr().String()) // it has one
	return number
}

package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
)

// checkListen checks what the agent serves on the network by. Whoever reaches it reads names of
// pods, so that an address which others reach needs a certificate and a token.
func (c *Config) checkListen() error {
	for _, f := range []struct{ field, value string }{
		{"tlsCertFile", c.TLSCertFile}, {"tlsPrivateKeyFile", c.TLSPrivateKeyFile},
		{"bearerTokenFile", c.BearerTokenFile},
	} {
		if f.value != "" && !filepath.IsAbs(f.value) {
			return wrong(fmt.Errorf("%q: want an absolute path", f.value), f.field)
		}
		if f.value != "" && c.Listen == "" {
			return wrong(errors.New("nothing is served on the network without listen: set that, too, or "+
				"leave this out"), f.field)
		}
	}
	switch {
	case c.Listen == "":
		return nil
	case (c.TLSCertFile == "") != (c.TLSPrivateKeyFile == ""):
		return wrong(errors.New("a certificate and its key are given by tlsCertFile and "+
			"tlsPrivateKeyFile together"), "tlsCertFile")
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return wrong(fmt.Errorf("%q: want ADDRESS:PORT, as 127.0.0.1:9100 or [::1]:9100", c.Listen),
			"listen")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return wrong(fmt.Errorf("%q: want a port of 1 to 65535", c.Listen), "listen")
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return wrong(fmt.Errorf("%q: want an IP address before the port, as 127.0.0.1, ::1 or 0.0.0.0",
			c.Listen), "listen")
	}
	if !address.Unmap().IsLoopback() && (c.TLSCertFile == "" || c.BearerTokenFile == "") {
		return wrong(fmt.Errorf("%q is not loopback: others reach it, so that it needs tlsCertFile, "+
			"tlsPrivateKeyFile and bearerTokenFile",
			c.Listen), "listen")
	}
	return nil
}

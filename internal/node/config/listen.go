package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
)

// checkListen checks the network listener. Its clients can read names of pods, so an address other
// than loopback needs a certificate and a token.
func (c *Config) checkListen() error {
	for _, f := range []struct{ field, value string }{
		{"tlsCertFile", c.TLSCertFile}, {"tlsPrivateKeyFile", c.TLSPrivateKeyFile},
		{"bearerTokenFile", c.BearerTokenFile},
	} {
		if f.value != "" && !filepath.IsAbs(f.value) {
			return fieldError(fmt.Errorf("%q: want an absolute path", f.value), f.field)
		}
		if f.value != "" && c.Listen == "" {
			return fieldError(errors.New("has no effect without listen: set listen, or remove this field"),
				f.field)
		}
	}
	switch {
	case c.Listen == "":
		return nil
	case (c.TLSCertFile == "") != (c.TLSPrivateKeyFile == ""):
		return fieldError(errors.New("tlsCertFile and tlsPrivateKeyFile must be set together"), "tlsCertFile")
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fieldError(fmt.Errorf("%q: want ADDRESS:PORT, for example 127.0.0.1:9100 or [::1]:9100", c.Listen),
			"listen")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fieldError(fmt.Errorf("%q: want a port from 1 to 65535", c.Listen), "listen")
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return fieldError(fmt.Errorf("%q: want an IP address before the port, for example 127.0.0.1, ::1 or "+
			"0.0.0.0", c.Listen), "listen")
	}
	if !address.Unmap().IsLoopback() && (c.TLSCertFile == "" || c.BearerTokenFile == "") {
		return fieldError(fmt.Errorf("%q is reachable from the network: set tlsCertFile, tlsPrivateKeyFile "+
			"and bearerTokenFile, or use a loopback address", c.Listen), "listen")
	}
	return nil
}

package config

import (
	"strings"
	"testing"
)

// A loopback address needs nothing else. Any other address needs a certificate and a token.
func TestListen(t *testing.T) {
	const tls = "\ntlsCertFile: /c\ntlsPrivateKeyFile: /k\n"
	for text, says := range map[string]string{
		"listen: 127.0.0.1:9100":                           "",
		"listen: '[::1]:9100'":                             "",
		"listen: 127.0.0.1:9100\nbearerTokenFile: /t":      "",
		"listen: 127.8.8.8:9100" + tls:                     "",
		"listen: 10.0.0.1:9100\nbearerTokenFile: /t" + tls: "",
		"listen: 10.0.0.1:9100":                            "reachable from the network",
		"listen: 10.0.0.1:9100" + tls:                      "reachable from the network",
		"listen: 0.0.0.0:9100\nbearerTokenFile: /t":        "reachable from the network",
		"listen: '[::]:9100'":                              "reachable from the network",
		"listen: '[::ffff:127.0.0.1]:9100'":                "",
		"listen: ':9100'":                                  "want an IP address",
		"listen: localhost:9100":                           "want an IP address",
		"listen: 127.0.0.1":                                "ADDRESS:PORT",
		"listen: 127.0.0.1:0":                              "1 to 65535",
		"listen: 127.0.0.1:99999":                          "1 to 65535",
		"listen: 127.0.0.1:http":                           "1 to 65535",
		"listen: 127.0.0.1:9100\ntlsCertFile: /c":          "together",
		"listen: 127.0.0.1:9100\nbearerTokenFile: t":       "absolute",
		"bearerTokenFile: /t":                              "without listen",
	} {
		_, err := Parse([]byte("apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\n" + text + "\n"))
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%q: error %v, want %q", text, err, says)
		}
	}
}

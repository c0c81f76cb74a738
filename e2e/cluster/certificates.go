package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"time"
)

// authority signs the certificates of one cluster. Its keys are ECDSA: making a pair takes less
// than a millisecond.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pair pair // of itself
}

// pair is a certificate and its key, as PEM.
type pair struct{ cert, key []byte }

// lifetime is the validity of a certificate, from an hour ago: a guest's clock may differ.
const lifetime = 10 * 24 * time.Hour

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

func template(subject pkix.Name, usage x509.KeyUsage) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject, KeyUsage: usage, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lifetime),
	}, err
}

func newAuthority() (*authority, error) {
	key, keyPEM, keyErr := newKey()
	t, err := template(pkix.Name{CommonName: "test-ca"}, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature)
	if err := errors.Join(keyErr, err); err != nil {
		return nil, err
	}
	t.IsCA, t.BasicConstraintsValid = true, true
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert, key, pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM}}, err
}

// client makes a client certificate: its name is the user, its organisations are the groups.
func (a *authority) client(user string, groups ...string) (pair, error) {
	return a.sign(pkix.Name{CommonName: user, Organization: groups}, nil, x509.ExtKeyUsageClientAuth)
}

// server makes a serving certificate for these names and addresses.
func (a *authority) server(hosts ...string) (pair, error) {
	return a.sign(pkix.Name{CommonName: hosts[0]}, hosts, x509.ExtKeyUsageServerAuth)
}

func (a *authority) sign(subject pkix.Name, hosts []string, usage x509.ExtKeyUsage) (pair, error) {
	key, keyPEM, keyErr := newKey()
	t, err := template(subject, x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment)
	if err := errors.Join(keyErr, err); err != nil {
		return pair{}, err
	}
	t.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	return pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM}, err
}

// accountKeys returns the keys that sign (key) and verify (cert: a public key, PKIX) the tokens of
// service accounts.
func accountKeys() (pair, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return pair{}, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	return pair{pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), keyPEM}, err
}

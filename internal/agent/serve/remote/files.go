package remote

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"jettison/internal/base/atomicfile"
)

const (
	// recheck is the shortest time between two checks of a file for a change. Connections trigger
	// the checks.
	recheck = time.Second
	// leastToken and mostToken bound the length of a token in bytes. A shorter one could be
	// guessed.
	leastToken = 16
	mostToken  = 4 << 10
)

// watched are files that are read again after a change: another file at the path (in the volume of
// a Secret, links are swapped), another size or time.
type watched struct {
	paths []string
	now   func() time.Time

	mu      sync.Mutex
	checked time.Time
	seen    []os.FileInfo
}

// changed reports whether the files have changed, at most once in recheck. mu is held.
func (f *watched) changed() bool {
	now := f.now()
	if !f.checked.IsZero() && now.Sub(f.checked) < recheck {
		return false
	}
	f.checked = now
	infos := make([]os.FileInfo, len(f.paths))
	same := len(f.seen) == len(f.paths)
	for i, path := range f.paths {
		infos[i], _ = os.Stat(path) // a missing file counts as changed: reading it gives the error
		same = same && infos[i] != nil && f.seen[i] != nil && os.SameFile(infos[i], f.seen[i]) &&
			infos[i].Size() == f.seen[i].Size() && infos[i].ModTime().Equal(f.seen[i].ModTime())
	}
	f.seen = infos
	return !same
}

// token is the bearer token that clients must send.
type token struct {
	watched
	sum [sha256.Size]byte // of the token, which is not kept
	ok  bool
}

func openToken(path string) (*token, error) {
	t := &token{watched: watched{paths: []string{path}, now: time.Now}}
	t.changed()
	return t, t.read()
}

// read reads the file. If it cannot be read or contains no token, all requests are rejected.
func (t *token) read() error {
	t.ok = false
	text, err := readSecret(t.paths[0], mostToken)
	if err != nil {
		return fmt.Errorf("bearerTokenFile: %w", err)
	}
	text = bytes.TrimSpace(text)
	if len(text) < leastToken || bytes.ContainsAny(text, " \t\r\n") {
		return fmt.Errorf("bearerTokenFile %s: want one token of at least %d bytes, without spaces",
			t.paths[0], leastToken)
	}
	t.sum, t.ok = sha256.Sum256(text), true
	return nil
}

// matches reports whether an Authorization header has the token. Its time does not depend on the
// part of the token that is right.
func (t *token) matches(header string) bool {
	scheme, given, _ := strings.Cut(header, " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(given)))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed() && t.read() != nil { // then t.ok is false
		t.seen = nil // try again: new permissions change neither size nor time
	}
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1 &&
		t.ok
}

// worldAccess are the permissions of every user to read and to write.
const worldAccess = 0o006

// readSecret reads a secret file. It rejects one that every user of the node may read or write,
// since such a user could then authenticate.
func readSecret(path string, most int64) ([]byte, error) {
	f, err := atomicfile.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&worldAccess != 0 {
		return nil, fmt.Errorf("%s: every user may read or write it (%v): run chmod o-rw %s; for the volume of a "+
			"Secret, set defaultMode: 0400",
			path, info.Mode(), path)
	}
	text, err := atomicfile.ReadAll(f, most)
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return text, nil
}

// certificate is the certificate that clients see.
type certificate struct {
	watched
	current *tls.Certificate
}

func openCertificate(cert, key string) (*certificate, error) {
	c := &certificate{watched: watched{paths: []string{cert, key}, now: time.Now}}
	c.changed()
	return c, c.read()
}

// maxPEM bounds a certificate or key file in bytes.
const maxPEM = 1 << 20

func (c *certificate) read() error {
	cert, err := atomicfile.Read(c.paths[0], maxPEM, os.O_RDONLY)
	key, keyErr := readSecret(c.paths[1], maxPEM)
	if err = errors.Join(err, keyErr); err != nil {
		return fmt.Errorf("tlsCertFile, tlsPrivateKeyFile: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("tlsCertFile %s, tlsPrivateKeyFile %s: %w", c.paths[0], c.paths[1], err)
	}
	c.current = &pair
	return nil
}

// get returns the current certificate. If the files cannot be read, as between the writes of the
// two, it returns the previous one.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed() {
		if c.read() != nil {
			c.seen = nil // try again
		}
	}
	return c.current, nil
}

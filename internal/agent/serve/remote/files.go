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
	// recheck is how often a file is looked at for a change, while somebody connects.
	recheck = time.Second
	// leastToken and mostToken are the bounds of a token in bytes: one that can be guessed is none.
	leastToken = 16
	mostToken  = 4 << 10
)

// watched are files that are read again when they have changed: another file at the path (a
// Secret's are links that are swapped), another size or time.
type watched struct {
	paths []string
	now   func() time.Time

	mu     sync.Mutex
	looked time.Time
	seen   []os.FileInfo
}

// changed reports whether they have, at most once a second. mu is held.
func (f *watched) changed() bool {
	now := f.now()
	if !f.looked.IsZero() && now.Sub(f.looked) < recheck {
		return false
	}
	f.looked = now
	infos := make([]os.FileInfo, len(f.paths))
	same := len(f.seen) == len(f.paths)
	for i, path := range f.paths {
		infos[i], _ = os.Stat(path) // what is gone is read, and says so
		same = same && infos[i] != nil && f.seen[i] != nil && os.SameFile(infos[i], f.seen[i]) &&
			infos[i].Size() == f.seen[i].Size() && infos[i].ModTime().Equal(f.seen[i].ModTime())
	}
	f.seen = infos
	return !same
}

// token is the one that clients send.
type token struct {
	watched
	sum [sha256.Size]byte // of the token; it is kept nowhere itself
	ok  bool
}

func openToken(path string) (*token, error) {
	t := &token{watched: watched{paths: []string{path}, now: time.Now}}
	t.changed()
	return t, t.read()
}

// read reads the file. One that cannot be read, or holds no token, lets nobody in.
func (t *token) read() error {
	t.ok = false
	text, err := readSecret(t.paths[0], mostToken)
	if err != nil {
		return fmt.Errorf("bearerTokenFile: %w", err)
	}
	text = bytes.TrimSpace(text)
	if len(text) < leastToken || bytes.ContainsAny(text, " \t\r\n") {
		return fmt.Errorf("bearerTokenFile %s: want one token of %d bytes at least, without spaces",
			t.paths[0], leastToken)
	}
	t.sum, t.ok = sha256.Sum256(text), true
	return nil
}

// is reports whether a header Authorization has the token, in a time that does not tell how much of
// it is right.
func (t *token) is(header string) bool {
	scheme, given, _ := strings.Cut(header, " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(given)))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed() && t.read() != nil { // nobody is let in then
		t.seen = nil // try again: that it may be read now changes no time of it
	}
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1 &&
		t.ok
}

// othersMay is the permission of every user to read or to write.
const othersMay = 0o006

// readSecret reads a file that is to be a secret: one that every user of the node may read lets all
// of them in.
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
	if info.Mode().Perm()&othersMay != 0 {
		return nil, fmt.Errorf("%s: every user may read or write it (%v): chmod o-rw %s; of a Secret's "+
			"volume, set defaultMode: 0400",
			path, info.Mode(), path)
	}
	text, err := atomicfile.ReadAll(f, most)
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return text, nil
}

// certificate is the one that clients are shown.
type certificate struct {
	watched
	current *tls.Certificate
}

func openCertificate(cert, key string) (*certificate, error) {
	c := &certificate{watched: watched{paths: []string{cert, key}, now: time.Now}}
	c.changed()
	return c, c.read()
}

// maxPEM is the most that a certificate or a key may have in bytes.
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

// get is the certificate as it is now. One that cannot be read, as between the writing of both
// files, leaves the one that was.
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

package remote

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A token or key file that every user may read is rejected at start, with an error that proposes a
// command. A certificate is no secret.
func TestWorldReadableSecretIsRejected(t *testing.T) {
	dir := t.TempDir()
	cert, key, _ := pair(t, dir, 1)
	secret := filepath.Join(dir, "token")
	if err := os.WriteFile(secret, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		mode os.FileMode
		ok   bool
	}{
		{cert, 0o644, true}, {key, 0o640, true}, {key, 0o644, false}, {key, 0o602, false}, {secret, 0o440, true}, {secret, 0o604, false},
	} {
		info, err := os.Stat(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(c.path, c.mode); err != nil {
			t.Fatal(err)
		}
		s, err := Listen(Options{
			Listen: "127.0.0.1:0", TLSCertFile: cert, TLSPrivateKeyFile: key, BearerTokenFile: secret, Reads: reads{},
		})
		if err == nil {
			_ = s.Close()
		}
		if ok := err == nil; ok != c.ok || !ok && !strings.Contains(err.Error(), "chmod o-rw "+c.path) {
			t.Errorf("listen with %s of mode %o: error %v, want accepted %v, or an error with chmod", filepath.Base(c.path), c.mode, err, c.ok)
		}
		if err := os.Chmod(c.path, info.Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

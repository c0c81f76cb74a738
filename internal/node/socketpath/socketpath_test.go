package socketpath

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Load returns the stored path, and nothing if the file's content is no path of a socket.
func TestLeft(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	for _, path := range []string{"/run/a.sock", "/run/b.sock", "", ""} {
		if err := Store(dir, path); err != nil {
			t.Fatal(err)
		}
		if got := Load(dir); got != path {
			t.Errorf("path of the socket = %q, want %q", got, path)
		}
	}
	for _, text := range []string{"", "\n", "a.sock", "/a\n/b\n", "/a\x00b", "/" + strings.Repeat("a", maxPath)} {
		if err := os.WriteFile(filepath.Join(dir, leftFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := Load(dir); got != "" {
			t.Errorf("path %q was read from the invalid text %q", got, text)
		}
	}
	if err := Store("", "/a"); err != nil || Load("") != "" || Load(filepath.Join(dir, "none")) != "" {
		t.Errorf("Leave without a state directory: %v", err)
	}
}

// Package filetest writes files for tests.
package filetest

import (
	"os"
	"path/filepath"
	"testing"
)

// Write writes a file, creates its directory if needed, and returns its path. It fails the test on
// an error.
func Write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

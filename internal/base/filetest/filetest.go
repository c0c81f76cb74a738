// Package filetest writes the files that a test reads.
package filetest

import (
	"os"
	"path/filepath"
	"testing"
)

// Write writes a file, whose folder it makes if it is missing, and returns its path. The test ends
// where it cannot.
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

package bootid

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	if id := Read("/proc"); len(id) != 36 {
		t.Errorf("boot ID of this machine = %q", id)
	}
	proc := t.TempDir()
	if id := Read(proc); id != "" {
		t.Errorf("boot ID without /proc = %q, want none", id)
	}
	file := filepath.Join(proc, "sys/kernel/random/boot_id")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"one\n": "one", "": "", "one two": "", "a\x1b": "", strings.Repeat("a", 65): ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if id := Read(proc); id != want {
			t.Errorf("boot ID of %q = %q, want %q", text, id, want)
		}
	}
}

// Uptime increases.
func TestUptime(t *testing.T) {
	before := Uptime()
	if after := Uptime(); before <= 0 || after < before {
		t.Errorf("uptime %v, then %v, want increasing values", before, after)
	}
}

package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"jettison/e2e/guestapi"
)

// The error about a folder without usable programs names the file and the fault.
func TestFolderOfCRIOsPrograms(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("needs a static program: install the package busybox-static")
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	place := func(name, from string) {
		t.Helper()
		_ = os.Remove(filepath.Join(dir, name))
		if err := copyFile(from, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(text string) {
		t.Helper()
		p := &parts{engine: guestapi.Containerd, tools: map[string]string{"containerd": "x", "runc": "y"}}
		err := p.crio(dir)
		switch {
		case text == "" && (err != nil || p.engine != guestapi.CRIO || len(p.tools) != 1+len(crioPrograms)):
			t.Errorf("error = %v, runtime %s, programs %v, want CRI-O and its programs", err, p.engine.Name, p.tools)
		case text != "" && (err == nil || !strings.Contains(err.Error(), text)):
			t.Errorf("error = %v, want one with %q", err, text)
		}
	}
	want("crio: no such file")
	place("crio", busybox)
	want("conmon: no such file")
	place("conmon", shell)
	want("conmon is linked dynamically: the folder needs the static programs crio, conmon, pinns")
	place("conmon", busybox)
	if err := os.WriteFile(filepath.Join(dir, "pinns"), []byte("text"), 0o755); err != nil {
		t.Fatal(err)
	}
	want("pinns is not a program")
	if err := os.Chmod(filepath.Join(dir, "pinns"), 0o644); err != nil {
		t.Fatal(err)
	}
	want("pinns is not an executable file")
	place("pinns", busybox)
	want("")
}

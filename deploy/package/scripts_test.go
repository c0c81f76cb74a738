// Package packaged tests the scripts of the Debian package, as far as they need no systemd. The
// scenarios of e2e install the package.
package packaged

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"jettison/internal/base/atomicfile"
)

// A purge leaves no file, except those of another agent that runs here: a DaemonSet's agent has the
// same folders.
func TestPurge(t *testing.T) {
	text, err := os.ReadFile("postrm")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := strings.NewReplacer("/var/lib/jettison", dir+"/state", "/run/jettison", dir+"/run", "/etc/jettison", dir+"/etc",
		"/run/systemd/system", dir+"/none").Replace(string(text))
	purge := func(want ...string) {
		t.Helper()
		cmd := exec.Command("sh", "-s", "purge")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("run the postrm script: %v: %s", err, out)
		}
		for _, name := range []string{"state", "run", "etc"} {
			_, err := os.Stat(filepath.Join(dir, name))
			if left := err == nil; left != strings.Contains(strings.Join(want, " "), name) {
				t.Errorf("%s exists after the purge: %v, want otherwise", name, left)
			}
		}
	}
	for _, name := range []string{"state", "run", "etc"} {
		if err := errors.Join(os.Mkdir(filepath.Join(dir, name), 0o700), os.WriteFile(filepath.Join(dir, name, "x"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := atomicfile.Lock(filepath.Join(dir, "state/agent.lock"))
	if err != nil {
		t.Fatal(err)
	}
	purge("state", "run")
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	purge()
}

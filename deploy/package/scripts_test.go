// Package packaged tests the scripts of the Debian package, as far as they need no systemd, and its
// list of files. The scenarios of e2e install the package.
package packaged

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

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

// The package has the licences, the bill of materials, man pages, shell completion, and each page that README.md links to.
func TestThePackagesFiles(t *testing.T) {
	text, err := os.ReadFile("nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		License  string
		Contents []struct{ Src, Dst string }
	}
	if err := yaml.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	if list.License != "Apache-2.0" {
		t.Errorf("licence of the package = %q, want Apache-2.0", list.License)
	}
	sources := map[string]string{}
	for _, c := range list.Contents {
		sources[c.Dst] = c.Src
		if _, err := os.Stat(filepath.Join("../..", c.Src)); err != nil && !strings.HasPrefix(c.Src, "bin/") { // bin: built
			t.Errorf("source of %s in the package cannot be read: %v", c.Dst, err)
		}
	}
	const doc = "/usr/share/doc/jettison/"
	for dst, src := range map[string]string{
		doc + "copyright":           "bin/deb/documents-${ARCH}/LICENSE",
		doc + "THIRD-PARTY-NOTICES": "bin/deb/documents-${ARCH}/THIRD-PARTY-NOTICES",
		doc + "jettison.cdx.json":   "bin/deb/documents-${ARCH}/jettison.cdx.json",
		doc + "SECURITY.md":         "SECURITY.md",
		doc + "SUPPORT.md":          "SUPPORT.md",
		doc + "docs":                "bin/deb/docs",
		"/usr/share/man/man1":       "bin/deb/man",
		"/usr/share/bash-completion/completions/jettison":    "deploy/package/completion/jettison.bash",
		"/usr/share/zsh/vendor-completions/_jettison":        "deploy/package/completion/_jettison",
		"/usr/share/fish/vendor_completions.d/jettison.fish": "deploy/package/completion/jettison.fish",
	} {
		if sources[dst] != src {
			t.Errorf("source of %s = %q, want %q", dst, sources[dst], src)
		}
	}
}

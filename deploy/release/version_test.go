package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/semver"
)

// checkout is a repository with a file VERSION and the script that prints its version.
type checkout struct {
	t   *testing.T
	dir string
}

func newCheckout(t *testing.T) *checkout {
	t.Helper()
	c := &checkout{t: t, dir: t.TempDir()}
	script, err := os.ReadFile("version")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(c.dir, "deploy/release"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.dir, "deploy/release/version"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	c.write("VERSION", "0.1.0\n")
	return c
}

func (c *checkout) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// git runs a command of git at a time of the commit.
func (c *checkout) git(time string, args ...string) {
	c.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=n@localhost"}, args...)...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), "GIT_COMMITTER_DATE="+time, "GIT_AUTHOR_DATE="+time)
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("run git with the arguments %v: %v: %s", args, err, out)
	}
}

func (c *checkout) version() string {
	c.t.Helper()
	cmd := exec.Command(filepath.Join(c.dir, "deploy/release/version"))
	cmd.Env = append(os.Environ(), "TZ=America/New_York", "GIT_CEILING_DIRECTORIES="+filepath.Dir(c.dir))
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("run the script that prints the version: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// The versions of a checkout's history sort in its order, as semantic versions and as dpkg's.
func TestVersionsSort(t *testing.T) {
	c := newCheckout(t)
	versions := []string{c.version()} // no repository
	c.git("2026-11-26T23:30:00-05:00", "init", "-q")
	c.git("2026-11-26T23:30:00-05:00", "add", ".")
	c.git("2026-11-26T23:30:00-05:00", "commit", "-qm", "first")
	versions = append(versions, c.version())
	c.write("VERSION", "0.1.0\n\n")
	versions = append(versions, c.version()) // changed files
	c.git("2026-11-27T09:00:00Z", "commit", "-qam", "second, on the same day in UTC")
	c.git("2026-11-27T09:00:00Z", "tag", "v0.0.9") // of another version
	versions = append(versions, c.version())
	c.git("2026-11-27T09:00:00Z", "tag", "v0.1.0-rc.1")
	versions = append(versions, c.version())
	c.git("2026-11-28T00:00:00Z", "commit", "--allow-empty", "-qm", "third")
	c.git("2026-11-28T00:00:00Z", "tag", "-a", "-m", "release", "v0.1.0")
	versions = append(versions, c.version())

	for i, want := range []string{`0\.1\.0-dev`, `0\.1\.0-dev\.20261127043000\.g[0-9a-f]{12}`,
		`0\.1\.0-dev\.20261127043000\.g[0-9a-f]{12}\.dirty`, `0\.1\.0-dev\.20261127090000\.g[0-9a-f]{12}`, `0\.1\.0-rc\.1`, `0\.1\.0`} {
		if !regexp.MustCompile("^" + want + "$").MatchString(versions[i]) {
			t.Errorf("version %d = %q, want %s", i, versions[i], want)
		}
		if !semver.IsValid("v" + versions[i]) {
			t.Errorf("version %q is no semantic version", versions[i])
		}
	}
	if !slices.IsSortedFunc(versions, func(a, b string) int { return semver.Compare("v"+a, "v"+b) }) {
		t.Errorf("versions %q do not sort by semantic versions", versions)
	}
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("no dpkg")
	}
	for i, v := range versions[1:] {
		older, newer := debVersion(t, versions[i]), debVersion(t, v)
		if err := exec.Command("dpkg", "--compare-versions", older, "lt", newer).Run(); err != nil {
			t.Errorf("dpkg: version %s is not before %s: %v", older, newer, err)
		}
	}
}

// debVersion asks the Makefile for dpkg's form of a version.
func debVersion(t *testing.T, version string) string {
	t.Helper()
	out, err := exec.Command("make", "-s", "-C", "../..", "deb-version", "VERSION="+version).Output()
	if err != nil {
		t.Fatalf("run make deb-version for dpkg's form of %s: %v", version, err)
	}
	return strings.TrimSpace(string(out))
}

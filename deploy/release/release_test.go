package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// Each module that a program links has a licence file with an allowed licence.
func TestLicensesAreAllowed(t *testing.T) {
	t.Chdir("../..")
	for _, name := range []string{"jettison", "jettison-bridge", "jettison-cluster"} {
		for _, arch := range []string{"amd64", "arm64"} {
			modules, err := linkedModules(target{path: "./cmd/" + name, goos: "linux", goarch: arch, tags: "grpcnotrace"})
			if err != nil {
				t.Errorf("list the modules of %s for %s: %v, want only allowed licences", name, arch, err)
				continue
			}
			if i := slices.IndexFunc(modules, func(m module) bool { return m.path == "k8s.io/apimachinery" }); i < 0 ||
				!slices.ContainsFunc(modules[i].files, func(f licenseFile) bool { return strings.HasPrefix(f.name, "third_party/") }) {
				t.Errorf("%s for %s: licence files of k8s.io/apimachinery's third_party code are missing", name, arch)
			}
		}
	}
}

// The licence of this repository is the canonical text of Apache-2.0.
func TestTheProjectsLicense(t *testing.T) {
	text, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := licensesOf([]licenseFile{{"LICENSE", string(text)}}); err != nil || !slices.Equal(ids, []string{"Apache-2.0"}) {
		t.Errorf("licences of LICENSE = %v, %v, want Apache-2.0", ids, err)
	}
}

func TestLicensesOf(t *testing.T) {
	const isc = "Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby " +
		"granted, provided that the above copyright notice and this permission notice appear in all copies.\n\n" +
		"THE SOFTWARE IS PROVIDED \"AS IS\" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE INCLUDING ALL " +
		"IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT, " +
		"INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN " +
		"ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF " +
		"THIS SOFTWARE.\n"
	zeroBSD := strings.Replace(isc, ", provided that the above copyright notice and this permission notice appear in all copies", "", 1)
	for _, c := range []struct {
		name  string
		files []licenseFile
		want  string // a licence, or a part of the error
	}{
		{"allowed", []licenseFile{{"LICENSE", isc}, {"NOTICE", "The authors."}}, "ISC"},
		{"none", nil, "no licence file"},
		{"only a notice", []licenseFile{{"NOTICE", "The authors."}}, "no licence file"},
		{"unknown text", []licenseFile{{"LICENSE", "Ask the author before any use of this software."}}, "LICENSE: 0 % of the text"},
		{"unknown addition", []licenseFile{{"LICENSE", isc + strings.Repeat("The software must not be used for evil. ", 20)}}, "LICENSE: "},
		{"not allowed", []licenseFile{{"sub/COPYING", zeroBSD}}, "licence 0BSD is not allowed"},
		{"one of two is not allowed", []licenseFile{{"LICENSE", isc}, {"sub/LICENSE", zeroBSD}}, "licence 0BSD is not allowed"},
	} {
		ids, err := licensesOf(c.files)
		got := strings.Join(ids, ", ")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) || (c.want == "ISC") != (err == nil) {
			t.Errorf("%s: licences = %q, want %q", c.name, got, c.want)
		}
	}
}

// Licence files are those in the folders of linked packages and above, not those of other packages.
func TestLicenseFiles(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"LICENSE.md", "license.go", "README.md", "a/COPYING", "a/b/Notice.txt", "other/LICENSE"} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := &module{}
	for range 2 {
		if err := m.add(filepath.Join(root, "a/b"), root); err != nil {
			t.Fatal(err)
		}
	}
	want := []licenseFile{{"LICENSE.md", "LICENSE.md"}, {"a/COPYING", "a/COPYING"}, {"a/b/Notice.txt", "a/b/Notice.txt"}}
	if !slices.Equal(m.files, want) {
		t.Errorf("licence files = %q, want %q", m.files, want)
	}
}

// The documents of a binary, here of this command, list each of its modules.
func TestDocumentsOfABinary(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "release")
	cmd := exec.Command("go", "build", "-trimpath", "-o", binary, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build this command with go build: %v: %s", err, out)
	}
	p, err := inspect(binary)
	if err != nil {
		t.Fatal(err)
	}
	notices := p.notices()
	text, err := p.sbom("1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := json.Unmarshal(text, &bom); err != nil {
		t.Fatal(err)
	}
	if c := bom.Metadata.Component; c.Name != "release" || c.Version != "1.2.3" || (*c.Hashes)[0].Value != p.sha256 {
		t.Errorf("component of the SBOM = %+v, want release 1.2.3 with the binary's digest", c)
	}
	for _, want := range []string{"std", "github.com/CycloneDX/cyclonedx-go", "github.com/google/licensecheck"} {
		i := slices.IndexFunc(p.modules, func(m module) bool { return m.path == want })
		if i < 0 {
			t.Errorf("modules of the binary lack %s", want)
			continue
		}
		m := p.modules[i]
		for _, f := range m.files {
			if !bytes.Contains(notices, []byte(strings.TrimRight(f.text, "\n"))) {
				t.Errorf("the notices lack %s of %s", f.name, m.path)
			}
		}
		if !slices.ContainsFunc(*bom.Components, func(c cdx.Component) bool { return c.Name == m.path && c.Version == m.version }) {
			t.Errorf("the SBOM has no component %s with version %s", m.path, m.version)
		}
	}
	again, err := inspect(binary)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := again.sbom("1.2.3"); err != nil || !bytes.Equal(other, text) || !bytes.Equal(again.notices(), notices) {
		t.Errorf("documents of the same binary differ (%v)", err)
	}
	if _, err := inspect("/bin/sh"); err == nil {
		t.Error("inspect of a binary without build information succeeded, want an error")
	}
}

// SUPPORT.md lists the versions that the scenarios run.
func TestSupportedVersionsAreTested(t *testing.T) {
	t.Chdir("../..")
	page, err := os.ReadFile("SUPPORT.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, version, row string }{
		{"e2e/build/kubernetes.go", `\{"v([0-9.]+)", "v[0-9.]+"\}`, "Kubernetes"},
		{"e2e/vm/parts.go", `containerdVersion += "v([0-9.]+)"`, "runtime"},
		{"e2e/vm/parts.go", `runcVersion += "v([0-9.]+)"`, "runtime"},
	} {
		text, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(c.version).FindAllSubmatch(text, -1)
		row := regexp.MustCompile(`\| ` + c.row + ` \|([^|]*)\|`).FindSubmatch(page)
		if len(found) == 0 || row == nil {
			t.Fatalf("%d versions in %s, row %s of SUPPORT.md is %q, want both", len(found), c.file, c.row, row)
		}
		for _, v := range found {
			if !bytes.Contains(row[1], v[1]) {
				t.Errorf("row %s of SUPPORT.md is %q, want %s of %s", c.row, row[1], v[1], c.file)
			}
		}
	}
}

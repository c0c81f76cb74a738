package snapshot

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"jettison/internal/node/config"
	"jettison/internal/node/observe"
	"jettison/internal/node/sources"
)

// The archive has the available parts, lists the missing ones, and contains no environment variable.
func TestWrite(t *testing.T) {
	const secretly = "hunter2hunter2"
	t.Setenv("JETTISON_TOKEN", secretly)
	dir := t.TempDir()
	c := config.Default()
	c.Socket, c.StateDir, c.NodeLabels = filepath.Join(dir, "none.sock"), dir, map[string]string{"token": secretly, "zone": "a"}
	record := `{"version":1,"id":"20260101T000000.000000Z-0001","pod":{"uid":"u"},"began":{},"ranking":{},"outcome":"back"}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "records.jsonl"), []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	missing, err := write(t.Context(), options{
		look: observe.Options{Options: sources.Options{Config: &config.Loaded{Config: c, From: "a\ntest"}}}, node: "w1", version: "v1",
	}, &out)
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, &out)
	for name, want := range map[string]string{
		"versions.txt": "jettison v1 (", "config.yaml": "evictionHard:", "records.jsonl": `"id":"20260101T000000.000000Z-0001"`,
		"errors.txt": "state.json: agent at ",
	} {
		if !strings.Contains(files["jettison/"+name], want) {
			t.Errorf("file %s of the archive lacks %q:\n%s", name, want, files["jettison/"+name])
		}
	}
	if !strings.Contains(files["jettison/config.yaml"], "zone: a") || !strings.HasPrefix(files["jettison/config.yaml"], "# from a test\n") {
		t.Errorf("config.yaml lacks its origin or the label zone:\n%s", files["jettison/config.yaml"])
	}
	for name, text := range files {
		if strings.Contains(text, secretly) {
			t.Errorf("archive file %s contains a secret:\n%s", name, text)
		}
	}
	if len(missing) < 2 || !strings.HasPrefix(missing[0], "versions.txt: ") {
		t.Errorf("missing parts = %q, want versions.txt first and one more", missing)
	}
}

// The tree is written file by file, not from memory as a whole. A write error is returned and not listed as a missing part.
func TestTreeIsWrittenFileByFile(t *testing.T) {
	c := config.Default()
	c.Socket, c.StateDir = filepath.Join(t.TempDir(), "none.sock"), ""
	o := options{look: observe.Options{Options: sources.Options{Config: &config.Loaded{Config: c}}}, node: "w1", version: "v1"}
	if fs, err := sources.OpenCgroups(o.look.Options); err != nil {
		t.Skip("no cgroup v2 here:", err)
	} else {
		fs.Close()
	}
	var out bytes.Buffer
	if _, err := write(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	whole := out.Len()
	files := unpack(t, &out)
	for _, name := range []string{"cgroup/cgroup.controllers", "proc/meminfo"} {
		if files["jettison/tree/"+name] == "" {
			t.Errorf("archive lacks the file tree/%s", name)
		}
	}
	for _, most := range []int{0, whole / 2} {
		if missing, err := write(t.Context(), o, &full{most}); !errors.Is(err, errFull) || strings.Contains(strings.Join(missing, "\n"), errFull.Error()) {
			t.Errorf("writer full after %d bytes: missing %q, error %v, want only errFull", most, missing, err)
		}
	}
}

var errFull = errors.New("no space left")

// full is a writer that accepts left bytes.
type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if len(p) > f.left {
		return 0, errFull
	}
	f.left -= len(p)
	return len(p), nil
}

func unpack(t *testing.T, from io.Reader) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(from)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(zip); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil || head.Mode != 0o600 {
			t.Fatalf("archive file %s: error %v, mode %o, want 600", head.Name, err, head.Mode)
		}
		files[head.Name] = string(text)
	}
}

// Values that may be secrets are redacted at any depth; locations of secrets are not.
func TestHide(t *testing.T) {
	var n yaml.Node
	text := "bearerToken: a\nbearerTokenFile: /f\nSECRETS: [b, {c: d}]\nother: {password: e, empty: ''}\nplain: 1\n"
	if err := yaml.Unmarshal([]byte(text), &n); err != nil {
		t.Fatal(err)
	}
	hide(&n, false)
	out, err := yaml.Marshal(&n)
	if err != nil {
		t.Fatal(err)
	}
	want := "bearerToken: (redacted)\nbearerTokenFile: /f\nSECRETS: [(redacted), {c: (redacted)}]\nother: {password: (redacted), empty: ''}\nplain: 1\n"
	if string(out) != want {
		t.Errorf("redacted YAML is\n%s\nwant\n%s", out, want)
	}
}

// create overwrites no file, follows no link, and creates a file with mode 600.
func TestCreate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.tar.gz")
	f, err := create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the new file = %v, error %v, want 600", info.Mode(), err)
	}
	if err := os.Symlink(filepath.Join(dir, "target"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, filepath.Join(dir, "link")} {
		if _, err := create(name); !errors.Is(err, os.ErrExist) {
			t.Errorf("create of existing %s: error = %v, want ErrExist", name, err)
		}
	}
}

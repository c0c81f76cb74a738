package manifests

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"jettison/internal/base/filetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{ // want: the error, or "? " and the doubt
		{"YAML", head, ``},
		{"JSON", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"}}`, ``},
		{"an unknown field", head + "spec: {contianers: []}\n", `? unknown field "spec.contianers"`},
		{"a field twice", head + "spec:\n  priority: 1\n  priority: 2\n", `? yaml: unmarshal errors: line 6: key "priority" already set in map`},
		{"a second document", head + "---\nkind: Pod\n", ``},
		{"empty", "", `apiVersion "", kind "": want v1, Pod`},
		{"no YAML", "a: [", `not YAML: yaml: line 1: did not find expected node content`},
		{"a list", "- a\n", `the pod: want an object, got a list`},
		{"another kind", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n", `apiVersion "v1", kind "Service": want v1, Pod`},
		{"no kind", "metadata: {name: web}\n", `apiVersion "", kind "": want v1, Pod`},
		{"no name", "apiVersion: v1\nkind: Pod\n", `metadata.name: missing`},
		{"an absurd quantity", head + "spec: {containers: [{name: a, resources: {limits: {memory: '1e-99990000'}}}]}\n",
			`spec.containers[0].resources.limits.memory: quantity "1e-99990000": the exponent is not between -1000 and 1000`},
		{"a UID with a slash", "apiVersion: v1\nkind: Pod\nmetadata: {name: web, uid: a/b}\n", `metadata.uid: "a/b": want letters, digits and -`},
		{"a bomb", "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
			"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n", `not YAML: yaml: document contains excessive aliasing`},
	} {
		p, doubt, err := parse([]byte(c.text))
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		case doubt != nil:
			got = "? " + doubt.Error()
		}
		if got != c.want {
			t.Errorf("parse of %s:\n got %s\nwant %s", c.name, got, c.want)
		}
		if err == nil && (p.Name != "web" || p.Namespace != "default") {
			t.Errorf("parse of %s returned pod %s/%s", c.name, p.Namespace, p.Name)
		}
	}
}

// A missing request is the limit, as for pods from an API server.
func TestDefaults(t *testing.T) {
	p, _, err := parse([]byte(head + "spec: {containers: [{name: a, resources: {limits: {memory: 1Gi, cpu: 1}, requests: {cpu: 100m}}}]}\nstatus: {phase: Failed}\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := p.Spec.Containers[0].Resources.Requests
	if r.Memory().String() != "1Gi" || r.Cpu().String() != "100m" || *p.Spec.TerminationGracePeriodSeconds != 30 || p.Status.Phase != "" {
		t.Errorf("defaults: requests %v, grace period %v, status %v", r, p.Spec.TerminationGracePeriodSeconds, p.Status)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "spec: {containers: [{name: a}]}\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		began := time.Now()
		p, _, err := parse(text)
		if d := time.Since(began); d > time.Minute {
			t.Fatalf("parse of %d bytes took %v", len(text), d)
		}
		if err == nil && (p.Name == "" || p.Namespace == "") || err != nil && strings.ContainsAny(err.Error(), "\n\r") {
			t.Fatalf("parse returned pod %v and error %q", p, err)
		}
	})
}

// at is later than all writes of a test, so that a read is final.
func at() time.Time { return time.Now().Add(time.Hour) }

func text(name string) string { return strings.Replace(head, "web", name, 1) }

// look scans and returns the pods' names, and the errors without the directory.
func look(s *scanner, dir string) (names, errs []string) {
	pods, news := s.scan(context.Background(), at())
	for _, p := range pods {
		names = append(names, p.Name)
	}
	for _, err := range news {
		errs = append(errs, strings.ReplaceAll(err.Error(), dir, "DIR"))
	}
	return names, errs
}

func expect(t *testing.T, s *scanner, dir string, names, errs []string) {
	t.Helper()
	gotNames, gotErrs := look(s, dir)
	if !slices.Equal(gotNames, names) || !slices.Equal(gotErrs, errs) {
		t.Errorf("scan returned %q, errors %q\nwant %q, errors %q", gotNames, gotErrs, names, errs)
	}
}

// An invalid file is skipped and reported once.
func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	s := newScanner(dir)
	expect(t, s, dir, nil, nil)
	filetest.Write(t, filepath.Join(dir, "b.yaml"), text("b"))
	filetest.Write(t, filepath.Join(dir, "a.json"), `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`)
	filetest.Write(t, filepath.Join(dir, "README"), "not a pod")
	filetest.Write(t, filepath.Join(dir, ".hidden.yaml"), text("hidden"))
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	filetest.Write(t, filepath.Join(dir, "sub", "c.yaml"), text("c"))
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", filepath.Join(dir, "device")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("b.yaml", filepath.Join(dir, "zz")); err != nil { // the same pod: the last file is used
		t.Fatal(err)
	}
	filetest.Write(t, filepath.Join(dir, "large"), head+strings.Repeat("#", maxFile))
	expect(t, s, dir, []string{"a", "b"}, []string{
		`static pod manifest DIR/README: the pod: want an object, got "not a pod"`,
		`static pod manifest DIR/device: is neither a directory nor a file`,
		`static pod manifest DIR/large: is larger than 1048576 bytes`,
		`static pod manifest DIR/pipe: is neither a directory nor a file`,
		`static pod manifest DIR/sub: is a directory: not read`,
		`static pod manifest DIR/zz: pod default/b is also in an earlier file: this one is used`,
	})
	expect(t, s, dir, []string{"a", "b"}, nil)
	filetest.Write(t, filepath.Join(dir, "a.json"), "{")
	expect(t, s, dir, []string{"b"}, []string{`static pod manifest DIR/a.json: not YAML: yaml: line 1: did not find expected node content`})
	expect(t, s, dir, []string{"b"}, nil)
	filetest.Write(t, filepath.Join(dir, "a.json"), text("a"))
	expect(t, s, dir, []string{"a", "b"}, nil)
	filetest.Write(t, filepath.Join(dir, "a.json"), "{")
	expect(t, s, dir, []string{"b"}, []string{`static pod manifest DIR/a.json: not YAML: yaml: line 1: did not find expected node content`})
	os.RemoveAll(dir)
	expect(t, s, dir, nil, []string{`static pod manifest DIR: does not exist: no static pods`})
	expect(t, s, dir, nil, nil)
}

// A path that is a file is one manifest. While it is invalid, the last valid one is used, as in the
// kubelet.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pod.yaml")
	s := newScanner(path)
	expect(t, s, dir, nil, []string{`static pod manifest DIR/pod.yaml: does not exist: no static pods`})
	filetest.Write(t, path, text("a"))
	expect(t, s, dir, []string{"a"}, nil)
	filetest.Write(t, path, "{")
	expect(t, s, dir, []string{"a"}, []string{`static pod manifest DIR/pod.yaml: not YAML: yaml: line 1: did not find expected node content`})
	expect(t, s, dir, []string{"a"}, nil)
	filetest.Write(t, path, text("b"))
	expect(t, s, dir, []string{"b"}, nil)
	os.Remove(path)
	expect(t, s, dir, nil, []string{`static pod manifest DIR/pod.yaml: does not exist: no static pods`})
}

// An unchanged manifest keeps its pointer, so that nothing is done. A file is read again only if it
// may have changed without a new timestamp.
func TestUnchangedFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	filetest.Write(t, path, text("a"))
	written, err := stat(path)
	if err != nil {
		t.Fatal(err)
	}
	s := newScanner(dir)
	first, _ := s.scan(context.Background(), time.Unix(written.ctime.Unix())) // too early to be sure
	if s.files[path].final {
		t.Error("a file that was written just now counts as unchanged")
	}
	second, _ := s.scan(context.Background(), at())
	read := s.files[path]
	third, _ := s.scan(context.Background(), at())
	if !slices.Equal(first, second) || !slices.Equal(second, third) || s.files[path] != read {
		t.Errorf("pointers of three scans: %p %p %p, want equal ones without a read", first[0], second[0], third[0])
	}
}

func TestBounds(t *testing.T) {
	dir := t.TempDir()
	for i := range maxFiles + 1 {
		name := "p" + strings.Repeat("0", i%50) + string(rune('a'+i/50%26)) // 50*26 names
		filetest.Write(t, filepath.Join(dir, name), text("p"+strings.ToLower(name)))
	}
	s := newScanner(dir)
	names, errs := look(s, dir)
	if len(names) != maxFiles || !slices.Equal(errs, []string{`static pod manifest DIR: more than 1000 files: ignoring the rest`}) {
		t.Errorf("scan of many files: %d manifests, errors %q", len(names), errs)
	}
	dir = t.TempDir()
	label := strings.Repeat("x", 900<<10)
	for _, name := range strings.Split("abcdefghijk", "") {
		filetest.Write(t, filepath.Join(dir, name), "apiVersion: v1\nkind: Pod\nmetadata: {name: "+name+", labels: {a: "+label+"}}\n")
	}
	names, errs = look(newScanner(dir), dir)
	if len(names) != 9 || len(errs) != 2 || errs[0] != `static pod manifest DIR/j: ignored: the manifests before it use the limit of 8Mi of memory` {
		t.Errorf("scan of large files: %d manifests, errors %.200q", len(names), errs)
	}
}

func TestReader(t *testing.T) {
	dir := t.TempDir()
	changed, reported := make(chan []*v1.Pod), make(chan error, 10)
	o := Options{Path: dir, Changed: func(p []*v1.Pod) { changed <- p }, Report: func(err error) { reported <- err }}
	r := startEvery(o, time.Millisecond)
	if got := <-changed; len(got) != 0 {
		t.Errorf("manifests of the first call = %v", got)
	}
	// A file that appears complete, as an editor or kubeadm creates it.
	filetest.Write(t, filepath.Join(dir, ".new"), text("a"))
	if err := os.Rename(filepath.Join(dir, ".new"), filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if got := <-changed; len(got) != 1 || got[0].Name != "a" {
		t.Errorf("manifests of the second call = %v", got)
	}
	filetest.Write(t, filepath.Join(dir, ".new"), "{")
	if err := os.Rename(filepath.Join(dir, ".new"), filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := <-reported; !strings.Contains(err.Error(), "b.yaml") {
		t.Errorf("reported error = %v, want the invalid file", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("close of the reader failed: %v", err)
	}
	if len(reported) != 0 {
		t.Errorf("error was reported a second time: %v", <-reported)
	}
}

// Reading does not block on a device or pipe that replaced a file between two scans.
func TestNotARegularFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readFile(path); err == nil || err.Error() != "is neither a directory nor a file" {
		t.Errorf("read of a pipe: error %v, want one without a wait", err)
	}
	if _, _, err := readFile(filepath.Join(path, "below")); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("read below a pipe: error %v, want ENOTDIR", err)
	}
}

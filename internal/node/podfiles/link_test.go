package podfiles

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func (b *box) symlink(target, path string) string {
	b.t.Helper()
	path = filepath.Join(b.root, path)
	must(b.t, os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path))
	return path
}

func TestLinks(t *testing.T) {
	b := newBox(t, t.TempDir())
	name := filepath.Base(b.log)
	nowhere := b.symlink("/log/pods/"+name+"/app/9.log", "links/nowhere")
	b.symlink("/log/pods/"+name+"/none/9.log", "links/no-directory")
	b.symlink("/log/pods/"+name+"/app/0.log", "links/there")
	b.symlink("/outside/none", "links/outside")
	b.symlink("/log/pods/../../outside/none", "links/up")
	b.symlink("/log/pods/", "links/itself")
	write(t, filepath.Join(b.root, "links/file"))
	b.symlink("/outside", "log/pods/"+name+"/evil")
	b.symlink("/log/pods/"+name+"/evil/none", "links/through")
	b.before = b.others()
	for entry, want := range map[string]string{
		"nowhere": "true", "no-directory": "true", "there": "false", "outside": "pod log directory", "up": "pod log directory",
		"itself": "pod log directory", "file": "not a symbolic link", "none": "no such file", "../links/nowhere": "not a file name", "": "not a file name", "through": "true",
	} {
		dangles, err := b.Dangling("/links", entry)
		got := map[bool]string{true: "true", false: "false"}[dangles]
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("Dangling(%q) = %s, want %s", entry, got, want)
		}
		if err := b.Link("/links", entry); (err == nil) != (want == "true" || entry == "none") {
			t.Errorf("Link(%q) = %v, want success only for dangling or missing links", entry, err)
		}
	}
	gone(t, nowhere)
	for _, removed := range []string{"nowhere", "no-directory", "through"} {
		delete(b.before, filepath.Join(b.root, "links", removed))
	}
	b.check("after links")
}

func TestList(t *testing.T) {
	b := newBox(t, t.TempDir())
	b.symlink("/outside", "log/pods/a-link")
	write(t, filepath.Join(b.root, "log/pods/a-file"))
	got, err := List(b.Host, "/log/pods")
	if err != nil || len(got) != 4 || got[0] != (Entry{Name: "a-file"}) || got[1] != (Entry{Name: "a-link", Link: true}) || !got[2].Dir {
		t.Errorf("List = %+v, %v, want 4 sorted entries with their types", got, err)
	}
	if got, err := List(b.Host, "/none"); len(got) > 0 || err != nil {
		t.Errorf("List of a missing directory = %+v, %v, want none", got, err)
	}
	if _, err := List(b.Host, "/log/pods/a-file"); err == nil {
		t.Error("a file has entries")
	}
	must(t, os.Mkdir(filepath.Join(b.root, "empty"), 0o755))
	if got, err := List(b.Host, "/empty"); len(got) > 0 || err != nil {
		t.Errorf("List of an empty directory = %+v, %v, want none", got, err)
	}
}

func TestContainerLog(t *testing.T) {
	b := newBox(t, t.TempDir())
	name := "/log/pods/" + filepath.Base(b.log)
	app := filepath.Join(b.log, "app")
	other := filepath.Join(app, "1.log")
	write(t, other)
	must(t, os.Symlink(b.outside+"/precious", app+"/0.log.link"), unix.Mkfifo(app+"/0.log.fifo", 0o600), os.Mkdir(app+"/0.log.dir", 0o755), os.Symlink(b.outside, b.log+"/evil"))
	r, err := b.ContainerLog(t.Context(), name+"/app/0.log")
	if err == nil || !strings.Contains(err.Error(), "not a regular file") || r.Entries != 2 || r.Bytes < 10000 {
		t.Errorf("ContainerLog = %+v, %v, want 2 files removed and an error about the directory", r, err)
	}
	gone(t, app+"/0.log", app+"/0.log.20260101-000000.gz")
	if _, err := os.Lstat(other); err != nil {
		t.Error("the log of another container is gone")
	}
	for _, path := range []string{
		"/outside/precious", "/log/pods/x", "/log/pods/a/b/c/d", name + "/../../outside/precious", name + "/app/..", name + "/app/", "", "/log/pods", name + "//0.log", name + "/app/\x00",
	} {
		if _, err := b.ContainerLog(t.Context(), path); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("ContainerLog(%q) = %v, want an error of one line", path, err)
		}
	}
	if r, err := b.ContainerLog(t.Context(), name+"/evil/precious"); err == nil || r.Entries > 0 {
		t.Errorf("ContainerLog through a link = %+v, %v, want an error without removals", r, err)
	}
	for _, path := range []string{name + "/none/0.log", "/log/pods/none/app/0.log", name + "/app/7.log"} {
		if r, err := b.ContainerLog(t.Context(), path); err != nil || r.Entries > 0 {
			t.Errorf("%q, which is not there: %+v, %v", path, r, err)
		}
	}
	b.check("after container logs")
}

// A listing may end after each entry: the rest must be listed with another call.
func TestAShortListing(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a", "b", "c", "d"} {
		must(t, os.Mkdir(filepath.Join(root, name), 0o755))
		write(t, filepath.Join(root, name+"-stays", "x"))
	}
	dir, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(dir)
	tr := newTree(root)
	tr.buf = tr.buf[:32] // one record
	must(t, tr.removeEmpty(dir, "p"), tr.error(nil))
	slices.Sort(tr.result.Left)
	if want := []string{"p/a-stays", "p/b-stays", "p/c-stays", "p/d-stays"}; tr.result.Entries != 4 || !slices.Equal(tr.result.Left, want) {
		t.Errorf("result = %+v, want 4 entries removed and %q left", tr.result, want)
	}
}

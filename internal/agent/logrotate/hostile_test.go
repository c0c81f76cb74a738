package logrotate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Files that cannot be compressed stay unchanged, and the log is rotated.
func TestRotationContinuesAfterFailedCompression(t *testing.T) {
	n := newNode(t)
	n.write("0.log", large("new"))
	secret := filepath.Join(n.root, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Symlink(secret, filepath.Join(n.dir, "0.log.20260101-000000")),
		unix.Mkfifo(filepath.Join(n.dir, "0.log.20260102-000000"), 0o600),
		os.Mkdir(filepath.Join(n.dir, "0.log.20260103-000000"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if r := n.fails("0.log.20260101-000000", "0.log.20260102-000000", "0.log.20260103-000000", "not a plain file"); r.Rotated != 1 || r.Compressed != 0 {
		t.Errorf("result = %+v, want one rotation without compression", r)
	}
	n.has("0.log", "0.log.20260101-000000", "0.log.20260102-000000", "0.log.20260103-000000", now)
	// More files than MaxFiles: these are not removed, because they are not logs.
	n.MaxFiles = 2
	n.write("0.log", large("newer"))
	if r := n.fails("remove \"0.log.20260101-000000\": not a plain file"); r.Rotated != 1 || r.Removed != 1 {
		t.Errorf("result with too many files = %+v, want one rotation and one removal", r)
	}
	n.has("0.log", "0.log.20260101-000000", "0.log.20260102-000000", "0.log.20260103-000000", now)
	if text, err := os.ReadFile(secret); err != nil || string(text) != "secret" {
		t.Errorf("target of the symbolic link = %q, %v; want it unchanged", text, err)
	}
}

// Files with similar names are not touched; the kubelet takes all that begin with the log's name.
func TestForeignNamesStay(t *testing.T) {
	n := newNode(t)
	n.MaxFiles = 2
	foreign := []string{"0.log.bak", "0.log.20260101-000000.gz.evil", "0.log.20260101-0000000", "0.log.20261301-000000", "0.log.", "0.log.tmp", "10.log.20260101-000000", "1.log", "x.tmp"}
	for _, name := range foreign {
		n.write(name, "")
	}
	n.write("0.log", large("new"))
	if r := n.pass(); r.Rotated != 1 || r.Removed != 0 || r.Compressed != 0 {
		t.Errorf("result = %+v, want only a rotation", r)
	}
	n.has(append(foreign, "0.log", now)...)
}

// Log paths are input from the runtime, and must not reach other files.
func TestPathsOutside(t *testing.T) {
	n := newNode(t)
	outside := filepath.Join(n.root, "log/outside")
	if err := os.MkdirAll(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(outside, "0.log")
	if err := os.WriteFile(victim, []byte(large("precious")), 0o644); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"log/pods/link": outside, "log/pods/" + folder + "/link.log": victim, "log/pods/up": ".."} {
		if err := os.Symlink(to, filepath.Join(n.root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(n.dir, "pipe.log"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/log/outside/0.log":                              "is not in /log/pods",
		"/log/pods/../outside/0.log":                      "not the plain path",
		"/log/pods/" + folder + "/../../../outside/0.log": "not the plain path",
		"/log/podsx/0.log":                                "is not in",
		"/log/pods":                                       "is not in",
		"/log/pods/":                                      "not the plain path",
		"/log/pods/a//0.log":                              "not the plain path",
		"/log/pods/a/.":                                   "not the plain path",
		"/log/pods/a\x00b/0.log":                          "not the plain path",
		"/log/pods/" + strings.Repeat("a", 256):           "not the plain path",
		"log/pods/" + folder + "/0.log":                   "is not in",
		"/log/pods/link/0.log":                            "not a directory",
		"/log/pods/up/outside/0.log":                      "too many levels of symbolic links",
		"/log/pods/" + folder + "/link.log":               "not a plain file",
		"/log/pods/" + folder + "/pipe.log":               "not a plain file",
		"/log/pods/shop_web_0f5b6f9e-6c0a-4a57-9d0b-0a3c4f1f7a11/app": "not a plain file",
		"/log/pods/gone/0.log": "no such file or directory",
	} {
		n.list[0].LogPath = path
		if r := n.fails(want); r != (Result{}) {
			t.Errorf("result for path %q = %+v, want no change", path, r)
		}
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != large("precious") {
		t.Error("log outside the directory changed:", err)
	}
	if got := n.runtime.Calls("ReopenContainerLog"); got != 0 {
		t.Errorf("%d logs reopened for paths outside, want 0", got)
	}
}

func TestPodLogsDirMayBeALink(t *testing.T) {
	n := newNode(t)
	if err := os.Symlink("/log/pods", filepath.Join(n.root, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	n.PodLogsDir = "/elsewhere/"
	n.list[0].LogPath = "/elsewhere/" + folder + "/0.log"
	n.write("0.log", large("x"))
	n.pass()
	n.has("0.log", now)
}

func FuzzParseOld(f *testing.F) {
	for _, name := range []string{now, now + ".gz", now + ".tmp", "0.log", "0.log.bak", "0.log.20261399-999999"} {
		f.Add("0.log", name)
	}
	f.Fuzz(func(t *testing.T, log, name string) {
		if stamp, suffix, ok := parseOld(log, name); ok && (log+"."+stamp+suffix != name || len(stamp) != len(stampFormat)) {
			t.Errorf("parseOld of %q for log %q = %q, %q; want parts of the name", name, log, stamp, suffix)
		}
	})
}

func FuzzBelow(f *testing.F) {
	for _, path := range []string{"/log/pods/a/0.log", "/log/pods/../x", "/log/pods//x", "/log/podsx"} {
		f.Add("/log/pods", path)
	}
	f.Fuzz(func(t *testing.T, dir, path string) {
		if rel, err := below(dir, path); err == nil && (filepath.IsAbs(rel) || !filepath.IsLocal(rel) || !strings.HasSuffix(path, "/"+rel)) {
			t.Errorf("below(%[2]q, %[1]q) = %[3]q, want a local path", path, dir, rel)
		}
	})
}

package atomicfile

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"jettison/internal/base/filetest"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	file := filetest.Write(t, filepath.Join(dir, "file"), "12345")
	link, pipe := filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.Symlink(file, link), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		limit      int64
		flags      int
		text, err  string
	}{
		{"of maximal size", file, 5, unix.O_NOFOLLOW, "12345", ""},
		{"too large", file, 4, 0, "", "read " + file + ": larger than 4 bytes"},
		{"a link that is followed", link, 5, 0, "12345", ""},
		{"a link that is not followed", link, 5, unix.O_NOFOLLOW, "", "open " + link + ": is a symbolic link, not followed"},
		{"a pipe", pipe, 5, 0, "", "open " + pipe + ": not a regular file"},
		{"a directory", dir, 5, 0, "", "open " + dir + ": not a regular file"},
		{"an endless device", "/dev/zero", 5, 0, "", "open /dev/zero: not a regular file"},
	} {
		text, err := Read(c.path, c.limit, c.flags)
		if string(text) != c.text || c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) {
			t.Errorf("Read of %s = %q, error %v; want %q, %s", c.name, text, err, c.text, c.err)
		}
		if wrapped := (*os.PathError)(nil); err != nil && !errors.As(err, &wrapped) {
			t.Errorf("error type for %s = %T, want *os.PathError", c.name, err)
		}
	}
	if _, err := Read(filepath.Join(dir, "none"), 5, 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Read of a missing file: error %v, want ErrNotExist", err)
	}
}

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path, target := filepath.Join(dir, "file"), filetest.Write(t, filepath.Join(dir, "target"), "x")
	put := func(text string) error {
		return Replace(path, func(f *os.File) error {
			_, err := f.WriteString(text)
			return err
		})
	}
	checkFiles := func(want string) {
		t.Helper()
		text, _ := os.ReadFile(path)
		info, err := os.Lstat(path)
		if err != nil || string(text) != want || info.Mode() != 0o600 {
			t.Errorf("file = %q, %v, %v; want %q with mode 0600", text, info, err, want)
		}
		if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) != 2 {
			t.Errorf("files in the directory = %v, want two", names)
		}
	}
	// Files or links with the names of temporary files are removed, and not written through.
	if err := errors.Join(os.Symlink(target, path+".tmp"), os.Symlink(target, path+".ABCDEF.tmp")); err != nil {
		t.Fatal(err)
	}
	if err := put("one"); err != nil {
		t.Fatal(err)
	}
	Clean(path)
	checkFiles("one")
	// A symbolic link is replaced, not its target.
	if err := errors.Join(os.Remove(path), os.Symlink(target, path)); err != nil {
		t.Fatal(err)
	}
	if err := put("two"); err != nil {
		t.Fatal(err)
	}
	checkFiles("two")
	full := errors.New("disk full")
	if err := Replace(path, func(*os.File) error { return full }); !errors.Is(err, full) {
		t.Errorf("Replace with a failing fill: error %v, want %v", err, full)
	}
	checkFiles("two")
	if text, _ := os.ReadFile(target); string(text) != "x" {
		t.Errorf("target of the symbolic link = %q, want x", text)
	}
	if err := Replace(filepath.Join(dir, "none", "file"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Replace in a missing directory: error %v, want ErrNotExist", err)
	}
}

// If two processes replace a file at the same time, the result is the whole content of one of them.
func TestConcurrentReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	err := Replace(path, func(f *os.File) error {
		if _, err := f.WriteString("the first's, "); err != nil {
			return err
		}
		if err := Replace(path, func(f *os.File) error { _, err := f.WriteString("the second's"); return err }); err != nil {
			t.Errorf("Replace of the second process: %v", err)
		}
		if text, err := os.ReadFile(path); string(text) != "the second's" {
			t.Errorf("file after the second = %q, %v; want its content", text, err)
		}
		_, err := f.WriteString("all of it")
		return err
	})
	if err != nil {
		t.Errorf("Replace of the first process: %v", err)
	}
	if text, err := os.ReadFile(path); string(text) != "the first's, all of it" {
		t.Errorf("file after the first = %q, %v; want its whole content", text, err)
	}
}

// Clean removes the temporary files of Replace, and no others.
func TestClean(t *testing.T) {
	dir := t.TempDir()
	names := []string{"file", "file.tmp", "file.ABC.tmp", "file.tmp.", "files.tmp", "other.tmp", "file.tmpx", ".file.tmp", "a.file.tmp"}
	for _, name := range names {
		filetest.Write(t, filepath.Join(dir, name), "x")
	}
	for range 600 { // more than one read of the directory returns
		if err := os.WriteFile(filepath.Join(dir, "file."+rand.Text()+".tmp"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	Clean(filepath.Join(dir, "file"))
	Clean(filepath.Join(dir, "none", "file"))
	left, err := os.ReadDir(dir)
	var got []string
	for _, e := range left {
		got = append(got, e.Name())
	}
	want := []string{".file.tmp", "a.file.tmp", "file", "file.tmp.", "file.tmpx", "files.tmp", "other.tmp"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("files after Clean = %q, want %q; error %v", got, want, err)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("second Lock: error %v, want ErrLocked", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if _, err := Lock(filepath.Dir(path)); err == nil || errors.Is(err, ErrLocked) {
		t.Errorf("Lock of a directory: error %v, want another than ErrLocked", err)
	}
}

func TestReadAll(t *testing.T) {
	if text, err := ReadAll(strings.NewReader("123"), 3); string(text) != "123" || err != nil {
		t.Errorf("ReadAll up to the limit = %q, %v; want 123", text, err)
	}
	if text, err := ReadAll(strings.NewReader("123"), 2); text != nil || err != TooLarge(2) {
		t.Errorf("ReadAll beyond the limit = %q, %v; want TooLarge(2)", text, err)
	}
}

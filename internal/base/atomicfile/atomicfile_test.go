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
		most       int64
		flags      int
		text, err  string
	}{
		{"as large as may be", file, 5, unix.O_NOFOLLOW, "12345", ""},
		{"larger", file, 4, 0, "", "read " + file + ": larger than 4 bytes"},
		{"a link that is followed", link, 5, 0, "12345", ""},
		{"a link that is not", link, 5, unix.O_NOFOLLOW, "", "open " + link + ": is a symbolic link, which is not followed"},
		{"a pipe", pipe, 5, 0, "", "open " + pipe + ": is no regular file"},
		{"a directory", dir, 5, 0, "", "open " + dir + ": is no regular file"},
		{"without an end", "/dev/zero", 5, 0, "", "open /dev/zero: is no regular file"},
	} {
		text, err := Read(c.path, c.most, c.flags)
		if string(text) != c.text || c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) {
			t.Errorf("%s: %q, %v", c.name, text, err)
		}
		if wrapped := (*os.PathError)(nil); err != nil && !errors.As(err, &wrapped) {
			t.Errorf("%s: %T", c.name, err)
		}
	}
	if _, err := Read(filepath.Join(dir, "none"), 5, 0); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
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
	only := func(want string) {
		t.Helper()
		text, _ := os.ReadFile(path)
		info, err := os.Lstat(path)
		if err != nil || string(text) != want || info.Mode() != 0o600 {
			t.Errorf("%q, %v, %v", text, info, err)
		}
		if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) != 2 {
			t.Errorf("left: %v", names)
		}
	}
	// What a process that died in the middle left, or another one laid there, is removed and not written through.
	if err := errors.Join(os.Symlink(target, path+".tmp"), os.Symlink(target, path+".ABCDEF.tmp")); err != nil {
		t.Fatal(err)
	}
	if err := put("one"); err != nil {
		t.Fatal(err)
	}
	Clean(path)
	only("one")
	// A file that is a link is replaced itself.
	if err := errors.Join(os.Remove(path), os.Symlink(target, path)); err != nil {
		t.Fatal(err)
	}
	if err := put("two"); err != nil {
		t.Fatal(err)
	}
	only("two")
	full := errors.New("disk full")
	if err := Replace(path, func(*os.File) error { return full }); !errors.Is(err, full) {
		t.Error(err)
	}
	only("two")
	if text, _ := os.ReadFile(target); string(text) != "x" {
		t.Errorf("a link was followed: %q", text)
	}
	if err := Replace(filepath.Join(dir, "none", "file"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// Two processes that replace a file at the same time do not spoil each other's: what is there in the end is whole, and of one of them.
func TestTwoReplaceAtTheSameTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	err := Replace(path, func(f *os.File) error {
		if _, err := f.WriteString("the first's, "); err != nil {
			return err
		}
		if err := Replace(path, func(f *os.File) error { _, err := f.WriteString("the second's"); return err }); err != nil {
			t.Errorf("the second: %v", err)
		}
		if text, err := os.ReadFile(path); string(text) != "the second's" {
			t.Errorf("in between: %q, %v", text, err)
		}
		_, err := f.WriteString("all of it")
		return err
	})
	if err != nil {
		t.Errorf("the first: %v", err)
	}
	if text, err := os.ReadFile(path); string(text) != "the first's, all of it" {
		t.Errorf("%q, %v", text, err)
	}
}

// What is removed is what Replace calls its files, and nothing else.
func TestClean(t *testing.T) {
	dir := t.TempDir()
	names := []string{"file", "file.tmp", "file.ABC.tmp", "file.tmp.", "files.tmp", "other.tmp", "file.tmpx", ".file.tmp", "a.file.tmp"}
	for _, name := range names {
		filetest.Write(t, filepath.Join(dir, name), "x")
	}
	for range 600 { // more than one read of the directory tells
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
		t.Errorf("%q, want %q; %v", got, want, err)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("the second: %v", err)
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
		t.Errorf("a directory: %v", err)
	}
}

func TestReadAll(t *testing.T) {
	if text, err := ReadAll(strings.NewReader("123"), 3); string(text) != "123" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := ReadAll(strings.NewReader("123"), 2); text != nil || err != TooLarge(2) {
		t.Errorf("%q, %v", text, err)
	}
}

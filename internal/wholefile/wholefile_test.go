package wholefile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "file"), "12345")
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
	path, target := filepath.Join(dir, "file"), write(t, filepath.Join(dir, "target"), "x")
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
	if err := os.Symlink(target, path+".tmp"); err != nil {
		t.Fatal(err)
	}
	if err := put("one"); err != nil {
		t.Fatal(err)
	}
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

func TestReadAll(t *testing.T) {
	if text, err := ReadAll(strings.NewReader("123"), 3); string(text) != "123" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := ReadAll(strings.NewReader("123"), 2); text != nil || err != TooLarge(2) {
		t.Errorf("%q, %v", text, err)
	}
}

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A folder in which others can replace the file makes it untrusted, like write access to the file.
// A folder with the sticky bit is safe except for links of other users. The folder of a ConfigMap
// is safe because its mount is read-only.
func TestWritableFolderIsRejected(t *testing.T) {
	const uid, gid = 1234, 4321
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files away")
	}
	chmod := func(mode os.FileMode) func(string) error {
		return func(path string) error { return os.Chmod(path, mode) }
	}
	chown := func(u, g int) func(string) error { return func(path string) error { return os.Lchown(path, u, g) } }
	both := func(do ...func(string) error) func(string) error {
		return func(path string) error {
			for _, f := range do {
				if err := f(path); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		change map[string]func(string) error
		path   string
		want   string // part of the error; empty: no error
	}{
		"plain":                          {nil, "d/c.yaml", ""},
		"the file is a group's":          {map[string]func(string) error{"d/c.yaml": both(chown(0, gid), chmod(0o664))}, "d/c.yaml", "chmod g-w "},
		"the file is root's group's":     {map[string]func(string) error{"d/c.yaml": chmod(0o664)}, "d/c.yaml", ""},
		"a group reads it":               {map[string]func(string) error{"d/c.yaml": both(chown(0, gid), chmod(0o640))}, "d/c.yaml", ""},
		"the folder is everybody's":      {map[string]func(string) error{"d": chmod(0o777)}, "d/c.yaml", "every user may write to it"},
		"the folder is a user's":         {map[string]func(string) error{"d": chown(uid, 0)}, "d/c.yaml", "it belongs to user 1234"},
		"the folder is a group's":        {map[string]func(string) error{"d": both(chown(0, gid), chmod(0o775))}, "d/c.yaml", "chmod g-w "},
		"the folder is sticky":           {map[string]func(string) error{"d": chmod(0o777 | os.ModeSticky)}, "d/c.yaml", ""},
		"sticky, a user's":               {map[string]func(string) error{"d": both(chown(uid, 0), chmod(0o777|os.ModeSticky))}, "d/c.yaml", "every user"},
		"a link's target lies elsewhere": {map[string]func(string) error{"d": chmod(0o777)}, "link/c.yaml", "every user may write to it"},
		"a link among the folders":       {map[string]func(string) error{"d": chmod(0o777)}, "link/folder/c.yaml", "every user may write to it"},
		"a link's own folder":            {map[string]func(string) error{"link": chmod(0o777)}, "link/c.yaml", "every user may write to it"},
		"a link in a sticky folder":      {map[string]func(string) error{"link": chmod(0o777 | os.ModeSticky)}, "link/c.yaml", ""},
		"another's link in one": {
			map[string]func(string) error{"link": chmod(0o777 | os.ModeSticky), "link/c.yaml": chown(uid, gid)}, "link/c.yaml", "chown -h root ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFiles(t, dir, map[string]string{"d/c.yaml": own, "link/x": ""})
			for link, to := range map[string]string{"link/c.yaml": "../d/c.yaml", "link/folder": "../d"} {
				if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			for path, change := range c.change {
				if err := change(filepath.Join(dir, path)); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Check(t.Context(), filepath.Join(dir, c.path), os.Stdin)
			if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error of an untrusted folder = %v, want %q", err, c.want)
			}
		})
	}
}

// The kubelet gives every user write access to the folder of a ConfigMap, links the file into a
// folder that it swaps, and mounts it read-only.
func TestConfigMapFolder(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"..2026/config.yaml": own})
	for link, to := range map[string]string{"..data": "..2026", "config.yaml": "..data/config.yaml"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.yaml")
	if _, err := Check(t.Context(), path, os.Stdin); err == nil {
		t.Error("no error for a writable folder, in which others can create links")
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Skip("this process cannot mount:", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Skip("this process cannot mount:", err)
	}
	if _, err := Check(t.Context(), path, os.Stdin); err != nil {
		t.Error(err)
	}
}

// A kubelet's file is rejected too if others can replace it.
func TestWritableKubeletFolderIsRejected(t *testing.T) {
	if _, err := os.Stat(DefaultPath); err == nil {
		t.Skip("this machine has " + DefaultPath)
	}
	proc := nodeProc(t, "kubelet", []string{"--config=/k/k.yaml"}, map[string]string{"k/k.yaml": kubelet + "evictionHard: {memory.available: 300Mi}\n"})
	if err := os.Chmod(filepath.Join(proc, "812/root/k"), 0o777); err != nil {
		t.Fatal(err)
	}
	if l := findOrFail(t, Places{ProcMount: proc}); l.From != FromDefaults || len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "chmod o-w /k") {
		t.Errorf("kubelet's file in a writable folder: got %+v, want the defaults and a warning", l)
	}
}

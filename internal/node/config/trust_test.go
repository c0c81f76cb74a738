package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Who may put another file in the place of the configuration decides what is killed, as who may write to it does. A sticky folder is no such
// place, but for links of others; nor is the folder of a ConfigMap, which is mounted so that nobody writes there.
func TestAFolderThatOthersMayWriteTo(t *testing.T) {
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
		want   string // in the error; empty: there is none
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
			put(t, dir, map[string]string{"d/c.yaml": own, "link/x": ""})
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
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A kubelet makes the folder of a ConfigMap everybody's, links the file into one that it swaps, and mounts it read-only.
func TestAConfigMap(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"..2026/config.yaml": own})
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
		t.Error("whoever may write to the folder may link another file there")
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

// What a kubelet reads is refused as well where others may put another file there.
func TestAKubeletsFolderThatOthersMayWriteTo(t *testing.T) {
	if _, err := os.Stat(DefaultPath); err == nil {
		t.Skip("this machine has " + DefaultPath)
	}
	proc := nodeProc(t, "kubelet", []string{"--config=/k/k.yaml"}, map[string]string{"k/k.yaml": kubelet + "evictionHard: {memory.available: 300Mi}\n"})
	if err := os.Chmod(filepath.Join(proc, "812/root/k"), 0o777); err != nil {
		t.Fatal(err)
	}
	if l := found(t, Places{ProcMount: proc}); l.From != FromDefaults || len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "chmod o-w /k") {
		t.Errorf("%+v", l)
	}
}

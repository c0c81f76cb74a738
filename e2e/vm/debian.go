package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"jettison/e2e/build"
)

// debianProgram fetches the Debian package of a program and the C library that it needs, or finds
// them in the cache. path is the program's in the package. It returns files of the guest and their
// sources on this machine; the program's own is /usr/local/bin/NAME. With a filled cache it needs no
// network.
func debianProgram(ctx context.Context, say Say, name, path string) (map[string]string, error) {
	dir, err := build.Cached(name+"-bookworm", say, func(dir string) error {
		if _, err := build.Run(ctx, dir, nil, "apt-get", "-q", "download", name, "libc6"); err != nil {
			if _, err := build.Run(ctx, "", nil, "apt-get", "-q", "update"); err != nil {
				return fmt.Errorf("%w: run `apt-get update` as root", err)
			}
			if _, err := build.Run(ctx, dir, nil, "apt-get", "-q", "download", name, "libc6"); err != nil {
				return err
			}
		}
		debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
		if err != nil || len(debs) != 2 {
			return fmt.Errorf("apt-get download %s libc6 left %d files", name, len(debs))
		}
		for _, deb := range debs {
			if _, err := build.Run(ctx, dir, nil, "dpkg", "-x", deb, filepath.Join(dir, "root")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	root := filepath.Join(dir, "root")
	files := map[string]string{"/usr/local/bin/" + name: filepath.Join(root, path)}
	for guest, name := range map[string]string{
		"/lib64/ld-linux-x86-64.so.2": "ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6": "libc.so.6",
	} {
		for _, lib := range []string{"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"} {
			if path := filepath.Join(root, lib, name); isFile(path) {
				files[guest] = path
			}
		}
		if files[guest] == "" {
			return nil, fmt.Errorf("%s has no %s: remove the folder and run again", dir, name)
		}
	}
	return files, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// uploadDebian copies such a program to the guest.
func (n *Node) uploadDebian(ctx context.Context, name, path string) error {
	files, err := debianProgram(ctx, n.say, name, path)
	if err != nil {
		return err
	}
	for to, from := range files {
		if err := n.Upload(ctx, from, to); err != nil {
			return err
		}
	}
	return nil
}

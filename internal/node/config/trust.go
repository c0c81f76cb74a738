package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Permissions to write.
const (
	othersWrite = 0o002 // every user
	groupWrite  = 0o020
)

// maxLinks is the number of symbolic links that the kernel follows (include/linux/namei.h MAXSYMLINKS,
// v6.12).
const maxLinks = 40

// checkTrusted rejects a regular file that a user other than root and this process's own may have
// written, because the file decides which pods are killed. A pipe was opened for this process by
// its parent.
func checkTrusted(path string, info os.FileInfo) error {
	if !info.Mode().IsRegular() {
		return nil
	}
	if why, do := otherWriters(info); why != "" {
		return fmt.Errorf("config %s: %s, and the file decides which pods are killed: %s %s", path, why, do, path)
	}
	return nil
}

// checkFolders rejects a file that another user could replace: in its folder, or in the folder of
// a symbolic link to it. A file that has no name any more cannot be replaced.
func checkFolders(path string) error {
	at := path
	for range maxLinks {
		if err := checkFolderOf(path, at); err != nil {
			return err
		}
		to, err := os.Readlink(at)
		if err != nil { // not a link
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(at), to)
		}
		at = to
	}
	whole, err := filepath.EvalSymlinks(path) // resolves linked folders too
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("config %s: %w", path, err)
	}
	return checkFolderOf(path, whole)
}

// checkFolderOf rejects a file because of the folder of at, a part of the path to it. In a folder
// with the sticky bit other users cannot replace files, but may have created a link.
func checkFolderOf(path, at string) error {
	dir, err := os.Open(filepath.Dir(at))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("config %s: %w", path, err)
	}
	defer func() { _ = dir.Close() }()
	if err := checkFolder(path, dir); err != nil {
		return err
	}
	if info, err := os.Lstat(at); err == nil && info.Mode()&os.ModeSymlink != 0 && !ownedByUs(info) {
		return fmt.Errorf("config %s: the link %s belongs to another user, and the file decides which "+
			"pods are killed: chown -h root %s", path, at, at)
	}
	return nil
}

// checkFolder rejects a file because of its open folder: a user with write access can replace the
// file. The kubelet gives every user write access to the folder of a ConfigMap or a Secret, but
// mounts it read-only.
func checkFolder(path string, dir *os.File) error {
	info, err := dir.Stat()
	if err != nil {
		return fmt.Errorf("config %s: %w", path, err)
	}
	why, do := otherWriters(info)
	if why == "" || info.Mode()&os.ModeSticky != 0 && ownedByUs(info) || readOnly(dir) {
		return nil
	}
	return fmt.Errorf("config %s: other users can replace it in its folder (%s), and the file decides "+
		"which pods are killed: %s %s", path, why, do, dir.Name())
}

// otherWriters returns which other users may write to a file or a folder, and the command that prevents
// it; empty: none may.
func otherWriters(info os.FileInfo) (why, do string) {
	s, _ := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode(); {
	case mode.Perm()&othersWrite != 0:
		return fmt.Sprintf("every user may write to it (%v)", mode), "chmod o-w"
	case s != nil && mode.Perm()&groupWrite != 0 && s.Gid != 0 &&
		(os.Geteuid() == 0 || int(s.Gid) != os.Getegid()):
		return fmt.Sprintf("group %d may write to it (%v)", s.Gid, mode), "chmod g-w"
	case !ownedByUs(info):
		return fmt.Sprintf("it belongs to user %d", s.Uid), "chown root"
	}
	return "", ""
}

// ownedByUs reports whether root or this process's own user owns something.
func ownedByUs(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return !ok || s.Uid == 0 || int(s.Uid) == os.Geteuid()
}

// readOnly reports whether a folder is on a read-only mount.
func readOnly(dir *os.File) bool {
	var s unix.Statfs_t
	return unix.Fstatfs(int(dir.Fd()), &s) == nil && s.Flags&unix.ST_RDONLY != 0
}

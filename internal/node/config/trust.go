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
	othersWrite = 0o002 // of everybody
	groupWrite  = 0o020
)

// maxLinks is how many symbolic links the kernel follows (include/linux/namei.h MAXSYMLINKS,
// v6.12).
const maxLinks = 40

// trusted refuses a regular file that others than root and this process's own user may have
// written: it decides which processes a privileged one kills. A pipe has been opened for this
// process by whoever started it.
func trusted(path string, info os.FileInfo) error {
	if !info.Mode().IsRegular() {
		return nil
	}
	if why, do := writers(info); why != "" {
		return fmt.Errorf("config %s: %s, and it decides what is killed: %s %s", path, why, do, path)
	}
	return nil
}

// trustedFolders refuses a file whose name others may give to another file: for the folder that it
// lies in, or one with a symbolic link to it. A file that has no name any more is nobody's to
// replace.
func trustedFolders(path string) error {
	at := path
	for range maxLinks {
		if err := trustedPlace(path, at); err != nil {
			return err
		}
		to, err := os.Readlink(at)
		if err != nil { // it is no link
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(at), to)
		}
		at = to
	}
	whole, err := filepath.EvalSymlinks(path) // links among the folders, too
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("config %s: %w", path, err)
	}
	return trustedPlace(path, whole)
}

// trustedPlace refuses a file for the folder in which something on the way to it lies. Where the
// folder has the sticky bit others may not remove what is not theirs, but may have put a link
// there.
func trustedPlace(path, at string) error {
	dir, err := os.Open(filepath.Dir(at))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("config %s: %w", path, err)
	}
	defer func() { _ = dir.Close() }()
	if err := trustedFolder(path, dir); err != nil {
		return err
	}
	if info, err := os.Lstat(at); err == nil && info.Mode()&os.ModeSymlink != 0 && !owned(info) {
		return fmt.Errorf("config %s: the link %s belongs to another user, and it decides what is "+
			"killed: chown -h root %s", path, at, at)
	}
	return nil
}

// trustedFolder refuses a file for an open folder: who may write there can put another file in its
// place. A kubelet lets everybody write to the folder of a ConfigMap or a Secret, and mounts it so
// that nobody can.
func trustedFolder(path string, dir *os.File) error {
	info, err := dir.Stat()
	if err != nil {
		return fmt.Errorf("config %s: %w", path, err)
	}
	why, do := writers(info)
	if why == "" || info.Mode()&os.ModeSticky != 0 && owned(info) || readOnly(dir) {
		return nil
	}
	return fmt.Errorf("config %s: in its folder another may be put in its place: %s, and it decides what is killed: %s %s",
		path, why, do, dir.Name())
}

// writers says who else may write to a file or a folder, and what to do about it; empty: nobody.
func writers(info os.FileInfo) (why, do string) {
	s, _ := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode(); {
	case mode.Perm()&othersWrite != 0:
		return fmt.Sprintf("every user may write to it (%v)", mode), "chmod o-w"
	case s != nil && mode.Perm()&groupWrite != 0 && s.Gid != 0 &&
		(os.Geteuid() == 0 || int(s.Gid) != os.Getegid()):
		return fmt.Sprintf("group %d may write to it (%v)", s.Gid, mode), "chmod g-w"
	case !owned(info):
		return fmt.Sprintf("it belongs to user %d", s.Uid), "chown root"
	}
	return "", ""
}

// owned reports whether something is root's or this process's own user's.
func owned(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return !ok || s.Uid == 0 || int(s.Uid) == os.Geteuid()
}

// readOnly reports whether a folder is mounted so that nobody writes to it.
func readOnly(dir *os.File) bool {
	var s unix.Statfs_t
	return unix.Fstatfs(int(dir.Fd()), &s) == nil && s.Flags&unix.ST_RDONLY != 0
}

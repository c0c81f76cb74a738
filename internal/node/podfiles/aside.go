package podfiles

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The emptyDirs of a pod are moved aside before their removal: it can take minutes, and the pod may
// be restarted before its end. They are renamed to a name that only this package uses, and never
// renamed back once a file below may have been removed. Files that cannot be removed stay there.
// The volumes of a later life get another name: aside, aside-1, aside-2.
const (
	aside    = ".jettison-removes"
	maxAside = 16 // for one pod; beyond that volumes are removed in place
)

// inPlaceLimit bounds one round of removing volumes in place. After it moving aside is retried, and
// the pod is checked for a restart.
const inPlaceLimit = time.Second

// ErrInProgress reports that another removal, of this or another process, is in progress.
var ErrInProgress = errors.New("another removal is in progress")

var (
	errNotMovable = errors.New("cannot move volumes aside")
	errPodExists  = errors.New("the pod exists") // not reported if only moved volumes are removed
)

// asideNumber returns the number of a name of volumes moved aside; ok is false for other names.
func asideNumber(name string) (n int, ok bool) {
	rest, ok := strings.CutPrefix(name, aside)
	if !ok || rest == "" {
		return 0, ok
	}
	n, err := strconv.Atoi(strings.TrimPrefix(rest, "-"))
	return n, err == nil && n > 0 && rest == "-"+strconv.Itoa(n)
}

func asideName(n int) string {
	if n == 0 {
		return aside
	}
	return aside + "-" + strconv.Itoa(n)
}

// asideIn returns the numbers of the volumes moved aside in a directory, the highest (newest)
// first.
func asideIn(volumes int) (numbers []int, err error) {
	names, err := namesIn(volumes)
	for _, name := range names {
		if n, ok := asideNumber(name); ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	slices.Reverse(numbers)
	return numbers, err
}

// lockDir opens and locks a directory (flock(2)), also against other processes, until it is closed
// or the process ends. Tenants cannot open these directories, only their content. It returns -1 if
// the directory does not exist, or records the error in the tree and returns -1.
func (t *tree) lockDir(dir int, name string) int {
	fd := t.openDir(dir, name)
	if fd < 0 {
		return fd
	}
	var err error = unix.EINTR
	for err == unix.EINTR {
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	}
	var opened, named unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &opened)
	}
	if err == nil {
		err = unix.Fstatat(dir, name, &named, unix.AT_SYMLINK_NOFOLLOW)
	}
	// Another inode: the previous holder of the lock has renamed the directory.
	if err == unix.EWOULDBLOCK || err == unix.ENOENT || err == nil &&
		(opened.Dev != named.Dev || opened.Ino != named.Ino) {
		err = ErrInProgress
	}
	if err != nil {
		unix.Close(fd)
		t.keep(nil, id{}, name, err)
		return -1
	}
	return fd
}

// MoveVolumesAside moves a pod's emptyDirs aside, unless back returns an error, which it returns. Nothing
// uses the volumes afterwards. If they are not removed, for example after a power loss, PodsWithMovedVolumes
// lists them.
func (r *Remover) MoveVolumesAside(uid string, back func() error) error {
	if checkName(uid) != nil {
		return fmt.Errorf("move volumes of a pod aside: %.64q is not a valid UID", uid)
	}
	t := newTree(r.pods() + "/" + uid + "/" + volumes)
	fd, err := r.volumesOf(uid)
	if err == nil && fd < 0 {
		err = back()
	}
	if fd >= 0 {
		defer unix.Close(fd)
		err = r.moveAside(t, fd, back)
	}
	if err = t.error(err); err != nil {
		return fmt.Errorf("move volumes of pod %s aside: %w", uid, err)
	}
	return nil
}

// moveAside renames the emptyDirs in a directory of volumes. It calls back before and after: under
// the new name no program can begin to use them.
func (r *Remover) moveAside(t *tree, fd int, back func() error) error {
	if err := back(); err != nil {
		return err
	}
	held := t.lockDir(fd, emptyDirPlugin)
	if held < 0 {
		return nil
	}
	defer unix.Close(held)
	numbers, err := asideIn(fd)
	n := 0
	if err == nil && len(numbers) > 0 {
		n = numbers[0] + 1
	}
	if err == nil && len(numbers) >= maxAside {
		err = fmt.Errorf("%d earlier ones exist already", len(numbers))
	}
	if err == nil {
		err = unix.Renameat(fd, emptyDirPlugin, fd, asideName(n))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotMovable, err)
	}
	if err = back(); err != nil { // restarted before the rename: the volumes are in use
		undoErr := unix.Renameat(fd, asideName(n), fd, emptyDirPlugin)
		// ENOTEMPTY, EEXIST: the restarted pod has created new volumes and does not use these
		if undoErr != nil && undoErr != unix.ENOTEMPTY && undoErr != unix.EEXIST {
			err = errors.Join(err, fmt.Errorf("rename the volumes back: %w", undoErr))
		}
	}
	// If the sync fails the volumes may have the other name after a power loss.
	if r.sync != nil {
		_ = r.sync(fd)
	} else {
		_ = unix.Fsync(fd)
	}
	return err
}

// moveOrRemove moves the emptyDirs aside, or removes them in place if that fails. fd is the
// directory of volumes, or -1.
func (r *Remover) moveOrRemove(ctx context.Context, t *tree, fd int, back func() error) error {
	if fd < 0 {
		return back()
	}
	up := t.enter(volumes)
	defer up()
	t.unmount = r.unmount
	defer func() { t.unmount = nil }()
	for ended := false; ; {
		err := r.moveAside(t, fd, back)
		if ended || !errors.Is(err, errNotMovable) {
			return err
		}
		held := t.lockDir(fd, emptyDirPlugin)
		if held < 0 {
			return nil
		}
		piece, cancel := context.WithTimeout(ctx, inPlaceLimit)
		err = t.remove(piece, fd, emptyDirPlugin)
		cancel()
		unix.Close(held)
		if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
			return err
		}
		ended = err == nil
	}
}

// volumesOf opens a pod's directory of volumes; it returns -1 if the directory does not exist.
func (r *Remover) volumesOf(uid string) (int, error) {
	base, err := r.Host.Dir(r.pods())
	fd := -1
	if err == nil {
		defer unix.Close(base)
		fd, err = open(base, uid+"/"+volumes)
	}
	if errors.Is(err, os.ErrNotExist) {
		return -1, nil
	}
	if err != nil {
		return -1, fmt.Errorf("open: %w", err)
	}
	return fd, nil
}

// PodsWithMovedVolumes returns the UIDs of pods with emptyDirs that were moved aside and not removed.
func (r *Remover) PodsWithMovedVolumes() (uids []string, err error) {
	pods, err := List(r.Host, r.pods())
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	base, err := r.Host.Dir(r.pods())
	if err != nil {
		return nil, fmt.Errorf("find volumes that were moved aside: %w", err)
	}
	defer unix.Close(base)
	for _, p := range pods {
		fd, err := open(base, p.Name+"/"+volumes)
		if err != nil {
			continue
		}
		if numbers, _ := asideIn(fd); len(numbers) > 0 {
			uids = append(uids, p.Name)
		}
		unix.Close(fd)
	}
	return uids, nil
}

// RemoveMovedVolumes removes the emptyDirs of a pod that were moved aside, even if the pod was restarted. If
// gone returns true, it also removes the rest as Volumes does, except volumes that were not moved
// aside.
func (r *Remover) RemoveMovedVolumes(ctx context.Context, uid string, gone func() bool) (Result, error) {
	back := func() error {
		if !gone() {
			return errPodExists
		}
		return nil
	}
	return r.volumes(ctx, uid, func(*tree, int) error { return back() }, back)
}

// removeAside removes the volumes that were moved aside. Those that cannot be removed, or that
// another removal works on, are recorded in the tree.
func (r *Remover) removeAside(ctx context.Context, t *tree, fd int) error {
	numbers, err := asideIn(fd)
	if err != nil {
		return err
	}
	t.unmount = r.unmount
	defer func() { t.unmount = nil }()
	for _, n := range numbers {
		held := t.lockDir(fd, asideName(n))
		if held < 0 {
			continue
		}
		err := t.remove(ctx, fd, asideName(n))
		unix.Close(held)
		if err != nil {
			return err
		}
	}
	return nil
}

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

// The emptyDirs of a pod are put aside before they are removed: that takes minutes, and the pod may
// be back before its end. They get a name beside their own, which is this package's from then on:
// nobody else knows it, and it is never given back once something below it may have been removed.
// What cannot be removed stays there, and a later life's volumes get a name of their own: aside,
// aside-1, aside-2.
const (
	aside    = ".jettison-removes"
	maxAside = 16 // of one pod; beyond, volumes are removed in place
)

// inPlace is for how long volumes that cannot be put aside are removed in place until it is tried
// again, and asked whether the pod is back.
const inPlace = time.Second

// ErrTaken: another removal, of this process or another, is at it.
var ErrTaken = errors.New("another removal is at it")

var (
	errRefused = errors.New("they cannot be put aside")
	errThere   = errors.New("the pod is there") // which is no error where only what is aside goes
)

// asideNumber is which of the names that are put aside a name is.
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

// asideIn are the numbers of those in a directory of volumes, the highest, which is the newest,
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

// hold opens a directory for one remover alone until it is closed: with a lock (flock(2)) that also
// another process sees, and that ends with its holder. No tenant can open these directories, only
// what is in them. -1: it is not there, or what is the matter is noted.
func (t *tree) hold(dir int, name string) int {
	fd := t.openDir(dir, name)
	if fd < 0 {
		return fd
	}
	var err error = unix.EINTR
	for err == unix.EINTR {
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	}
	var is, named unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &is)
	}
	if err == nil {
		err = unix.Fstatat(dir, name, &named, unix.AT_SYMLINK_NOFOLLOW)
	}
	// Another one: who had the lock has renamed it.
	if err == unix.EWOULDBLOCK || err == unix.ENOENT || err == nil &&
		(is.Dev != named.Dev || is.Ino != named.Ino) {
		err = ErrTaken
	}
	if err != nil {
		unix.Close(fd)
		t.keep(nil, id{}, name, err)
		return -1
	}
	return fd
}

// SetAside puts a pod's emptyDirs aside, unless back has an error, which is returned: nothing uses
// them then any more, and what is not removed in the end, since the node loses its power perhaps,
// PutAside tells.
func (r *Remover) SetAside(uid string, back func() error) error {
	if checkName(uid) != nil {
		return fmt.Errorf("put volumes of a pod aside: %.64q cannot be a UID", uid)
	}
	t := newTree(r.pods() + "/" + uid + "/" + volumes)
	fd, err := r.volumesOf(uid)
	if err == nil && fd < 0 {
		err = back()
	}
	if fd >= 0 {
		defer unix.Close(fd)
		err = r.setAside(t, fd, back)
	}
	if err = t.error(err); err != nil {
		return fmt.Errorf("put volumes of pod %s aside: %w", uid, err)
	}
	return nil
}

// setAside gives the emptyDirs in a directory of volumes another name. The pod is asked for before
// and after: while they have none that anybody else knows, nobody begins to use them.
func (r *Remover) setAside(t *tree, fd int, back func() error) error {
	if err := back(); err != nil {
		return err
	}
	held := t.hold(fd, emptyDirPlugin)
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
		err = fmt.Errorf("%d are there already", len(numbers))
	}
	if err == nil {
		err = unix.Renameat(fd, emptyDirPlugin, fd, asideName(n))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	if err = back(); err != nil { // it was then already: they are its own
		again := unix.Renameat(fd, asideName(n), fd, emptyDirPlugin)
		// these: it has made new ones, and did not see them
		if again != nil && again != unix.ENOTEMPTY && again != unix.EEXIST {
			err = errors.Join(err, fmt.Errorf("give them their name again: %w", again))
		}
	}
	// Where that fails they may have the other name after a power cut.
	if r.sync != nil {
		_ = r.sync(fd)
	} else {
		_ = unix.Fsync(fd)
	}
	return err
}

// putAside puts the emptyDirs aside, or removes them where they are. fd is the directory of
// volumes, or -1.
func (r *Remover) putAside(ctx context.Context, t *tree, fd int, back func() error) error {
	if fd < 0 {
		return back()
	}
	up := t.into(volumes)
	defer up()
	t.unmount = r.unmount
	defer func() { t.unmount = nil }()
	for ended := false; ; {
		err := r.setAside(t, fd, back)
		if ended || !errors.Is(err, errRefused) {
			return err
		}
		held := t.hold(fd, emptyDirPlugin)
		if held < 0 {
			return nil
		}
		piece, cancel := context.WithTimeout(ctx, inPlace)
		err = t.remove(piece, fd, emptyDirPlugin)
		cancel()
		unix.Close(held)
		if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
			return err
		}
		ended = err == nil
	}
}

// volumesOf opens a pod's directory of volumes; -1: there is none.
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

// PutAside are the UIDs of pods of which emptyDirs were put aside and are not removed.
func (r *Remover) PutAside() (uids []string, err error) {
	pods, err := List(r.Host, r.pods())
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	base, err := r.Host.Dir(r.pods())
	if err != nil {
		return nil, fmt.Errorf("look for volumes that were put aside: %w", err)
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

// Aside removes the emptyDirs of a pod that were put aside; whether the pod is back does not matter
// to them. Where gone says so it is not, and what its removal did not come to goes, too: as
// Volumes, but for volumes that were not put aside.
func (r *Remover) Aside(ctx context.Context, uid string, gone func() bool) (Result, error) {
	back := func() error {
		if !gone() {
			return errThere
		}
		return nil
	}
	return r.volumes(ctx, uid, func(*tree, int) error { return back() }, back)
}

// removeAside removes what was put aside. What cannot be removed, or is being removed, is noted and
// stays.
func (r *Remover) removeAside(ctx context.Context, t *tree, fd int) error {
	numbers, err := asideIn(fd)
	if err != nil {
		return err
	}
	t.unmount = r.unmount
	defer func() { t.unmount = nil }()
	for _, n := range numbers {
		held := t.hold(fd, asideName(n))
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

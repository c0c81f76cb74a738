package logrotate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cri"
)

// Suffixes and formats of names, the same as the kubelet's.
const (
	logSuffix      = ".log"
	stampFormat    = "20060102-150405"
	compressSuffix = ".gz"
	tmpSuffix      = ".tmp"
)

// maxOld bounds the older files of one log that are read. Runtimes make far fewer, and files made
// by a tenant must not use much memory.
const maxOld = 1000

// log is one log in its directory.
type log struct {
	*rotation
	dir  int      // open file descriptor
	name string   // in dir
	ids  []string // of containers that write to it
}

// old are the files of a log from one rotation.
type old struct {
	stamp          string
	plain, gz, tmp bool
}

func (l *log) file(stamp, suffix string) string { return l.name + "." + stamp + suffix }

// rotate rotates the log if it is too large. Errors of older files do not prevent the rotation. The
// kubelet's do, so that on a full disk, where compression fails, a log grows without limit.
func (l *log) rotate(ctx context.Context) error {
	size, err := l.size()
	if errors.Is(err, unix.ENOENT) { // renamed, and the agent ended before the runtime reopened it
		var reopened int
		if reopened, err = l.reopen(ctx); reopened > 0 && err == nil {
			l.result.Reopened++
			size, err = l.size()
		}
	}
	if err != nil || size < max(l.MaxSize, 1) || l.kubeletRunning() {
		return err
	}
	// After an interrupted pass, or a failed call, one of several containers writes to an older
	// file, which is compressed now.
	if len(l.ids) > 1 {
		reopened, err := l.reopen(ctx)
		if reopened == 0 || slices.ContainsFunc(l.ids, func(id string) bool {
			return l.failedNow[id] && l.failures[id] < maxFailures
		}) {
			return err
		}
	}
	if err := l.reopenUnknown(ctx); err != nil {
		return err
	}
	olds, errs := l.cleanUp(ctx)
	if ctx.Err() != nil {
		return errors.Join(append(errs, ctx.Err())...)
	}
	return errors.Join(append(errs, l.renew(ctx, olds))...)
}

// size returns the size of the log. It must be a plain file: no symbolic link, pipe or device.
func (l *log) size() (int64, error) {
	st, err := statPlain(l.dir, l.name)
	return st.Size, err
}

// statPlain returns the status of a plain file, and an error for any other.
func statPlain(dir int, name string) (st unix.Stat_t, err error) {
	for {
		if err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != unix.EINTR {
			break
		}
	}
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errNotPlain
	}
	return st, err
}

var errNotPlain = errors.New("not a plain file, skipped")

// cleanUp removes leftovers and the oldest files, so that together with the log and its next copy
// at most MaxFiles exist, and compresses the rest. It returns the remaining files, oldest first.
func (l *log) cleanUp(ctx context.Context) (olds []old, errs []error) {
	olds, leftovers, err := l.list()
	if err != nil {
		return nil, []error{err}
	}
	addErr := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, name := range leftovers {
		addErr(l.remove(name))
	}
	for i := range olds {
		o := &olds[i]
		if o.tmp {
			addErr(l.remove(l.file(o.stamp, tmpSuffix)))
		}
		if o.plain && o.gz { // compressed by a pass that ended before the removal
			gz := l.file(o.stamp, compressSuffix)
			_, err := statPlain(l.dir, gz)
			if err != nil {
				err = fmt.Errorf("%.256q: %w", gz, err)
			} else {
				err = l.remove(l.file(o.stamp, ""))
			}
			addErr(err)
			o.plain = err != nil
		}
	}
	olds = slices.DeleteFunc(olds, func(o old) bool { return !o.plain && !o.gz })
	for len(olds) > max(l.MaxFiles, 2)-2 {
		if olds[0].plain {
			addErr(l.remove(l.file(olds[0].stamp, "")))
		}
		if olds[0].gz {
			addErr(l.remove(l.file(olds[0].stamp, compressSuffix)))
		}
		olds = olds[1:]
	}
	for _, o := range olds {
		if o.plain && !o.gz && ctx.Err() == nil {
			addErr(l.compress(ctx, o.stamp))
		}
	}
	return olds, errs
}

// list returns the older files of the log, oldest first, and leftovers of compressions of earlier
// containers' logs.
func (l *log) list() (olds []old, leftovers []string, err error) {
	fd, err := unix.Openat(l.dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("list log directory: %w", err)
	}
	dir := os.NewFile(uintptr(fd), "log directory")
	defer dir.Close()
	byStamp := map[string]*old{}
	for {
		names, err := dir.Readdirnames(256)
		for _, name := range names {
			stamp, suffix, ok := parseOld(l.name, name)
			if !ok {
				if len(leftovers) < maxOld && l.isEarlierLeftover(name) {
					leftovers = append(leftovers, name)
				}
				continue
			}
			o := byStamp[stamp]
			if o == nil {
				if len(byStamp) >= maxOld {
					continue
				}
				o = &old{stamp: stamp}
				byStamp[stamp] = o
			}
			o.plain, o.gz, o.tmp = o.plain || suffix == "", o.gz || suffix == compressSuffix, o.tmp ||
				suffix == tmpSuffix
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, nil, fmt.Errorf("list log directory: %w", err)
		}
	}
	olds = make([]old, 0, len(byStamp))
	for _, o := range byStamp {
		olds = append(olds, *o)
	}
	slices.SortFunc(olds, func(a, b old) int { return strings.Compare(a.stamp, b.stamp) })
	return olds, leftovers, nil
}

// isEarlierLeftover reports whether a name is that of an interrupted compression of the log of an
// earlier attempt at the same container. That log has no pass anymore: the container has ended, and
// is kept until the next one has ended too.
func (l *log) isEarlierLeftover(name string) bool {
	own, numbered := attemptOf(l.name)
	end := strings.Index(name, logSuffix+".")
	if !numbered || end < 0 {
		return false
	}
	log := name[:end+len(logSuffix)]
	before, ok := attemptOf(log)
	_, suffix, isOld := parseOld(log, name)
	return ok && before < own && isOld && suffix == tmpSuffix
}

// attemptOf returns the number of the attempt at a container from the name of its log
// (pkg/kubelet/kuberuntime/helpers.go buildContainerLogsPath).
func attemptOf(log string) (attempt uint64, ok bool) {
	digits, ok := strings.CutSuffix(log, logSuffix)
	attempt, err := strconv.ParseUint(digits, 10, 32)
	return attempt, ok && err == nil && strconv.FormatUint(attempt, 10) == digits
}

// parseOld splits the name of an older file of a log. ok is false for any other name.
func parseOld(log, name string) (stamp, suffix string, ok bool) {
	rest, ok := strings.CutPrefix(name, log+".")
	if !ok || len(rest) < len(stampFormat) {
		return "", "", false
	}
	stamp, suffix = rest[:len(stampFormat)], rest[len(stampFormat):]
	if _, err := time.Parse(stampFormat, stamp); err != nil || suffix != "" &&
		suffix != compressSuffix && suffix != tmpSuffix {
		return "", "", false
	}
	return stamp, suffix, true
}

// remove removes one plain file.
func (l *log) remove(name string) error {
	st, err := statPlain(l.dir, name)
	if err == nil {
		err = unix.Unlinkat(l.dir, name, 0)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return fmt.Errorf("remove %.256q: %w", name, err)
	}
	l.result.Removed++
	if st.Nlink == 1 {
		l.result.Freed += allocated(&st)
	}
	return nil
}

func allocated(st *unix.Stat_t) uint64 { return uint64(st.Blocks) * 512 }

// renew renames the log and makes the runtime open a new one. If that fails, it restores the name,
// since the runtime still writes to the file.
func (l *log) renew(ctx context.Context, olds []old) error {
	name, err := l.rename(olds)
	if err != nil {
		return err
	}
	reopened, err := l.reopen(ctx)
	if reopened == 0 {
		back := rename(l.dir, name, l.name)
		switch {
		case back == unix.EEXIST:
			return fmt.Errorf("%w (the runtime has created a new log nevertheless)", err)
		case back != nil:
			return fmt.Errorf("%w; the log keeps the name %.256q: %w", err, name, back)
		}
		return err
	}
	l.result.Rotated++
	return err
}

// reopen makes the runtime reopen the log for each container that writes to it, and returns their
// number. An ended container is an error only if all have ended.
func (l *log) reopen(ctx context.Context) (reopened int, err error) {
	var errs, notFound []error
	for _, id := range l.ids {
		switch err := l.reopenOne(ctx, id); {
		case err == nil:
			reopened++
		case errors.Is(err, cri.ErrNotFound):
			notFound = append(notFound, err)
		default:
			errs = append(errs, err)
		}
	}
	if reopened == 0 && len(errs) == 0 {
		errs = notFound
	}
	return reopened, errors.Join(errs...)
}

// rename gives the log a new name that sorts after all older ones, even if the clock was set back,
// and that none of them has, compressed or not.
func (l *log) rename(olds []old) (name string, err error) {
	at := l.now
	if n := len(olds); n > 0 && olds[n-1].stamp >= at.Format(stampFormat) {
		last, err := time.ParseInLocation(stampFormat, olds[n-1].stamp, at.Location())
		if next := last.Add(time.Second); err == nil && next.Year() <= 9999 &&
			next.Format(stampFormat) > olds[n-1].stamp {
			at = next
		}
	}
	for range 60 {
		stamp := at.Format(stampFormat)
		if !slices.ContainsFunc(olds, func(o old) bool { return o.stamp == stamp }) {
			name = l.file(stamp, "")
			if err = rename(l.dir, l.name, name); err != unix.EEXIST {
				break
			}
		}
		at = at.Add(time.Second)
	}
	if err == nil && name == "" {
		err = unix.EEXIST
	}
	if err != nil {
		return "", fmt.Errorf("rename: %w", err)
	}
	return name, nil
}

// rename renames a file within a directory without replacing another.
func rename(dir int, from, to string) error {
	err := unix.Renameat2(dir, from, dir, to, unix.RENAME_NOREPLACE)
	if err != unix.EINVAL && err != unix.ENOSYS { // file systems without RENAME_NOREPLACE
		return err
	}
	var st unix.Stat_t
	switch err := unix.Fstatat(dir, to, &st, unix.AT_SYMLINK_NOFOLLOW); err {
	case unix.ENOENT:
		return unix.Renameat(dir, from, dir, to)
	case nil:
		return unix.EEXIST
	default:
		return err
	}
}

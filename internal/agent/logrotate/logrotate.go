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

// Names, as the kubelet has them.
const (
	logSuffix      = ".log"
	stampFormat    = "20060102-150405"
	compressSuffix = ".gz"
	tmpSuffix      = ".tmp"
)

// maxOld bounds how many files of one log are looked at: no runtime makes so many, and what a
// tenant makes up must not take memory.
const maxOld = 1000

// log is one log in its directory.
type log struct {
	*rotation
	dir  int      // open
	name string   // in it
	ids  []string // of the containers that write to it
}

// old are the files of a log that were renamed at one time.
type old struct {
	stamp          string
	plain, gz, tmp bool
}

func (l *log) file(stamp, suffix string) string { return l.name + "." + stamp + suffix }

// rotate looks at the log and rotates it if it is too large. What is wrong with older files does
// not keep it from that, unlike the kubelet's: on a disk without room to compress them a log would
// grow for ever.
func (l *log) rotate(ctx context.Context) error {
	size, err := l.size()
	if errors.Is(err, unix.ENOENT) { // renamed, and the agent ended before the runtime was told
		var told int
		if told, err = l.reopen(ctx); told > 0 && err == nil {
			l.result.Reopened++
			size, err = l.size()
		}
	}
	if err != nil || size < max(l.MaxSize, 1) || l.beside() {
		return err
	}
	// A process that ended in the middle, or a call that failed, has left one of several in an older
	// file, which is compressed now.
	if len(l.ids) > 1 {
		told, err := l.reopen(ctx)
		if told == 0 || slices.ContainsFunc(l.ids, func(id string) bool {
			return l.late[id] && l.refused[id] < patience
		}) {
			return err
		}
	}
	if err := l.tellUntold(ctx); err != nil {
		return err
	}
	olds, errs := l.tidy(ctx)
	if ctx.Err() != nil {
		return errors.Join(append(errs, ctx.Err())...)
	}
	return errors.Join(append(errs, l.renew(ctx, olds))...)
}

// size is that of the log. It must be a plain file: no symbolic link, pipe or device.
func (l *log) size() (int64, error) {
	st, err := lookAt(l.dir, l.name)
	return st.Size, err
}

// lookAt asks what a file is. An error is also what is no plain one.
func lookAt(dir int, name string) (st unix.Stat_t, err error) {
	for {
		if err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != unix.EINTR {
			break
		}
	}
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errForeign
	}
	return st, err
}

var errForeign = errors.New("not a plain file: it is left alone")

// tidy removes leftovers and the oldest files, so that with the log and the one it is about to
// become there are at most MaxFiles, and compresses the rest. It returns what is there then, oldest
// first.
func (l *log) tidy(ctx context.Context) (olds []old, errs []error) {
	olds, left, err := l.list()
	if err != nil {
		return nil, []error{err}
	}
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, name := range left {
		note(l.remove(name))
	}
	for i := range olds {
		o := &olds[i]
		if o.tmp {
			note(l.remove(l.file(o.stamp, tmpSuffix)))
		}
		if o.plain && o.gz { // compressed already, and not removed in time
			gz := l.file(o.stamp, compressSuffix)
			_, err := lookAt(l.dir, gz)
			if err != nil {
				err = fmt.Errorf("%.256q: %w", gz, err)
			} else {
				err = l.remove(l.file(o.stamp, ""))
			}
			note(err)
			o.plain = err != nil
		}
	}
	olds = slices.DeleteFunc(olds, func(o old) bool { return !o.plain && !o.gz })
	for len(olds) > max(l.MaxFiles, 2)-2 {
		if olds[0].plain {
			note(l.remove(l.file(olds[0].stamp, "")))
		}
		if olds[0].gz {
			note(l.remove(l.file(olds[0].stamp, compressSuffix)))
		}
		olds = olds[1:]
	}
	for _, o := range olds {
		if o.plain && !o.gz && ctx.Err() == nil {
			note(l.compress(ctx, o.stamp))
		}
	}
	return olds, errs
}

// list finds the older files of the log, oldest first, and what compressions of earlier attempts'
// logs have left.
func (l *log) list() (olds []old, left []string, err error) {
	fd, err := unix.Openat(l.dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("list its directory: %w", err)
	}
	dir := os.NewFile(uintptr(fd), "log directory")
	defer dir.Close()
	byStamp := map[string]*old{}
	for {
		names, err := dir.Readdirnames(256)
		for _, name := range names {
			stamp, suffix, ok := parseOld(l.name, name)
			if !ok {
				if len(left) < maxOld && l.leftBefore(name) {
					left = append(left, name)
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
			return nil, nil, fmt.Errorf("list its directory: %w", err)
		}
	}
	olds = make([]old, 0, len(byStamp))
	for _, o := range byStamp {
		olds = append(olds, *o)
	}
	slices.SortFunc(olds, func(a, b old) int { return strings.Compare(a.stamp, b.stamp) })
	return olds, left, nil
}

// leftBefore reports whether a name is that of a compression that did not end, of the log of an
// earlier attempt at the same container. That one runs no more, and has no pass of its own: it is
// kept until the container after it has ended, too.
func (l *log) leftBefore(name string) bool {
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

// attemptOf is the attempt at a container of which a log is, by its name
// (pkg/kubelet/kuberuntime/helpers.go buildContainerLogsPath).
func attemptOf(log string) (attempt uint64, ok bool) {
	digits, ok := strings.CutSuffix(log, logSuffix)
	attempt, err := strconv.ParseUint(digits, 10, 32)
	return attempt, ok && err == nil && strconv.FormatUint(attempt, 10) == digits
}

// parseOld takes the name of an older file of a log apart. ok is false for every other name.
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

// remove removes one file.
func (l *log) remove(name string) error {
	st, err := lookAt(l.dir, name)
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

// renew renames the log and has the runtime open a new one. When that fails the old name comes
// back, for the runtime still writes to it.
func (l *log) renew(ctx context.Context, olds []old) error {
	name, err := l.moveAway(olds)
	if err != nil {
		return err
	}
	told, err := l.reopen(ctx)
	if told == 0 {
		back := rename(l.dir, name, l.name)
		switch {
		case back == unix.EEXIST:
			return fmt.Errorf("%w (the runtime has made a new log all the same)", err)
		case back != nil:
			return fmt.Errorf("%w; it stays %.256q: %w", err, name, back)
		}
		return err
	}
	l.result.Rotated++
	return err
}

// reopen has the runtime open the log anew for each container that writes to it, and returns for
// how many it did. One that is gone by now is an error only where all are.
func (l *log) reopen(ctx context.Context) (told int, err error) {
	var errs, gone []error
	for _, id := range l.ids {
		switch err := l.tell(ctx, id); {
		case err == nil:
			told++
		case errors.Is(err, cri.ErrNotFound):
			gone = append(gone, err)
		default:
			errs = append(errs, err)
		}
	}
	if told == 0 && len(errs) == 0 {
		errs = gone
	}
	return told, errors.Join(errs...)
}

// moveAway gives the log a name that sorts behind all older ones, even where a clock was set back,
// and that none of them has, compressed or not.
func (l *log) moveAway(olds []old) (name string, err error) {
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

// rename renames a file within a directory and replaces none.
func rename(dir int, from, to string) error {
	err := unix.Renameat2(dir, from, dir, to, unix.RENAME_NOREPLACE)
	if err != unix.EINVAL && err != unix.ENOSYS { // some file systems cannot
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

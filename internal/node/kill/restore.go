package kill

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/stats"
)

// restoreLimit bounds Restore, which delays the start of the agent.
const restoreLimit = time.Second

// Restore thaws processes that a crash in the middle of a kill left frozen, in pod cgroups (paths
// below the root of fs). Call it at the start, before any kill. It returns the thawed cgroups. A
// cgroup that cannot be thawed is an error, and the next start retries it.
func Restore(fs *cgroup.FS, paths []string) (thawed []string, err error) {
	var errs []error
	until := time.Now().Add(restoreLimit)
	for i, path := range paths {
		if time.Now().After(until) {
			errs = append(errs, fmt.Errorf(
				"restore pod cgroups after a crash: %d not checked within %v", len(paths)-i, restoreLimit))
			break
		}
		changed, err := thaw(fs, path)
		if changed {
			thawed = append(thawed, path)
		}
		if err != nil && !errors.Is(err, cgroup.ErrVanished) {
			errs = append(errs, fmt.Errorf("restore cgroup /%s after a crash: %w", path, err))
		}
	}
	return thawed, errors.Join(errs...)
}

func thaw(fs *cgroup.FS, path string) (changed bool, err error) {
	g, err := fs.Group(path)
	if err != nil {
		return false, err
	}
	defer g.Close()
	return g.Thaw()
}

// Continue continues the processes of containers in shared cgroups that a crash in the middle of a
// kill left stopped. first are the first processes of those containers, which a kill stops first.
// Call it as Restore. It returns the PIDs of the first processes that were stopped.
func Continue(first []stats.ProcessID) (continued []int, err error) {
	ctx, end := context.WithTimeout(context.Background(), restoreLimit)
	defer end()
	var errs []error
	for _, p := range first {
		stopped, err := continueTree(ctx, p)
		if stopped {
			continued = append(continued, p.PID)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("continue process %d after a crash: %w", p.PID, err))
		}
	}
	return continued, errors.Join(errs...)
}

func continueTree(ctx context.Context, first stats.ProcessID) (stopped bool, err error) {
	f, err := readStat(filepath.Join(procMount, strconv.Itoa(first.PID)))
	if isGone(err) || err == nil && string(f[statState]) != "T" {
		return false, nil
	}
	t := newProcessTree(Pidfd, maxTree)
	defer t.Close()
	if err == nil {
		err = t.add(first)
	}
	switch {
	case err == unix.ESRCH:
		return false, nil
	case err != nil:
		return false, err
	}
	searchErr := t.extend(ctx, maxTree)
	return true, errors.Join(searchErr, t.signal(unix.SIGCONT))
}

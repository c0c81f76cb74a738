package kill

import (
	"errors"
	"fmt"
	"time"

	"jettison/cgroup"
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

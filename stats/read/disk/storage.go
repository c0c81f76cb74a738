package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"jettison/stats"
	"jettison/stats/read/hostroot"
	"jettison/stats/read/openfiles"
	"jettison/stats/read/podindex"
	"jettison/stats/read/quota"
	"jettison/stats/read/walk"
)

// storage is one pod's share of the disks as it was walked.
type storage struct {
	time time.Time
	err  error // why a part is missing, or partial
	// missing: of some part there is no figure at all, not even a lower bound.
	missing bool
	took    time.Duration
	turn    time.Duration // it might have taken
	cut     bool          // it was not walked to its end in that
	// unannounced: the runtime did not know the pod then. It is measured again as soon as it does.
	unannounced bool
	logs        map[string]stats.FsUsage // by container
	allLogs     stats.FsUsage
	volumes     []stats.VolumeStats
	hosts       stats.FsUsage            // etc-hosts
	messages    stats.FsUsage            // termination messages
	layers      map[string]stats.FsUsage // writable layers, by container id
	exited      map[string]stats.FsUsage // the same of containers that have exited
	runtimes    stats.FsUsage            // files that the runtime keeps for it
	projects    map[quota.Project]bool   // whose usage is in volumes
	unnamed     openfiles.Kept
}

// storageWalker measures pods one at a time, the one whose figures are oldest first, and uses the
// file system's own count where it has one.
type storageWalker struct {
	host    *hostroot.Root
	proc    string // where the host's /proc is
	rootDir string
	logsDir string
	w       *walk.Walker
	uppers  map[string]string // writable layers by container id, in the host's view, as of mounted
	mounted time.Time         // when the host's mounts were last read
	mntErr  error             // of that
	runtime Runtime
	store   func() string     // where the runtime says that its images are; nil, empty: not known
	unnamed *openfiles.Finder // nil: they are not looked for
	asked   time.Time         // when the runtime was last asked for writable layers
	told    map[string]stats.FsUsage
	// project is projectUsage (nil), or a test's. owners are the pods by whose project the file
	// system's count was believed.
	project func(dir int) (quota.Project, walk.Usage, bool)
	owners  map[quota.Project]string
	tellErr error
}

// storageDirs are the directories of one pod.
type storageDirs struct {
	pod  string   // rootDir/pods/UID; empty: there is none
	logs []string // podLogsDir/NAMESPACE_NAME_UID
}

// find lists the pods that have directories, by UID.
func (s *storageWalker) find() (map[string]storageDirs, error) {
	found := map[string]storageDirs{}
	err1 := s.names(path.Join(s.rootDir, "pods"), func(name string) {
		found[name] = storageDirs{pod: path.Join(s.rootDir, "pods", name)}
	})
	err2 := s.names(s.logsDir, func(name string) {
		if i := strings.LastIndexByte(name, '_'); i >= 0 {
			d := found[name[i+1:]]
			d.logs = append(d.logs, path.Join(s.logsDir, name))
			found[name[i+1:]] = d
		}
	})
	return found, errors.Join(err1, err2)
}

// names visits the directories in a directory of the host; one that is missing has none.
func (s *storageWalker) names(dir string, visit func(string)) error {
	fd, err := s.host.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return walk.Subdirectories(fd, visit)
}

// errUnannounced: the pod has directories, but which containers write for it is not known.
var errUnannounced = errors.New("the runtime has not told of its containers")

// measure walks one pod. Why a part of it could not be measured, or not to its end, is in err. What
// was counted stands.
func (s *storageWalker) measure(ctx context.Context, uid string, dirs storageDirs,
	pod *podindex.Pod) *storage {
	out := &storage{time: time.Now(), logs: map[string]stats.FsUsage{},
		layers: map[string]stats.FsUsage{},
		exited: map[string]stats.FsUsage{}}
	var errs []error
	for _, logs := range dirs.logs {
		errs = append(errs, s.logs(ctx, logs, out))
	}
	if dirs.pod != "" {
		errs = append(errs, s.volumes(ctx, uid, dirs.pod, out), out.lacks(s.etcHosts(dirs.pod, out)),
			s.terminations(ctx, dirs.pod, out))
	}
	if pod == nil {
		out.unannounced = true
		errs = append(errs, out.lacks(errUnannounced))
	} else {
		for i := range pod.Containers {
			errs = append(errs, s.layer(ctx, &pod.Containers[i], out))
		}
		for i := range pod.Exited {
			out.exited[pod.Exited[i].ID] = s.exitedLayer(ctx, &pod.Exited[i], out.time)
		}
		errs = append(errs, s.ofRuntime(ctx, pod, out))
	}
	if out.err = errors.Join(errs...); out.err != nil {
		out.err = fmt.Errorf("disk usage of pod %s: %w", uid, out.err)
	}
	return out
}

// lacks takes that there is no figure of a part, if there was an error.
func (s *storage) lacks(err error) error {
	s.missing = s.missing || err != nil
	return err
}

// lower takes the figure of a part and the error beside it: then it is a lower bound, or there is
// none.
func (s *storage) lower(u stats.FsUsage, err error) (stats.FsUsage, error) {
	if u.Time.IsZero() {
		return u, s.lacks(err)
	}
	return u, err
}

// mayMiss is what a directory that need not be there takes: nothing, where it is missing.
func mayMiss(u stats.FsUsage, err error) (stats.FsUsage, error) {
	if errors.Is(err, os.ErrNotExist) {
		return stats.FsUsage{Time: time.Now()}, nil
	}
	return u, err
}

// tree walks a directory of the host, which must be there. Beside an error is what was counted;
// without a time, nothing was.
func (s *storageWalker) tree(ctx context.Context, dir string) (stats.FsUsage, error) {
	fd, err := s.host.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return stats.FsUsage{}, err
	}
	defer unix.Close(fd)
	u, err := s.w.Tree(ctx, fd)
	if err != nil {
		err = fmt.Errorf("walk the host's %s: %w", dir, err)
	}
	return stats.FsUsage{Time: time.Now(), UsedBytes: u.Bytes, InodesUsed: u.Inodes,
		Partial: u.Partial}, err
}

// seen is how many entries were looked at so far.
func (s *storageWalker) seen() uint64 {
	if s.w == nil {
		return 0
	}
	return s.w.Seen()
}

// logs measures a directory of logs: each container's below it, and what else is in it.
func (s *storageWalker) logs(ctx context.Context, dir string, out *storage) error {
	fd, err := s.host.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, os.ErrNotExist) {
		out.allLogs.Merge(stats.FsUsage{Time: time.Now()})
		return nil
	}
	if err != nil {
		return out.lacks(err)
	}
	defer unix.Close(fd)
	began := time.Now()
	own, containers, err := s.w.Own(ctx, fd)
	if err != nil {
		err = fmt.Errorf("list the host's %s: %w", dir, err)
	}
	errs := []error{err}
	all := stats.FsUsage{Time: began, UsedBytes: own.Bytes, InodesUsed: own.Inodes,
		Partial: own.Partial}
	for _, c := range containers {
		u, err := out.lower(mayMiss(s.tree(ctx, path.Join(dir, c))))
		errs = append(errs, err)
		sum := out.logs[c]
		sum.Merge(u)
		out.logs[c] = sum
		all.Merge(u)
	}
	out.allLogs.Merge(all)
	return errors.Join(errs...)
}

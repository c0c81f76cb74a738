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

// storage holds one pod's disk usage from one walk.
type storage struct {
	time time.Time
	err  error // explains missing and partial parts
	// missing: some part has no value, not even a lower bound
	missing bool
	took    time.Duration
	turn    time.Duration // the turn's limit
	cut     bool          // the turn ended before the walk
	// unannounced: the runtime did not report the pod yet. The pod is measured again when the
	// runtime reports it.
	unannounced  bool
	logs         map[string]stats.FsUsage // by container
	allLogs      stats.FsUsage
	volumes      []stats.VolumeStats
	etcHosts     stats.FsUsage            // etc-hosts
	messages     stats.FsUsage            // termination messages
	layers       map[string]stats.FsUsage // writable layers, by container id
	exited       map[string]stats.FsUsage // writable layers of exited containers, by container id
	dirs         map[string]string        // directories of writable layers, by container id
	runtimeFiles stats.FsUsage            // files that the runtime keeps for the pod
	projects     map[quota.Project]bool   // projects included in volumes
	unnamed      openfiles.Kept
}

// storageWalker measures one pod at a time. It uses the file system's own count if possible.
type storageWalker struct {
	host     *hostroot.Root
	proc     string // the host's /proc
	rootDir  string
	logsDir  string
	w        *walk.Walker
	uppers   map[string]string // see mounts.UpperDirs, in the host's view, as of mounted
	mounted  time.Time         // when the host's mounts were last read
	mountErr error             // of that read
	runtime  Runtime
	store    func() string     // the runtime's image store; nil or empty: not known
	unnamed  *openfiles.Finder // nil: no search
	// last query of the runtime for all writable layers; zero: none
	layersQueried time.Time
	// when the next query may begin, and the pause after the last one without an answer
	queryNotBefore time.Time
	queryPause     time.Duration
	layerValues    map[string]layerValue // by container ID
	layerErr       error                 // of the last query
	// The Loop sets these before each measurement: the runtime's value must not be older than fresh,
	// the runtime reports containers' roots, and storage.dirs of the pod's last measurement.
	fresh    time.Time
	rooted   bool
	lastDirs map[string]string
	// project replaces quota.OfVolume in tests; nil: quota.OfVolume. owners maps projects with a
	// trusted count to the UIDs of their pods.
	project func(dir int) (quota.Project, walk.Usage, bool)
	owners  map[quota.Project]string
}

// storageDirs are the directories of one pod.
type storageDirs struct {
	pod  string   // rootDir/pods/UID; empty: no such directory
	logs []string // podLogsDir/NAMESPACE_NAME_UID
}

// find lists the pods with directories, by UID.
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

// names visits the subdirectories of a directory of the host. A missing directory counts as empty.
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

// errUnannounced: the pod has directories, but its containers are unknown.
var errUnannounced = errors.New("the runtime has not reported its containers")

// measure walks one pod. The field err of the result explains the parts that could not be measured
// completely; the other parts are valid.
func (s *storageWalker) measure(ctx context.Context, uid string, dirs storageDirs,
	pod *podindex.Pod) *storage {
	out := &storage{time: time.Now(), logs: map[string]stats.FsUsage{},
		layers: map[string]stats.FsUsage{},
		exited: map[string]stats.FsUsage{}, dirs: map[string]string{}}
	var errs []error
	for _, logs := range dirs.logs {
		errs = append(errs, s.logs(ctx, logs, out))
	}
	if dirs.pod != "" {
		errs = append(errs, s.volumes(ctx, uid, dirs.pod, out), out.noteMissing(s.etcHosts(dirs.pod, out)),
			s.terminationMessages(ctx, dirs.pod, out))
	}
	if pod == nil {
		out.unannounced = true
		errs = append(errs, out.noteMissing(errUnannounced))
	} else {
		for i := range pod.Containers {
			errs = append(errs, s.layer(ctx, &pod.Containers[i], out))
		}
		for i := range pod.Exited {
			out.exited[pod.Exited[i].ID] = s.exitedLayer(ctx, &pod.Exited[i], out)
		}
		errs = append(errs, s.runtimeFiles(ctx, pod, out))
	}
	if out.err = errors.Join(errs...); out.err != nil {
		out.err = fmt.Errorf("disk usage of pod %s: %w", uid, out.err)
	}
	return out
}

// noteMissing records, if err is set, that a part has no value. It returns err.
func (s *storage) noteMissing(err error) error {
	s.missing = s.missing || err != nil
	return err
}

// lowerBound returns its arguments. Usage with an error is a lower bound if it has a time;
// otherwise lowerBound records that the part is missing.
func (s *storage) lowerBound(u stats.FsUsage, err error) (stats.FsUsage, error) {
	if u.Time.IsZero() {
		return u, s.noteMissing(err)
	}
	return u, err
}

// zeroIfMissing turns the error of a missing optional directory into a usage of 0.
func zeroIfMissing(u stats.FsUsage, err error) (stats.FsUsage, error) {
	if errors.Is(err, os.ErrNotExist) {
		return stats.FsUsage{Time: time.Now()}, nil
	}
	return u, err
}

// tree walks a directory of the host, which must exist. With an error it still returns the usage
// counted so far; if the usage has no time, nothing was counted.
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

// entriesSeen returns the number of entries read so far.
func (s *storageWalker) entriesSeen() uint64 {
	if s.w == nil {
		return 0
	}
	return s.w.Seen()
}

// logs measures a log directory: the subdirectory of each container, and the other entries.
func (s *storageWalker) logs(ctx context.Context, dir string, out *storage) error {
	fd, err := s.host.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, os.ErrNotExist) {
		out.allLogs.Merge(stats.FsUsage{Time: time.Now()})
		return nil
	}
	if err != nil {
		return out.noteMissing(err)
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
		u, err := out.lowerBound(zeroIfMissing(s.tree(ctx, path.Join(dir, c))))
		errs = append(errs, err)
		sum := out.logs[c]
		sum.Merge(u)
		out.logs[c] = sum
		all.Merge(u)
	}
	out.allLogs.Merge(all)
	return errors.Join(errs...)
}

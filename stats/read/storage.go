package read

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"jettison/cri"
	"jettison/seqfile"
	"jettison/stats"
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
	projects    map[project]bool         // whose usage is in volumes
	unnamed     unnamed
}

// Paths of what pods keep on disk, as the kubelet lays them out (pkg/kubelet/kubelet_getters.go, v1.36).
const (
	emptyDirPlugin  = "kubernetes.io~empty-dir"
	configMapPlugin = "kubernetes.io~configmap"
	gitRepoPlugin   = "kubernetes.io~git-repo"
)

// storageEvery is the age at which a pod's storage is measured again.
const storageEvery = time.Minute

// mountsEvery is how long a reading of the host's mounts is used, and maxMounts the size beyond which none is.
const (
	mountsEvery = 3 * time.Second
	maxMounts   = 16 << 20
)

// runtimePatience is how long the walk waits for the runtime's word: all pods wait with it.
const runtimePatience = 3 * time.Second

// storageWalker measures pods one at a time, the one whose figures are oldest first, and uses the file system's own count where
// it has one.
type storageWalker struct {
	host    *HostRoot
	proc    string // where the host's /proc is
	rootDir string
	logsDir string
	w       *walker
	uppers  map[string]string // writable layers by container id, in the host's view, as of mounted
	mounted time.Time         // when the host's mounts were last read
	mntErr  error             // of that
	runtime FsRuntime
	store   func() string // where the runtime says that its images are; nil, empty: not known
	unnamed *unnamedFiles // nil: they are not looked for
	asked   time.Time     // when the runtime was last asked for writable layers
	told    map[string]stats.FsUsage
	// project is projectUsage (nil), or a test's. owners are the pods by whose project the file system's count was believed.
	project func(dir int) (project, usage, bool)
	owners  map[project]string
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
	fd, err := s.host.open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return s.subdirectories(fd, visit)
}

func (s *storageWalker) subdirectories(fd int, visit func(string)) error {
	buf := make([]byte, 8<<10)
	for {
		n, err := unix.Getdents(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return err
		}
		for b := buf[:n]; len(b) > 0; {
			e, rest, ok := dirent(b)
			if !ok {
				return fmt.Errorf("list directory: %w record", ErrMalformed)
			}
			b = rest
			if e.kind == unix.DT_UNKNOWN { // not every file system tells
				var st unix.Stat_t
				if unix.Fstatat(fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
					e.kind = unix.DT_DIR
				}
			}
			if e.kind == unix.DT_DIR && e.name != "." && e.name != ".." {
				visit(e.name)
			}
		}
	}
}

// errUnannounced: the pod has directories, but which containers write for it is not known.
var errUnannounced = errors.New("the runtime has not told of its containers")

// measure walks one pod. Why a part of it could not be measured, or not to its end, is in err. What was counted stands.
func (s *storageWalker) measure(ctx context.Context, uid string, dirs storageDirs, pod *Pod) *storage {
	out := &storage{time: time.Now(), logs: map[string]stats.FsUsage{}, layers: map[string]stats.FsUsage{},
		exited: map[string]stats.FsUsage{}}
	var errs []error
	for _, logs := range dirs.logs {
		errs = append(errs, s.logs(ctx, logs, out))
	}
	if dirs.pod != "" {
		errs = append(errs, s.volumes(ctx, uid, dirs.pod, out), out.lacks(s.etcHosts(dirs.pod, out)), s.terminations(ctx, dirs.pod, out))
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

// lower takes the figure of a part and the error beside it: then it is a lower bound, or there is none.
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

// tree walks a directory of the host, which must be there. Beside an error is what was counted; without a time, nothing was.
func (s *storageWalker) tree(ctx context.Context, dir string) (stats.FsUsage, error) {
	fd, err := s.host.open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return stats.FsUsage{}, err
	}
	defer unix.Close(fd)
	u, err := s.w.tree(ctx, fd)
	if err != nil {
		err = fmt.Errorf("walk the host's %s: %w", dir, err)
	}
	return stats.FsUsage{Time: time.Now(), UsedBytes: u.bytes, InodesUsed: u.inodes, Partial: u.partial}, err
}

// seen is how many entries were looked at so far.
func (s *storageWalker) seen() uint64 {
	if s.w == nil {
		return 0
	}
	return s.w.seen
}

// logs measures a directory of logs: each container's below it, and what else is in it.
func (s *storageWalker) logs(ctx context.Context, dir string, out *storage) error {
	fd, err := s.host.open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, os.ErrNotExist) {
		out.allLogs.Merge(stats.FsUsage{Time: time.Now()})
		return nil
	}
	if err != nil {
		return out.lacks(err)
	}
	defer unix.Close(fd)
	began := time.Now()
	own, containers, err := s.w.own(ctx, fd)
	if err != nil {
		err = fmt.Errorf("list the host's %s: %w", dir, err)
	}
	errs := []error{err}
	all := stats.FsUsage{Time: began, UsedBytes: own.bytes, InodesUsed: own.inodes, Partial: own.partial}
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

// volumes measures the volumes that the kubelet counts as local (pkg/kubelet/eviction/helpers.go localVolumeNames), and those
// in memory. Secrets and projected volumes are tmpfs that only the kubelet writes to.
func (s *storageWalker) volumes(ctx context.Context, uid, pod string, out *storage) error {
	out.projects = map[project]bool{}
	maps.DeleteFunc(s.owners, func(_ project, owner string) bool { return owner == uid })
	var errs []error
	for _, plugin := range []string{emptyDirPlugin, configMapPlugin, gitRepoPlugin} {
		dir := path.Join(pod, "volumes", plugin)
		err := s.names(dir, func(name string) {
			v, err := s.volume(ctx, uid, path.Join(dir, name), out.projects)
			v.Name = name
			if v.FsUsage, err = out.lower(v.FsUsage, err); !v.Time.IsZero() {
				out.volumes = append(out.volumes, v)
			}
			errs = append(errs, err)
		})
		errs = append(errs, out.lacks(err))
	}
	slices.SortFunc(out.volumes, byName)
	return errors.Join(errs...)
}

func byName(a, b stats.VolumeStats) int { return cmp.Compare(a.Name, b.Name) }

// volume measures one volume: by asking the file system where it counts by itself (tmpfs, project quotas), else by walking it.
func (s *storageWalker) volume(ctx context.Context, uid, dir string, counted map[project]bool) (v stats.VolumeStats, err error) {
	fd, err := s.host.open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return v, err
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	if err := ignoringEINTR(func() error { return unix.Fstatfs(fd, &fs) }); err != nil {
		return v, fmt.Errorf("statfs the host's %s: %w", dir, err)
	}
	v.Time = time.Now()
	if fs.Type == unix.TMPFS_MAGIC {
		stats := fsStats(&fs)
		v.Memory, v.UsedBytes, v.InodesUsed = true, stats.UsedBytes.V, stats.InodesUsed.V
		return v, nil
	}
	if p, u, ok := s.ofProject(uid, fd); ok {
		v.Quota = true
		if !counted[p] { // a kubelet may give all volumes of a pod one project
			counted[p] = true
			v.UsedBytes, v.InodesUsed = u.bytes, u.inodes
		}
		return v, nil
	}
	u, err := s.w.tree(ctx, fd)
	if err != nil {
		err = fmt.Errorf("walk the host's %s: %w", dir, err)
	}
	v.Time, v.UsedBytes, v.InodesUsed, v.Partial = time.Now(), u.bytes, u.inodes, u.partial
	return v, err
}

// ofProject is what the file system itself counts of a volume. A project that another pod's volume has is not believed: a
// kubelet gives no project to two pods.
func (s *storageWalker) ofProject(uid string, fd int) (p project, u usage, ok bool) {
	ask := s.project
	if ask == nil {
		ask = projectUsage
	}
	if p, u, ok = ask(fd); !ok {
		return p, u, false
	}
	if owner, taken := s.owners[p]; taken && owner != uid {
		return p, u, false
	}
	if s.owners == nil {
		s.owners = map[project]string{}
	}
	s.owners[p] = uid
	return p, u, true
}

// layer measures a container's writable layer: the upper directory of the overlay that the runtime has mounted as its root. Where
// the host has no such mount (devmapper, btrfs, native snapshots; CRI-O's mount points do not name the container), the runtime's
// own word is taken. One that does not run yet has written nothing, so its layer may be missing.
func (s *storageWalker) layer(ctx context.Context, c *cri.Container, out *storage) error {
	dir, ok := s.upper(c.ID, out.time)
	if !ok {
		u, err := s.byRuntime(ctx, c)
		if err == nil {
			out.layers[c.ID] = u
		} else if c.State == cri.Created {
			err = nil
		}
		return out.lacks(err)
	}
	u, err := out.lower(s.tree(ctx, dir))
	if err != nil {
		err = fmt.Errorf("container %s: %w", c.ID, err)
	}
	if !u.Time.IsZero() {
		out.layers[c.ID] = u
	}
	return err
}

// upper is the upper directory of a container's root. One that is not among the mounts may have been mounted since they were read: they
// are read anew, if that was before a time.
func (s *storageWalker) upper(id string, since time.Time) (string, bool) {
	s.readMounts()
	dir, ok := s.uppers[id]
	if !ok && s.mounted.Before(since) {
		s.mounted = time.Time{}
		s.readMounts()
		dir, ok = s.uppers[id]
	}
	return dir, ok
}

// readMounts renews what is known of the host's mounts: those of its first process. A container's own are no witness, for a
// tenant may put itself on an overlay of its choice (unshare(2), pivot_root(2)); nothing it mounts in there is seen out here.
func (s *storageWalker) readMounts() {
	if !s.mounted.IsZero() && time.Since(s.mounted) < mountsEvery {
		return
	}
	s.mounted = time.Now()
	// An old reading may name a directory that is another container's by now: none is better.
	if s.uppers, s.mntErr = readUpperDirs(s.proc + "/1/mountinfo"); s.mntErr != nil {
		s.mntErr = fmt.Errorf("read the host's mounts: %w", s.mntErr)
	}
}

// readUpperDirs reads a mountinfo line by line, however many there are below maxMounts.
func readUpperDirs(name string) (map[string]string, error) {
	f, err := seqfile.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	within := &io.LimitedReader{R: f, N: maxMounts + 1}
	uppers, err := parseUpperDirs(within)
	if within.N == 0 {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxMounts)
	}
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	return uppers, nil
}

// byRuntime is what the runtime says of a writable layer. It is asked once for all containers, and seldom: that is dear.
func (s *storageWalker) byRuntime(ctx context.Context, c *cri.Container) (stats.FsUsage, error) {
	if s.asked.IsZero() || time.Since(s.asked) >= storageEvery {
		short, cancel := context.WithTimeout(ctx, runtimePatience)
		all, err := s.runtime.ListContainerStats(short)
		cancel()
		s.asked, s.told, s.tellErr = time.Now(), map[string]stats.FsUsage{}, err
		for _, c := range all {
			if l := c.WritableLayer; l != nil && l.UsedBytes != nil && l.InodesUsed != nil {
				u := stats.FsUsage{Time: l.Time, UsedBytes: *l.UsedBytes, InodesUsed: *l.InodesUsed}
				if u.Time.Unix() <= 0 { // it did not say
					u.Time = s.asked
				}
				s.told[c.ID] = u
			}
		}
	}
	u, ok := s.told[c.ID]
	if ok {
		return u, nil
	}
	why := errors.New("the host has no overlay mounted as its root, and the runtime does not say what it has written")
	if c.PID == 0 {
		why = errors.New("its process is not known yet, nor a root of it")
	}
	return u, fmt.Errorf("container %s: %w", c.ID, errors.Join(why, s.mntErr, s.tellErr))
}

// owns reports whether a process is in a cgroup named after a container or sandbox. Only then is a process id that the runtime
// gave believed: ids are used again.
func owns(proc, id string, pid int) (bool, error) {
	group, err := os.ReadFile(fmt.Sprintf("%s/%d/cgroup", proc, pid))
	return err == nil && id != "" && bytes.Contains(group, []byte(id)), err
}

// parseUpperDirs finds the upper directories of containers' roots in a mountinfo (proc_pid_mountinfo(5)), by container id: of
// overlays mounted at ".../ID/rootfs", as containerd does (/run/containerd/io.containerd.runtime.v2.task/k8s.io/ID/rootfs). An id for
// which the mounts disagree is left out, as is an upper directory that is not absolute: from where it counts is not known.
func parseUpperDirs(mounts io.Reader) (map[string]string, error) {
	found, disputed := map[string]string{}, map[string]bool{}
	_, err := mountinfo.GetMountsFromReader(seqfile.Mounts(mounts), func(m *mountinfo.Info) (skip, stop bool) {
		parent, ok := strings.CutSuffix(m.Mountpoint, "/rootfs")
		slash := strings.LastIndexByte(parent, '/')
		if id := parent[slash+1:]; ok && m.FSType == "overlay" && slash >= 0 && id != "" {
			upper, had := upperOption(m.VFSOptions), found[id]
			if disputed[id] = disputed[id] || had != "" && had != upper || !path.IsAbs(upper); disputed[id] {
				delete(found, id)
			} else {
				found[id] = upper
			}
		}
		return true, false
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// upperOption is the upper directory among an overlay's options; empty: it has none.
func upperOption(options string) string {
	for option := range strings.SplitSeq(options, ",") {
		if upper, ok := strings.CutPrefix(option, "upperdir="); ok {
			return unescape.Replace(strings.Clone(upper)) // the line is not kept alive
		}
	}
	return ""
}

// unescape undoes what the kernel does to overlay's options (fs/seq_file.c seq_show_option, fs/overlayfs ovl_show_options).
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\072`, ":", `\054`, ",", `\043`, "#")

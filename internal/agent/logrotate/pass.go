// Package logrotate limits the logs of running containers on nodes without a kubelet: it renames a
// log that is too large, makes the runtime open a new one, compresses older files and removes the
// oldest. Names and order are the kubelet's (v1.37.2 pkg/kubelet/logs/container_log_manager.go), so
// that each can continue where the other stopped:
//
//	0.log                       the runtime writes to it
//	0.log.20260131-235959       renamed at that time; the runtime may have written to it a little
//	                            longer, so it is compressed in the next rotation
//	0.log.20260131-225959.gz    compressed
//	0.log.20260131-225959.tmp   left by an interrupted compression: removed, also next to the log of
//	                            a later attempt, 1.log
//
// The path of a log is input from the runtime. Only paths below the pod log directory are accepted,
// without symbolic links and mounts below it, and all operations are relative to the open directory
// of the log. Only files with exactly these names are touched; the kubelet takes all with the same
// prefix.
//
//	pass.go       Rotator: one pass over the logs of all containers
//	logrotate.go  one log and its older files: when and how it is rotated
//	compress.go   compresses an older file
//	part.go       Rotation: starts passes, for the loop
package logrotate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cri"
	"jettison/stats/read"
)

// Runtime is the part of a container runtime's client that a pass uses (*cri.Client).
type Runtime interface {
	ContainerStatus(ctx context.Context, id string) (cri.Container, error)
	ReopenContainerLog(ctx context.Context, id string) error
}

// Rotator rotates logs. It is for one goroutine. A pass may take long, because it reads and
// compresses the logs of containers.
type Rotator struct {
	Host    *read.HostRoot
	Runtime Runtime
	// such as "/var/log/pods". Symbolic links and mounts are allowed on the way to it, not below
	PodLogsDir string
	MaxSize    int64 // size in bytes at which a log is rotated (containerLogMaxSize); below 0: never
	// number of files of one log, including the current one (containerLogMaxFiles); at least 2
	MaxFiles int
	// Kubelet reports whether a kubelet runs now; it is called right before a rotation, which is
	// then left to the kubelet. nil: no kubelet.
	Kubelet func() bool
	// number of passes in which a running container failed to reopen its log, by container ID
	failures map[string]int
}

// maxFailures is the number of passes, a minute of them, that wait for a container that does not
// reopen its log. It continues to write to its old file, and these lines are lost after compression
// and removal. After that, the log is rotated for the other containers.
const maxFailures = 6

// Result counts the changes of a pass. It is valid with an error, too.
type Result struct {
	Rotated    int
	Compressed int
	Removed    int    // files older than the newest MaxFiles, and leftovers of earlier passes
	Freed      uint64 // disk space in bytes freed by removal and compression
	Reopened   int    // missing logs reopened
}

const maxErrors = 8 // errors of one pass by text; further ones are counted

// Pass checks the log of each running container and rotates those that are too large. Times in
// names are in the time zone of now, like the kubelet's. The error names each failed log in one
// line; the pass continues with the others. It ends early with ctx.
func (r *Rotator) Pass(ctx context.Context, now time.Time, containers []cri.Container) (Result,
	error) {
	p := &rotation{Rotator: r, now: now}
	if r.MaxSize < 0 {
		return p.result, nil
	}
	base, err := r.Host.Dir(r.PodLogsDir)
	if errors.Is(err, unix.ENOENT) {
		return p.result, nil // no pod has written a log yet
	}
	if err != nil {
		return p.result, fmt.Errorf("rotate logs: %w", err)
	}
	defer unix.Close(base)
	var errs []error
	more := 0
	addErr := func(id string, err error) {
		switch {
		case err == nil || errors.Is(err, cri.ErrNotFound) || ctx.Err() != nil:
		case len(errs) < maxErrors:
			errs = append(errs, fmt.Errorf("rotate log of container %.64s: %w", id, err))
		default:
			more++
		}
	}
	p.forget(containers)
	paths, ids := p.paths(ctx, containers, addErr)
	for _, file := range paths {
		if p.kubelet || ctx.Err() != nil {
			break
		}
		addErr(ids[file][0], p.log(ctx, base, file, ids[file]))
	}
	if ctx.Err() != nil {
		errs = append(errs, fmt.Errorf("rotate logs: %w", ctx.Err()))
	}
	if more > 0 {
		errs = append(errs, fmt.Errorf("rotate logs: %d further logs failed", more))
	}
	return p.result, errors.Join(errs...)
}

// rotation is the state of one pass.
type rotation struct {
	*Rotator
	now     time.Time
	result  Result
	kubelet bool // a kubelet is running
	// unknown are running containers with an unknown log path, which may be any log. They reopen
	// their log once in a pass: the files to be compressed were renamed in an earlier pass.
	unknown      []string
	unknownTried bool            // reopenUnknown has run in this pass
	failedNow    map[string]bool // containers that failed to reopen their log in this pass
}

// forget removes the failures of containers that no longer run.
func (p *rotation) forget(containers []cri.Container) {
	if len(p.failures) == 0 {
		return
	}
	running := map[string]bool{}
	for i := range containers {
		running[containers[i].ID] = containers[i].State == cri.Running
	}
	maps.DeleteFunc(p.failures, func(id string, _ int) bool { return !running[id] })
}

// reopenOne makes a container reopen its log, and counts failures.
func (p *rotation) reopenOne(ctx context.Context, id string) error {
	err := p.Runtime.ReopenContainerLog(ctx, id)
	switch {
	case err == nil:
		delete(p.failures, id)
	case ctx.Err() != nil || errors.Is(err, cri.ErrNotFound) || p.failedNow[id]:
	default:
		if p.failures == nil {
			p.failures = map[string]int{}
		}
		if p.failedNow == nil {
			p.failedNow = map[string]bool{}
		}
		p.failures[id]++
		p.failedNow[id] = true
	}
	return err
}

// reopenUnknown makes the containers with unknown logs reopen them. It returns an error if one
// failed and the pass must wait for it.
func (p *rotation) reopenUnknown(ctx context.Context) error {
	for _, id := range p.unknown {
		if !p.unknownTried && ctx.Err() == nil {
			_ = p.reopenOne(ctx, id) // counts failures
		}
	}
	p.unknownTried = true
	for _, id := range p.unknown {
		if p.failedNow[id] && p.failures[id] < maxFailures {
			return fmt.Errorf("container %.64s has an unknown log path, which may be this one, and did not reopen it", id)
		}
	}
	return ctx.Err()
}

// kubeletRunning reports whether a kubelet runs by now.
func (p *rotation) kubeletRunning() bool {
	p.kubelet = p.kubelet || p.Kubelet != nil && p.Kubelet()
	return p.kubelet
}

// paths returns the logs of the running containers, in their order, and the IDs of the containers
// that write to each: without a kubelet several, of one pod or of several, may share a log.
func (p *rotation) paths(ctx context.Context, containers []cri.Container,
	addErr func(id string, err error)) ([]string, map[string][]string) {
	paths, ids := []string(nil), map[string][]string{}
	for i := range containers {
		c := &containers[i]
		if ctx.Err() != nil {
			break
		}
		if c.State != cri.Running { // others write no more
			continue
		}
		file := c.LogPath
		if file == "" { // a list may omit the path
			status, err := p.Runtime.ContainerStatus(ctx, c.ID)
			if addErr(c.ID, err); err != nil || status.LogPath == "" { // it writes no log
				if err != nil && !errors.Is(err, cri.ErrNotFound) {
					p.unknown = append(p.unknown, c.ID)
				}
				continue
			}
			file = status.LogPath
		}
		if ids[file] == nil {
			paths = append(paths, file)
		}
		ids[file] = append(ids[file], c.ID)
	}
	return paths, ids
}

// log rotates the log of some containers if it is too large.
func (p *rotation) log(ctx context.Context, base int, logPath string, ids []string) error {
	rel, err := below(p.PodLogsDir, logPath)
	if err != nil {
		return err
	}
	dir, err := openDir(base, path.Dir(rel))
	if err != nil {
		return fmt.Errorf("open directory of %.256q: %w", logPath, err)
	}
	defer unix.Close(dir)
	l := &log{rotation: p, dir: dir, name: path.Base(rel), ids: ids}
	if err := l.rotate(ctx); err != nil {
		return fmt.Errorf("%.256q: %w", logPath, err)
	}
	return nil
}

// below returns the path of a file relative to a directory. It returns an error unless the file is
// below it.
func below(dir, file string) (rel string, err error) {
	rel, ok := strings.CutPrefix(file, strings.TrimRight(path.Clean(dir), "/")+"/")
	if !ok {
		return "", fmt.Errorf("%.256q is not in %s, skipped", file, dir)
	}
	for part := range strings.SplitSeq(rel, "/") {
		if part == "" || part == "." || part == ".." || len(part) > 255 || strings.ContainsRune(part, 0) {
			return "", fmt.Errorf("%.256q is not the plain path of a file, skipped", file)
		}
	}
	return rel, nil
}

// openDir opens a directory below another one for reading. EXDEV: a mount is on the way; ELOOP: a
// symbolic link is.
func openDir(base int, rel string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	for {
		fd, err := unix.Openat2(base, rel, &how)
		// EAGAIN: a concurrent rename (openat2(2))
		if err == nil || err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// Package logrotate keeps the logs of live containers small where no kubelet does: a log that has
// grown too large is renamed, the runtime opens a new one, older ones are compressed, and the
// oldest go. Names and order are the kubelet's (v1.36.3 pkg/kubelet/logs/container_log_manager.go),
// so that either may go on where the other stopped:
//
//	0.log                       the runtime writes to it
//	0.log.20260131-235959       renamed then; it may have been written to a little longer, so it is
//	                            compressed the next time only
//	0.log.20260131-225959.gz    compressed
//	0.log.20260131-225959.tmp   left behind by a compression that did not end: removed, also beside
//	                            the log of a later attempt, 1.log
//
// The path of a log is the runtime's word. It counts only below the pod log directory, no symbolic
// link is followed below that and no mount crossed, and everything happens relative to the open
// directory of the log. Of what else lies there only names of exactly these shapes are touched; the
// kubelet takes all that begin alike.
//
//	pass.go      Rotator: one pass over the logs of all containers
//	logrotate.go    one log and its older files: when it is rotated, and how
//	compress.go  compressing one of them
//	part.go      Rotation: when a pass is made, for the loop
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

// Runtime is what a pass needs of a container runtime (*cri.Client).
type Runtime interface {
	ContainerStatus(ctx context.Context, id string) (cri.Container, error)
	ReopenContainerLog(ctx context.Context, id string) error
}

// Rotator rotates logs. One goroutine uses it; a pass may take long, for it reads and compresses
// what containers have written.
type Rotator struct {
	Host    *read.HostRoot
	Runtime Runtime
	// "/var/log/pods". Itself, and on the way to it, symbolic links and mounts are the administrator's
	PodLogsDir string
	MaxSize    int64 // bytes from which on a log is rotated (containerLogMaxSize); below 0: none is
	// files of one log, the one that is written to included (containerLogMaxFiles); at least 2
	MaxFiles int
	// Kubelet looks whether one is there now, right before files go: then it rotates. nil: none is.
	Kubelet func() bool
	// in how many passes containers that run did not reopen their log when they were to, by ID
	refused map[string]int
}

// patience is how many passes wait for a container that does not reopen its log, a minute of them:
// it writes to the file that it has, and what is compressed and removed then is lost. Beyond, the
// log of the others goes before.
const patience = 6

// Result is what a pass has done. It is right beside an error, too.
type Result struct {
	Rotated    int
	Compressed int
	Removed    int    // older than the newest MaxFiles, and what earlier passes left behind
	Freed      uint64 // bytes that were allocated to what was removed, and compressed
	Reopened   int    // logs that were missing
}

const maxErrors = 8 // of one pass, in words; the rest is counted

// Pass looks at the log of every container that runs and rotates what is too large. Times in names
// are now's, in its own location, as the kubelet's are. What goes wrong with one log is named in
// the error, one line each, and the others go on. It ends early with ctx.
func (r *Rotator) Pass(ctx context.Context, now time.Time, containers []cri.Container) (Result,
	error) {
	p := &rotation{Rotator: r, now: now}
	if r.MaxSize < 0 {
		return p.result, nil
	}
	base, err := r.Host.Dir(r.PodLogsDir)
	if errors.Is(err, unix.ENOENT) {
		return p.result, nil // no pod has logged yet
	}
	if err != nil {
		return p.result, fmt.Errorf("rotate logs: %w", err)
	}
	defer unix.Close(base)
	var errs []error
	more := 0
	note := func(id string, err error) {
		switch {
		case err == nil || errors.Is(err, cri.ErrNotFound) || ctx.Err() != nil:
		case len(errs) < maxErrors:
			errs = append(errs, fmt.Errorf("rotate log of container %.64s: %w", id, err))
		default:
			more++
		}
	}
	p.forget(containers)
	paths, of := p.paths(ctx, containers, note)
	for _, file := range paths {
		if p.kubelet || ctx.Err() != nil {
			break
		}
		note(of[file][0], p.log(ctx, base, file, of[file]))
	}
	if ctx.Err() != nil {
		errs = append(errs, fmt.Errorf("rotate logs: %w", ctx.Err()))
	}
	if more > 0 {
		errs = append(errs, fmt.Errorf("rotate logs: %d more could not be", more))
	}
	return p.result, errors.Join(errs...)
}

// rotation is one pass.
type rotation struct {
	*Rotator
	now     time.Time
	result  Result
	kubelet bool // one has come
	// untold are the containers that run and do not tell their log, which may be any. They are asked
	// to reopen it once a pass: what is compressed then was renamed before.
	untold []string
	asked  bool            // they were
	late   map[string]bool // containers that did not reopen their log in this pass
}

// forget forgets containers that do not run any more.
func (p *rotation) forget(containers []cri.Container) {
	if len(p.refused) == 0 {
		return
	}
	runs := map[string]bool{}
	for i := range containers {
		runs[containers[i].ID] = containers[i].State == cri.Running
	}
	maps.DeleteFunc(p.refused, func(id string, _ int) bool { return !runs[id] })
}

// tell has a container reopen its log.
func (p *rotation) tell(ctx context.Context, id string) error {
	err := p.Runtime.ReopenContainerLog(ctx, id)
	switch {
	case err == nil:
		delete(p.refused, id)
	case ctx.Err() != nil || errors.Is(err, cri.ErrNotFound) || p.late[id]:
	default:
		if p.refused == nil {
			p.refused = map[string]int{}
		}
		if p.late == nil {
			p.late = map[string]bool{}
		}
		p.refused[id]++
		p.late[id] = true
	}
	return err
}

// tellUntold has those reopen theirs that do not tell it. An error: one did not, and is waited for.
func (p *rotation) tellUntold(ctx context.Context) error {
	for _, id := range p.untold {
		if !p.asked && ctx.Err() == nil {
			_ = p.tell(ctx, id) // which notes what fails
		}
	}
	p.asked = true
	for _, id := range p.untold {
		if p.late[id] && p.refused[id] < patience {
			return fmt.Errorf("container %.64s runs and neither tells nor reopens its log, which may be this one", id)
		}
	}
	return ctx.Err()
}

// beside looks whether a kubelet has come.
func (p *rotation) beside() bool {
	p.kubelet = p.kubelet || p.Kubelet != nil && p.Kubelet()
	return p.kubelet
}

// paths are the logs of the containers that run, in the order of these, and the IDs of those that
// write to each: without a kubelet several may have the same, of one pod or of several.
func (p *rotation) paths(ctx context.Context, containers []cri.Container,
	note func(id string, err error)) ([]string, map[string][]string) {
	paths, of := []string(nil), map[string][]string{}
	for i := range containers {
		c := &containers[i]
		if ctx.Err() != nil {
			break
		}
		if c.State != cri.Running { // others write nothing more; an empty new log would be of no use
			continue
		}
		file := c.LogPath
		if file == "" { // what was listed may lack it
			status, err := p.Runtime.ContainerStatus(ctx, c.ID)
			if note(c.ID, err); err != nil || status.LogPath == "" { // it has none
				if err != nil && !errors.Is(err, cri.ErrNotFound) {
					p.untold = append(p.untold, c.ID)
				}
				continue
			}
			file = status.LogPath
		}
		if of[file] == nil {
			paths = append(paths, file)
		}
		of[file] = append(of[file], c.ID)
	}
	return paths, of
}

// log looks at one log, that of some containers.
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

// below is a path relative to the directory that it has to lie in.
func below(dir, file string) (rel string, err error) {
	rel, ok := strings.CutPrefix(file, strings.TrimRight(path.Clean(dir), "/")+"/")
	if !ok {
		return "", fmt.Errorf("%.256q does not lie in %s: it is left alone", file, dir)
	}
	for part := range strings.SplitSeq(rel, "/") {
		if part == "" || part == "." || part == ".." || len(part) > 255 || strings.ContainsRune(part, 0) {
			return "", fmt.Errorf("%.256q is not the plain path of a file: it is left alone", file)
		}
	}
	return rel, nil
}

// openDir opens a directory below another one, to be listed and worked in. EXDEV: something is
// mounted there; ELOOP: a symbolic link is on the way.
func openDir(base int, rel string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	for {
		fd, err := unix.Openat2(base, rel, &how)
		// EAGAIN: a rename raced with it (openat2(2))
		if err == nil || err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

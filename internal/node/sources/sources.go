// Package sources opens the sources that the agent reads and acts on. Its errors state the cause, the
// place, and what to do.
package sources

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/internal/base/retry"
	"jettison/internal/node/config"
	"jettison/stats/read"
)

// Options are the places of the sources. Empty strings select the defaults of the packages that use
// them.
type Options struct {
	Config      *config.Loaded
	CgroupMount string
	ProcMount   string
	// Act: the caller will kill pods, so read-only access is an error.
	Act bool
}

// Sources are a node's cgroups, /proc and container runtime.
type Sources struct {
	FS     *cgroup.FS
	Proc   *read.Proc
	Reader *read.Reader
	Client *cri.Client
}

// Close closes all open sources.
func (s *Sources) Close() {
	if s.Reader != nil {
		s.Reader.Close()
	}
	if s.Proc != nil {
		s.Proc.Close()
	}
	if s.FS != nil {
		s.FS.Close()
	}
	if s.Client != nil {
		s.Client.Close()
	}
}

// Open opens all sources, without a connection to the runtime yet.
func Open(o Options) (_ *Sources, err error) {
	s := &Sources{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.FS, err = OpenCgroups(o); err != nil {
		return nil, err
	}
	if s.Proc, err = OpenProc(o); err != nil {
		return nil, err
	}
	if s.Reader, err = read.NewReader(s.FS, s.Proc, o.Config.CgroupRoot); err != nil {
		return nil, err
	}
	if s.Client, err = Dial(o); err != nil {
		return nil, err
	}
	return s, nil
}

// OpenCgroups opens the cgroup v2 hierarchy.
func OpenCgroups(o Options) (_ *cgroup.FS, err error) {
	fs, err := cgroup.Open(o.CgroupMount)
	switch {
	case errors.Is(err, cgroup.ErrNotV2):
		return nil, fmt.Errorf("%w: boot the node with systemd.unified_cgroup_hierarchy=1, or set "+
			"--cgroup-mount to the cgroup v2 mount", err)
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission),
		errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("%w: mount the node's cgroup v2 hierarchy there, or set --cgroup-mount", err)
	case err != nil:
		return nil, err
	}
	defer func() {
		if err != nil {
			fs.Close()
		}
	}()
	controllers, err := fs.Controllers()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(controllers, "memory") {
		return nil, fmt.Errorf("%s: no memory controller (cgroup.controllers: %s): on a hybrid node cgroup v1 uses it, "+
			"boot with systemd.unified_cgroup_hierarchy=1; else enable it on the kernel command line",
			fs.Mount(), strings.Join(controllers, " "))
	}
	if !o.Act {
		return fs, nil
	}
	if fs.ReadOnly() {
		return nil, fmt.Errorf("%s: mounted read-only, pods cannot be killed: "+
			"run the agent privileged (docs/operate/privileges.md), or with --dry-run", fs.Mount())
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%s: user %d cannot kill pods: "+
			"run the agent as root (docs/operate/privileges.md), or with --dry-run",
			fs.Mount(), os.Geteuid())
	}
	return fs, nil
}

// OpenProc opens /proc.
func OpenProc(o Options) (*read.Proc, error) {
	proc, err := read.OpenProc(o.ProcMount)
	if err != nil {
		return nil, fmt.Errorf("%w: mount the node's /proc there, or set --proc-mount", err)
	}
	return proc, nil
}

// Dial creates the runtime's client.
func Dial(o Options) (*cri.Client, error) {
	return cri.Dial(o.Config.ContainerRuntimeEndpoint, o.Config.ImageServiceEndpoint)
}

// OutsideFinder returns the finder of containers outside their pods' cgroups, for the pods of a client.
func (o Options) OutsideFinder(c *cri.Client) *read.OutsideFinder {
	return read.NewOutsideFinder(o.ProcMount, o.Config.CgroupRoot, c.PeerPID)
}

// Redial replaces the runtime's client, for a configuration with another socket, and closes the
// previous one.
func (s *Sources) Redial(c *config.Loaded) error {
	client, err := Dial(Options{Config: c})
	if err != nil {
		return err
	}
	s.Client.Close()
	s.Client = client
	return nil
}

// silenceLimit is the time without an answer of the runtime after which FirstAnswer reports the wait.
const silenceLimit = time.Second

// Pauses between two attempts, doubled from minPause to maxPause.
const (
	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

// FirstAnswer waits for the runtime's version and its first list; limit 0 means forever. It calls
// runtime before each attempt for the client. It calls waits with the reason immediately after a
// failed attempt, or after a second without an answer, and again when the reason changes.
func FirstAnswer(
	ctx context.Context, runtime func() (*cri.Client, *cri.Lister), limit time.Duration,
	waits func(why string),
) (version cri.Version, listing cri.Listing, err error) {
	first, cancelFirst := context.WithTimeout(ctx, silenceLimit)
	defer cancelFirst()
	reported := ""
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	for wait := minPause; ; wait = retry.Backoff(wait, minPause, maxPause) {
		c, l := runtime()
		attempt := ctx
		if reported == "" {
			attempt = first
		}
		if version, err = c.Version(attempt); err == nil {
			listing, err = l.List(ctx)
		}
		if err == nil {
			return version, listing, nil
		}
		if errors.Is(err, cri.ErrNotCRI) {
			return version, listing, fmt.Errorf(
				"%w: set containerRuntimeEndpoint to the runtime's CRI socket", err)
		}
		if why := Diagnose(c.Endpoint(), err); why != reported && ctx.Err() == nil {
			waits(why)
			reported = why
		}
		if !retry.Sleep(ctx, wait) {
			return version, listing, fmt.Errorf("container runtime %s: no answer within %v: %s",
				c.Endpoint(), limit, Diagnose(c.Endpoint(), err))
		}
	}
}

// Diagnose returns the reason why a socket does not answer, or the error of its answer.
func Diagnose(endpoint string, err error) string {
	if errors.Is(err, cri.ErrTooLarge) {
		return err.Error()
	}
	path := strings.TrimPrefix(endpoint, "unix://")
	conn, dialErr := net.DialTimeout("unix", path, time.Second)
	if dialErr == nil {
		conn.Close()
	}
	switch {
	case dialErr == nil && errors.Is(err, context.DeadlineExceeded):
		return "the socket accepts connections but does not answer in CRI v1 in time: check whether the " +
			"runtime hangs or lacks CPU time, or set containerRuntimeEndpoint"
	case dialErr == nil:
		return "the socket accepts connections but does not answer in CRI v1: check the runtime, or set " +
			"containerRuntimeEndpoint"
	case errors.Is(dialErr, os.ErrNotExist):
		return "no such socket: start the runtime, or set containerRuntimeEndpoint"
	case errors.Is(dialErr, os.ErrPermission):
		return "permission denied: run the agent as root"
	case errors.Is(dialErr, syscall.ECONNREFUSED):
		return "nothing listens on that socket: start the runtime, or set containerRuntimeEndpoint"
	}
	return err.Error()
}

// NoPressure returns the reason why PSI is unavailable; empty: it is available.
func NoPressure(procMount string) string {
	if procMount == "" {
		procMount = "/proc"
	}
	if _, err := os.Stat(procMount + "/pressure/memory"); err != nil {
		return "the kernel reports no pressure (PSI): boot it with psi=1"
	}
	return ""
}

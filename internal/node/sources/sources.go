// Package sources opens what the agent reads and acts through, and says in words what is wrong with
// each: what, where, and what to do about it.
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

// Options say where things are. Empty strings stand for the defaults of the packages that use them.
type Options struct {
	Config      *config.Loaded
	CgroupMount string
	ProcMount   string
	// Act: something will be killed through them, so what is merely readable will not do.
	Act bool
}

// Sources are a node's cgroups, its /proc and its runtime.
type Sources struct {
	FS     *cgroup.FS
	Proc   *read.Proc
	Reader *read.Reader
	Client *cri.Client
}

// Close gives everything back that was opened.
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

// Open opens all of them; the runtime is not connected to yet.
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

// OpenCgroups opens the hierarchy.
func OpenCgroups(o Options) (_ *cgroup.FS, err error) {
	fs, err := cgroup.Open(o.CgroupMount)
	switch {
	case errors.Is(err, cgroup.ErrNotV2):
		return nil, fmt.Errorf("%w: boot the node with systemd.unified_cgroup_hierarchy=1, or name the "+
			"cgroup v2 mount with --cgroup-mount", err)
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission),
		errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("%w: mount the node's cgroup v2 hierarchy there, or name it with --cgroup-mount", err)
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
		return nil, fmt.Errorf("%s: no memory controller (cgroup.controllers: %s): on a hybrid node cgroup v1 holds it, "+
			"boot with systemd.unified_cgroup_hierarchy=1; else enable it on the kernel command line",
			fs.Mount(), strings.Join(controllers, " "))
	}
	if !o.Act {
		return fs, nil
	}
	if fs.ReadOnly() {
		return nil, fmt.Errorf("%s: mounted read-only, so nothing can be killed: "+
			"run the agent privileged (docs/operate/privileges.md), or with --dry-run", fs.Mount())
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%s: user %d may not kill: run the agent as root (docs/operate/privileges.md), or with --dry-run",
			fs.Mount(), os.Geteuid())
	}
	return fs, nil
}

// OpenProc opens /proc.
func OpenProc(o Options) (*read.Proc, error) {
	proc, err := read.OpenProc(o.ProcMount)
	if err != nil {
		return nil, fmt.Errorf("%w: mount the node's /proc there, or name it with --proc-mount", err)
	}
	return proc, nil
}

// Dial makes the runtime's client.
func Dial(o Options) (*cri.Client, error) {
	return cri.Dial(o.Config.ContainerRuntimeEndpoint, o.Config.ImageServiceEndpoint)
}

// Redial makes the runtime's client anew, for a configuration that has another one by now, and
// closes the one before.
func (s *Sources) Redial(c *config.Loaded) error {
	client, err := Dial(Options{Config: c})
	if err != nil {
		return err
	}
	s.Client.Close()
	s.Client = client
	return nil
}

// soon is how long the runtime's name may take before it is said that it is waited for.
const soon = time.Second

// The pauses between two attempts double from the first to the last.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = time.Second
)

// FirstAnswer waits for the runtime's name and its first list; limit 0 is for ever. runtime is
// asked before each attempt whom to ask. waits is told at once, or a second after the start of one
// that does not answer at all, that it is waited for and why, and again when that is something
// else.
func FirstAnswer(
	ctx context.Context, runtime func() (*cri.Client, *cri.Lister), limit time.Duration,
	waits func(why string),
) (version cri.Version, listing cri.Listing, err error) {
	first, cancelFirst := context.WithTimeout(ctx, soon)
	defer cancelFirst()
	said := ""
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	for wait := firstWait; ; wait = retry.Backoff(wait, firstWait, lastWait) {
		c, l := runtime()
		asking := ctx
		if said == "" {
			asking = first
		}
		if version, err = c.Version(asking); err == nil {
			listing, err = l.List(ctx)
		}
		if err == nil {
			return version, listing, nil
		}
		if errors.Is(err, cri.ErrNotCRI) {
			return version, listing, fmt.Errorf(
				"%w: set containerRuntimeEndpoint to the runtime's CRI socket", err)
		}
		if why := Diagnose(c.Endpoint(), err); why != said && ctx.Err() == nil {
			waits(why)
			said = why
		}
		if !retry.Sleep(ctx, wait) {
			return version, listing, fmt.Errorf("container runtime %s: no answer within %v: %s",
				c.Endpoint(), limit, Diagnose(c.Endpoint(), err))
		}
	}
}

// Diagnose says in words why a socket does not answer, or what is wrong with its answer.
func Diagnose(endpoint string, err error) string {
	if errors.Is(err, cri.ErrTooLarge) {
		return err.Error()
	}
	path := strings.TrimPrefix(endpoint, "unix://")
	conn, dialErr := net.DialTimeout("unix", path, time.Second)
	switch {
	case dialErr == nil:
		conn.Close()
		return "it accepts connections and does not speak CRI v1, or hangs: check the runtime, or set " +
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

// NoPressure says what is missing of PSI, or "".
func NoPressure(procMount string) string {
	if procMount == "" {
		procMount = "/proc"
	}
	if _, err := os.Stat(procMount + "/pressure/memory"); err != nil {
		return "the kernel reports no pressure (PSI): boot it with psi=1"
	}
	return ""
}

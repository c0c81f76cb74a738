package agent

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
	"jettison/stats"
)

// sources are what the agent reads and acts through.
type sources struct {
	fs        *cgroup.FS
	proc      *stats.Proc
	collector *stats.Collector
	client    *cri.Client
}

// Close gives everything back that was opened.
func (s *sources) Close() {
	if s.collector != nil {
		s.collector.Close()
	}
	if s.proc != nil {
		s.proc.Close()
	}
	if s.fs != nil {
		s.fs.Close()
	}
	if s.client != nil {
		s.client.Close()
	}
}

// open opens the sources and checks what the agent cannot do without. Each error says what is the matter, where, and what to
// do about it.
func open(o Options) (_ *sources, err error) {
	s := &sources{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.fs, err = cgroup.Open(o.CgroupMount); err != nil {
		switch {
		case errors.Is(err, cgroup.ErrNotV2):
			err = fmt.Errorf("%w: boot the node with systemd.unified_cgroup_hierarchy=1, or name the cgroup v2 mount with --cgroup-mount", err)
		case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission), errors.Is(err, syscall.ENOTDIR):
			err = fmt.Errorf("%w: mount the node's cgroup v2 hierarchy there, or name it with --cgroup-mount", err)
		}
		return nil, err
	}
	controllers, err := s.fs.Controllers()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(controllers, "memory") {
		return nil, fmt.Errorf("%s: no memory controller (cgroup.controllers: %s): on a hybrid node cgroup v1 holds it, boot with systemd.unified_cgroup_hierarchy=1; else enable it on the kernel command line",
			s.fs.Mount(), strings.Join(controllers, " "))
	}
	if !o.DryRun {
		if s.fs.ReadOnly() {
			return nil, fmt.Errorf("%s: mounted read-only, so nothing can be killed: run the agent privileged (docs/privileges.md), or with --dry-run", s.fs.Mount())
		}
		if os.Geteuid() != 0 {
			return nil, fmt.Errorf("%s: user %d may not kill: run the agent as root (docs/privileges.md), or with --dry-run", s.fs.Mount(), os.Geteuid())
		}
	}
	if s.proc, err = stats.OpenProc(o.ProcMount); err != nil {
		return nil, fmt.Errorf("%w: mount the node's /proc there, or name it with --proc-mount", err)
	}
	if s.collector, err = stats.NewCollector(s.fs, s.proc, o.Config.CgroupRoot); err != nil {
		return nil, err
	}
	if s.client, err = cri.Dial(o.Config.ContainerRuntimeEndpoint); err != nil {
		return nil, err
	}
	return s, nil
}

// firstAnswer waits for the runtime's name and its first list; limit 0 is for ever.
func firstAnswer(ctx context.Context, c *cri.Client, l *cri.Lister, limit time.Duration) (version cri.Version, listing cri.Listing, err error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if version, err = c.Version(ctx); err == nil {
			listing, err = l.List(ctx)
		}
		if err == nil {
			return version, listing, nil
		}
		if errors.Is(err, cri.ErrNotCRI) {
			return version, listing, fmt.Errorf("%w: set containerRuntimeEndpoint to the runtime's CRI socket", err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return version, listing, fmt.Errorf("container runtime %s: no answer within %v: %s", c.Endpoint(), limit, diagnose(c.Endpoint(), err))
		}
	}
}

// diagnose says in words why a socket does not answer.
func diagnose(endpoint string, err error) string {
	path := strings.TrimPrefix(endpoint, "unix://")
	conn, dialErr := net.DialTimeout("unix", path, time.Second)
	switch {
	case dialErr == nil:
		conn.Close()
		return "it accepts connections and does not speak CRI v1, or hangs: check the runtime, or set containerRuntimeEndpoint"
	case errors.Is(dialErr, os.ErrNotExist):
		return "no such socket: start the runtime, or set containerRuntimeEndpoint"
	case errors.Is(dialErr, os.ErrPermission):
		return "permission denied: run the agent as root"
	case errors.Is(dialErr, syscall.ECONNREFUSED):
		return "nobody listens on that socket: start the runtime, or set containerRuntimeEndpoint"
	}
	return err.Error()
}

// pressure says what is missing of PSI, or "".
func pressure(procMount string) string {
	if procMount == "" {
		procMount = "/proc"
	}
	if _, err := os.Stat(procMount + "/pressure/memory"); err != nil {
		return "the kernel reports no pressure (PSI): boot it with psi=1"
	}
	return ""
}

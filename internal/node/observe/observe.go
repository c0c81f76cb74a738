// Package observe reads a node once, completely, for commands that show it. It reads every source
// with a time limit; a source that did not answer is absent, with the reason.
package observe

import (
	"context"
	"fmt"
	"strings"
	"time"

	"jettison/cri"
	"jettison/internal/base/retry"
	"jettison/internal/node/sources"
	"jettison/stats"
	"jettison/stats/read"
)

// Options are the options of Once.
type Options struct {
	sources.Options
	HostRoot string        // the node's root directory; empty: /
	Watch    time.Duration // between the two readings from which rates and pressure are computed
	Wait     time.Duration // time limit of sources that may block: runtime, file systems, directories
}

// SysMount returns the path of the node's /sys.
func (o Options) SysMount() string { return strings.TrimSuffix(o.HostRoot, "/") + "/sys" }

// Runtime has the answers of the container runtime.
type Runtime struct {
	Endpoint   string
	Version    cri.Version
	Conditions []cri.Condition
	Driver     string // cgroup driver; empty: unknown
	Listed     time.Duration
	Pods       read.Index
	Err        error
}

// Look is the result of Once.
type Look struct {
	Time    time.Time
	Summary stats.Summary
	Runtime Runtime
	Err     error // of reading the kernel's files
	HostErr error // of opening the host's root directory, without which no file system is measured
}

// Once reads the node through open sources.
func Once(ctx context.Context, s *sources.Sources, o Options) *Look {
	l := &Look{}
	// The runtime gets half of the time, because the other blocking sources need its answer and
	// must not wait for a missing one.
	bounded, cancel := context.WithTimeout(ctx, o.Wait)
	defer cancel()
	half, cancelHalf := context.WithTimeout(ctx, o.Wait/2)
	defer cancelHalf()
	l.Runtime = readRuntime(half, s.Client)
	o.OutsideFinder(s.Client).Find(l.Runtime.Pods)
	l.Err = s.Reader.FindSelf()
	background := l.startBackground(s, o)
	if background != nil {
		defer background.Close()
	}
	// The first of two readings: rates and shares are differences.
	began := time.Now()
	_ = s.Reader.Collect(began, l.Runtime.Pods, &l.Summary)
	l.watch(ctx, s, began.Add(o.Watch))
	if background != nil {
		background.WaitFirst(bounded)
	}
	now := time.Now()
	if err := s.Reader.Collect(now, l.Runtime.Pods, &l.Summary); err != nil {
		l.Err = err
	}
	if background != nil {
		background.Fill(time.Now(), &l.Summary)
	}
	l.Time = time.Now()
	return l
}

// watch reads the pressure periodically, as the agent does.
func (l *Look) watch(ctx context.Context, s *sources.Sources, until time.Time) {
	const step = 250 * time.Millisecond
	for left := time.Until(until); left > 0; left = time.Until(until) {
		if !retry.Sleep(ctx, min(step, left)) {
			return
		}
		var pressure stats.NodePressure
		_ = s.Reader.Pressure(time.Now(), &pressure)
	}
}

func (l *Look) startBackground(s *sources.Sources, o Options) *read.Background {
	host, err := read.OpenHostRoot(o.HostRoot)
	if err != nil {
		l.HostErr = fmt.Errorf("%w: set --host-root to the node's root directory", err)
		return nil
	}
	// The host root is not closed: a file system that hangs may block a goroutine of Background on
	// it forever, and the process ends soon.
	return read.StartBackground(read.BackgroundOptions{
		Host: host, Runtime: s.Client, Proc: o.ProcMount, RootDir: o.Config.RootDir,
		PodLogsDir: o.Config.PodLogsDir,
		Pods:       l.Runtime.Pods, OneRound: true,
	})
}

func readRuntime(ctx context.Context, c *cri.Client) (r Runtime) {
	r.Endpoint = c.Endpoint()
	began := time.Now()
	if r.Version, r.Err = c.Version(ctx); r.Err != nil {
		r.Err = fmt.Errorf("%w: %s", r.Err, sources.Diagnose(c.Endpoint(), r.Err))
		return r
	}
	listing, err := cri.NewLister(c).List(ctx)
	r.Listed = time.Since(began)
	r.Pods, r.Err = read.NewIndex(listing), err
	if err != nil {
		return r
	}
	r.Conditions, r.Err = c.Status(ctx)
	r.Driver, _ = c.CgroupDriver(ctx) // older runtimes do not provide it
	return r
}

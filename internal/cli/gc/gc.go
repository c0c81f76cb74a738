// Package gc implements jettison gc: it runs or plans one pass of garbage collection on this node,
// with or without an agent, or plans one from files, and prints the steps.
//
//	command.go Command: jettison gc
//	gc.go      run: one pass on this node
//	known.go   existing pods from static manifests and the agent
//	plan.go    fromFiles: a plan from files
//	json.go    plan and result for -o json and -o yaml
//	table.go   plan and result as tables
package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
	"jettison/internal/node/config"
	"jettison/internal/node/garbage"
	"jettison/internal/node/kubeletdetect"
	"jettison/internal/node/sources"
	"jettison/reclaim"
	"jettison/stats/read"
)

// answerTimeout bounds the runtime's first answer, and the first read of static manifests.
const answerTimeout = 5 * time.Second

// options of run.
type options struct {
	config      *config.Config
	runtime     *cri.Client
	cgroupMount string // empty: default mount point
	procMount   string // empty: default mount point
	hostRoot    string // the node's root directory
	stateDir    string // directory of the state of passes; empty: no state is kept
	trigger     reclaim.Trigger
	dryRun      bool // plan only
	format      output.Format
}

// pass is one pass on this node.
type pass struct {
	o     options
	notes []string // parts left out, with reasons
}

func (p *pass) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// run makes one pass and prints it. It returns an error if the pass was incomplete.
func run(ctx context.Context, o options, stdout *terminal.Screen) error {
	if os.Geteuid() != 0 && !o.dryRun {
		return fmt.Errorf("gc: user %d may not remove anything: run gc as root, or with --dry-run",
			os.Geteuid())
	}
	p := &pass{o: o}
	r, err := p.execute(ctx)
	if err != nil {
		return err
	}
	if o.format.Data() {
		err = p.printData(stdout, &r)
	} else {
		err = p.print(stdout, &r)
	}
	return errors.Join(err, failure(&r))
}

// execute makes the pass, or plans it.
func (p *pass) execute(ctx context.Context) (r garbage.Result, err error) {
	listing, err := firstListing(ctx, p.o.runtime)
	if err != nil {
		return r, err
	}
	host, err := read.OpenHostRoot(p.o.hostRoot)
	if err != nil {
		return r, fmt.Errorf("gc: %w: name the node's root directory with --host-root", err)
	}
	defer host.Close()
	known := p.knownPods(ctx, read.NewIndex(listing))
	places := kubeletdetect.PresenceOptions{ProcMount: p.o.procMount, StateDir: p.o.stateDir,
		ReadOnly: p.o.dryRun}
	presence, err := kubeletdetect.OpenPresence(places)
	if err != nil {
		p.note("%v", err)
	}
	defer presence.Save()
	c, err := garbage.New(garbage.Options{
		Collect: p.o.config.Collect(), Runtime: p.o.runtime, Kubelet: presence.Look,
		Known:     func() garbage.Known { return known },
		ProcMount: p.o.procMount, Host: host, CgroupMount: p.cgroupMount(), StateDir: p.o.stateDir,
		Once: true,
	})
	if err != nil {
		return r, fmt.Errorf("gc: %w", err)
	}
	defer c.Close()
	p.checkAgent(ctx, c.Locked(), &known)
	if p.o.dryRun {
		r = c.Plan(ctx, garbage.Everything, p.o.trigger)
	} else {
		r = c.Pass(ctx, garbage.Everything, p.o.trigger)
	}
	if n, at := c.Waiting(); n > 0 {
		p.note("no client or manifest names %s without running containers: gone after podGoneAfter (%v), "+
			"the first at %s",
			output.Count(n, "pod"), p.o.config.PodGoneAfter, at.UTC().Format(time.RFC3339))
	}
	return r, nil
}

// cgroupMount returns the mount point of cgroups; empty: they cannot be read.
func (p *pass) cgroupMount() string {
	fs, err := cgroup.Open(p.o.cgroupMount)
	if err != nil {
		p.note("cgroups not collected: %v", err)
		return ""
	}
	fs.Close()
	return cmp.Or(p.o.cgroupMount, cgroup.DefaultMount)
}

// failure returns the reason why a pass was incomplete; nil: it was complete.
func failure(r *garbage.Result) error {
	switch {
	case r.Err != nil && r.Count(garbage.Removed) > 0:
		return fmt.Errorf("gc: pass aborted after %d of %d steps: %w", r.Count(garbage.Removed),
			len(r.Plan.Steps), r.Err)
	case r.Err != nil:
		return fmt.Errorf("gc: %w", r.Err)
	case r.Postponed != "":
		return fmt.Errorf("gc: nothing removed: %s", r.Postponed)
	}
	n := r.Count(garbage.Failed)
	if n == 0 && r.ImagesErr != nil {
		return fmt.Errorf("gc: %w", r.ImagesErr)
	}
	for i := range r.Done {
		if d := &r.Done[i]; d.Outcome == garbage.Failed {
			return fmt.Errorf("gc: %d of %d steps failed, the first: %w", n, len(r.Plan.Steps), d.Err)
		}
	}
	return nil
}

// firstListing lists pods and containers of the runtime, to fail early if it does not answer.
func firstListing(ctx context.Context, c *cri.Client) (listing cri.Listing, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if _, err = c.Version(ctx); err == nil {
		listing, err = cri.NewLister(c).List(ctx)
	}
	if errors.Is(err, cri.ErrNotCRI) {
		return listing, fmt.Errorf("gc: %w: set containerRuntimeEndpoint to the runtime's CRI socket",
			err)
	}
	if err != nil {
		return listing, fmt.Errorf("gc: container runtime %s: %s", c.Endpoint(),
			sources.Diagnose(c.Endpoint(), err))
	}
	return listing, nil
}

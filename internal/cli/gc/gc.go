// Package gc is one pass of garbage collection that a person asks for: on this node, beside an
// agent or without one, or planned from files. It prints what it does.
//
//	command.go Command: jettison gc
//	gc.go  run: one pass on this node
//	known.go   which pods there are, as manifests say, and an agent that runs here
//	plan.go    fromFiles: a plan from files
//	json.go    plan and result as -o json and -o yaml print them
//	table.go   likewise for people
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

// answerLimit is for the runtime's first answer, and for the first look at manifests.
const answerLimit = 5 * time.Second

// options of run.
type options struct {
	config      *config.Config
	runtime     *cri.Client
	cgroupMount string // empty: where it usually is
	procMount   string // likewise
	hostRoot    string // the node's root directory
	stateDir    string // of what outlives a pass; empty: nothing does
	trigger     reclaim.Trigger
	dryRun      bool // plan only
	format      output.Format
}

// pass is one pass on this node.
type pass struct {
	o     options
	notes []string // what was not looked at, and why
}

func (p *pass) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// run makes one pass and prints it. The error says why it was not all that it was to be.
func run(ctx context.Context, o options, stdout *terminal.Screen) error {
	if os.Geteuid() != 0 && !o.dryRun {
		return fmt.Errorf("gc: user %d may not remove anything: run it as root, or with --dry-run",
			os.Geteuid())
	}
	p := &pass{o: o}
	r, err := p.make(ctx)
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

// make makes the pass, or plans it.
func (p *pass) make(ctx context.Context) (r garbage.Result, err error) {
	listing, err := firstListing(ctx, p.o.runtime)
	if err != nil {
		return r, err
	}
	host, err := read.OpenHostRoot(p.o.hostRoot)
	if err != nil {
		return r, fmt.Errorf("gc: %w: name the node's root directory with --host-root", err)
	}
	defer host.Close()
	known := p.known(ctx, read.NewIndex(listing))
	places := kubeletdetect.PresenceOptions{ProcMount: p.o.procMount, StateDir: p.o.stateDir,
		ReadOnly: p.o.dryRun}
	presence, err := kubeletdetect.OpenPresence(places)
	if err != nil {
		p.note("%v", err)
	}
	defer presence.Keep()
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
	p.askAgent(ctx, c.Locked(), &known)
	if p.o.dryRun {
		r = c.Plan(ctx, garbage.Everything, p.o.trigger)
	} else {
		r = c.Pass(ctx, garbage.Everything, p.o.trigger)
	}
	if n, at := c.Waiting(); n > 0 {
		p.note("%d pods that no client or manifest names have nothing alive in them, and are gone from "+
			"podGoneAfter (%v) on: the first at %s",
			n, p.o.config.PodGoneAfter, at.UTC().Format(time.RFC3339))
	}
	return r, nil
}

// cgroupMount is where cgroups are; empty: they cannot be seen.
func (p *pass) cgroupMount() string {
	fs, err := cgroup.Open(p.o.cgroupMount)
	if err != nil {
		p.note("cgroups are not looked at: %v", err)
		return ""
	}
	fs.Close()
	return cmp.Or(p.o.cgroupMount, cgroup.DefaultMount)
}

// failure is why a pass was not all that it was to be.
func failure(r *garbage.Result) error {
	switch {
	case r.Err != nil && r.Count(garbage.Removed) > 0:
		return fmt.Errorf("gc: the pass ended early, after %d of %d steps: %w", r.Count(garbage.Removed),
			len(r.Plan.Steps), r.Err)
	case r.Err != nil:
		return fmt.Errorf("gc: %w", r.Err)
	case r.PutOff != "":
		return fmt.Errorf("gc: nothing was removed: %s", r.PutOff)
	}
	n := r.Count(garbage.Failed)
	if n == 0 && r.Unseen != nil {
		return fmt.Errorf("gc: %w", r.Unseen)
	}
	for i := range r.Done {
		if d := &r.Done[i]; d.Outcome == garbage.Failed {
			return fmt.Errorf("gc: %d of %d steps failed, the first: %w", n, len(r.Plan.Steps), d.Err)
		}
	}
	return nil
}

func firstListing(ctx context.Context, c *cri.Client) (listing cri.Listing, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
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

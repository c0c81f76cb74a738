package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/internal/garbage"
	"jettison/internal/manifests"
	"jettison/internal/sources"
	"jettison/reclaim"
	"jettison/stats"
	"jettison/stats/read"
)

const (
	gcAnswer   = 5 * time.Second // for the runtime's first answer, and the first look at manifests
	agentLimit = 2 * time.Second // for the agent's
)

// gcLive is one pass on this node.
type gcLive struct {
	lookFlags
	output, trigger, stateDir string
	dryRun, stateSet          bool     // stateSet: stateDir is a flag's, not the configuration's
	notes                     []string // what was not looked at, and why
}

func (g *gcLive) run(ctx context.Context, stdout io.Writer) error {
	trigger, ok := map[string]reclaim.Trigger{"periodic": reclaim.Periodic, "diskPressure": reclaim.DiskPressure}[g.trigger]
	if !ok {
		return usageError{fmt.Errorf("--trigger %q: want periodic or diskPressure", g.trigger)}
	}
	g.options.Watch, g.options.Wait = time.Second, gcAnswer
	if err := g.load(); err != nil {
		return err
	}
	if !g.stateSet {
		g.stateDir = g.options.Config.StateDir
	}
	if os.Geteuid() != 0 && !g.dryRun {
		return fmt.Errorf("gc: user %d may not remove anything: run it as root, or with --dry-run", os.Geteuid())
	}
	client, err := sources.Dial(g.options.Options)
	if err != nil {
		return usageError{err}
	}
	defer client.Close()
	listing, err := firstListing(ctx, client)
	if err != nil {
		return err
	}
	host, err := read.OpenHostRoot(g.options.HostRoot)
	if err != nil {
		return fmt.Errorf("gc: %w: name the node's root directory with --host-root", err)
	}
	defer host.Close()
	known := g.known(ctx, read.NewIndex(listing))
	c, err := garbage.New(g.collector(client, host, func() garbage.Known { return known }))
	if err != nil {
		return fmt.Errorf("gc: %w", err)
	}
	defer c.Close()
	g.askAgent(ctx, c.Locked(), &known)
	var r garbage.Result
	if g.dryRun {
		r = c.Plan(ctx, garbage.Everything, trigger)
	} else {
		r = c.Pass(ctx, garbage.Everything, trigger)
	}
	if n, at := c.Waiting(); n > 0 {
		g.notes = append(g.notes, fmt.Sprintf("%d pods that nobody names have nothing alive in them, and are gone from podGoneAfter (%v) on: the first at %s",
			n, g.options.Config.PodGoneAfter, at.UTC().Format(time.RFC3339)))
	}
	if g.output == "json" {
		err = g.printJSON(stdout, &r)
	} else {
		err = g.print(stdout, &r)
	}
	return errors.Join(err, gcError(&r))
}

// gcError is why a pass was not all that it was to be.
func gcError(r *garbage.Result) error {
	switch {
	case r.Err != nil && r.Count(garbage.Removed) > 0:
		return fmt.Errorf("gc: the pass ended early, after %d of %d steps: %w", r.Count(garbage.Removed), len(r.Plan.Steps), r.Err)
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
	ctx, cancel := context.WithTimeout(ctx, gcAnswer)
	defer cancel()
	if _, err = c.Version(ctx); err == nil {
		listing, err = cri.NewLister(c).List(ctx)
	}
	if errors.Is(err, cri.ErrNotCRI) {
		return listing, fmt.Errorf("gc: %w: set containerRuntimeEndpoint to the runtime's CRI socket", err)
	}
	if err != nil {
		return listing, fmt.Errorf("gc: container runtime %s: %s", c.Endpoint(), sources.Diagnose(c.Endpoint(), err))
	}
	return listing, nil
}

func (g *gcLive) collector(client *cri.Client, host *read.HostRoot, known func() garbage.Known) garbage.Options {
	c := g.options.Config
	o := garbage.Options{
		Runtime: client, Policy: c.GCPolicy(), PodGoneAfter: time.Duration(c.PodGoneAfter), Known: known, Mode: c.GC, ProcMount: g.options.ProcMount,
		Host: host, RootDir: c.RootDir, PodLogsDir: c.PodLogsDir, CgroupRoot: c.CgroupRoot, StateDir: g.stateDir,
	}
	fs, err := cgroup.Open(g.options.CgroupMount)
	if err != nil {
		g.notes = append(g.notes, fmt.Sprintf("cgroups are not looked at: %v", err))
		return o
	}
	fs.Close()
	o.CgroupMount = cmp.Or(g.options.CgroupMount, cgroup.DefaultMount)
	return o
}

// known is what static manifests name. Where they cannot all be read no pod counts as gone.
func (g *gcLive) known(ctx context.Context, index read.Index) garbage.Known {
	out := garbage.Known{Pods: map[string]reclaim.Phase{}, Synced: true}
	path := g.options.Config.StaticPodPath
	if path == "" {
		return out
	}
	first := make(chan []*v1.Pod, 1)
	wrong := make(chan error, 1)
	reader := manifests.Start(manifests.Options{
		Path: filepath.Join("/", g.options.HostRoot, path),
		Changed: func(all []*v1.Pod) {
			select {
			case first <- all:
			default:
			}
		},
		Report: func(err error) {
			select {
			case wrong <- err:
			default:
			}
		},
	})
	timer := time.NewTimer(gcAnswer)
	defer timer.Stop()
	doubt := ""
	select {
	case all := <-first:
		for uid, pod := range manifests.Bind(all, index) {
			out.Pods[uid] = garbage.PhaseOf(pod)
		}
	case <-timer.C:
		doubt = "the file system does not answer"
	case <-ctx.Done():
		doubt = ctx.Err().Error()
	}
	if err := reader.Close(); err != nil {
		doubt = cmp.Or(doubt, err.Error())
	}
	select {
	case err := <-wrong:
		doubt = cmp.Or(doubt, err.Error())
	default:
	}
	if doubt != "" {
		out.Synced = false
		g.notes = append(g.notes, "no pod counts as gone, for not all static manifests are known: "+doubt)
	}
	return out
}

// askAgent asks an agent that runs here how many pods its clients name: this command knows nothing of those, and then no pod counts as gone
// here. The agent's own passes take those. Only where nobody listens there is none; one that does not answer may know anything.
func (g *gcLive) askAgent(ctx context.Context, locked bool, known *garbage.Known) {
	clients, err := agentClients(ctx, g.options.Config.Socket)
	none := g.options.Config.Socket == "" || errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
	switch {
	case err != nil && none && !locked: // none runs
	case err != nil && locked:
		known.Synced = false
		g.notes = append(g.notes, fmt.Sprintf("no pod counts as gone: %s is kept by another process, and which pods it knows is not known: %v", g.stateDir, err))
	case err != nil:
		known.Synced = false
		g.notes = append(g.notes, fmt.Sprintf("no pod counts as gone: an agent may run, and which pods it knows is not known: %v", err))
	case clients > 0:
		known.Synced = false
		g.notes = append(g.notes, fmt.Sprintf("no pod counts as gone here: the agent knows %d pods from clients, which this command does not", clients))
	}
}

// agentClients is how many pods only clients have told an agent of.
func agentClients(ctx context.Context, socket string) (int, error) {
	if socket == "" {
		return 0, errors.New("no socket is configured")
	}
	ctx, cancel := context.WithTimeout(ctx, agentLimit)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://jettison/v1/state", nil)
	if err != nil {
		return 0, err
	}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	var state struct {
		Pods *struct{ Clients *int }
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 16<<20)).Decode(&state); err != nil {
		return 0, fmt.Errorf("the agent's state: %w", err)
	}
	if state.Pods == nil || state.Pods.Clients == nil {
		return 0, fmt.Errorf("the agent answers with %s, and not how many pods its clients named", res.Status)
	}
	return *state.Pods.Clients, nil
}

// gcResult is what a pass did, as -o json prints it beside the plan.
type gcResult struct {
	Observed       string     `json:"observed,omitempty"`
	PutOff         string     `json:"putOff,omitempty"`
	Error          string     `json:"error,omitempty"`
	Steps          []gcStep   `json:"steps"`
	PredictedBytes uint64     `json:"predictedBytes"`
	FreedBytes     *uint64    `json:"freedBytes"` // null: not measured
	Filesystems    []gcChange `json:"filesystems"`
	LookedSeconds  float64    `json:"lookedSeconds"`
	TookSeconds    float64    `json:"tookSeconds"`
}

type gcStep struct {
	Action         string  `json:"action"`
	ID             string  `json:"id"`
	Outcome        string  `json:"outcome"`
	Reason         string  `json:"reason"`
	Why            string  `json:"why,omitempty"`
	Error          string  `json:"error,omitempty"`
	PredictedBytes *uint64 `json:"predictedBytes"`
	FreedBytes     *uint64 `json:"freedBytes"`
	Seconds        float64 `json:"seconds"`
}

type gcChange struct {
	Path                 string `json:"path"`
	AvailableBytesBefore uint64 `json:"availableBytesBefore"`
	AvailableBytesAfter  uint64 `json:"availableBytesAfter"`
}

func (g *gcLive) printJSON(w io.Writer, r *garbage.Result) error {
	out := planJSON(&r.Plan)
	out.RemoveLinks, out.RemoveCgroups = r.Plan.IDs(reclaim.RemoveLink), r.Plan.IDs(reclaim.RemoveCgroup)
	out.Errors = append(append(append([]string{}, g.notes...), r.Odd...), out.Errors...)
	result := &gcResult{
		Observed: r.Observed, PutOff: r.PutOff, Error: errorText(r.Err), Steps: []gcStep{}, Filesystems: []gcChange{}, PredictedBytes: r.Predicted(), FreedBytes: pointer(r.Freed()),
		LookedSeconds: r.Looked.Seconds(), TookSeconds: r.Took.Seconds(),
	}
	for i := range r.Done {
		d := &r.Done[i]
		result.Steps = append(result.Steps, gcStep{
			Action: d.Action.String(), ID: d.ID, Outcome: d.Outcome.String(), Reason: string(d.Reason), Why: d.Why, Error: errorText(d.Err),
			PredictedBytes: pointer(d.Bytes), FreedBytes: pointer(d.Freed), Seconds: d.Took.Seconds(),
		})
	}
	for _, f := range r.Filesystems {
		result.Filesystems = append(result.Filesystems, gcChange{f.Path, f.Before, f.After})
	}
	out.Result = result
	return encode(w, out)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return oneLine(err.Error())
}

func pointer(v stats.Opt[uint64]) *uint64 {
	if !v.OK {
		return nil
	}
	return &v.V
}

// print prints the plan if nothing was to be removed, else what became of each step.
func (g *gcLive) print(stdout io.Writer, r *garbage.Result) error {
	if r.Observed != "" || r.PutOff != "" || r.Err != nil && len(r.Done) == 0 {
		if err := printPlan(stdout, &r.Plan); err != nil {
			return err
		}
	} else if err := printDone(stdout, r); err != nil {
		return err
	}
	for _, text := range append(r.Odd, g.notes...) {
		fmt.Fprintln(stdout, "note:", oneLine(text))
	}
	if r.Observed != "" && !g.dryRun {
		fmt.Fprintln(stdout, "nothing was removed:", r.Observed)
	}
	return nil
}

func printDone(stdout io.Writer, r *garbage.Result) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	if len(r.Done) > 0 {
		fmt.Fprintln(w, "STEP\tACTION\tID\tNAME\tFREES\tFREED\tTOOK\tOUTCOME\tWHY")
	}
	for i := range r.Done {
		d := &r.Done[i]
		why := d.Step.Why
		if d.Why != "" {
			why = d.Why
		}
		if d.Err != nil {
			why = oneLine(d.Err.Error())
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%v\t%s\t%s\n", i+1, d.Action, shortID(&d.Step), orDash(printable(d.Name)), size(d.Bytes), size(d.Freed),
			d.Took.Round(time.Millisecond), d.Outcome, printable(why))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(r.Done) == 0 {
		fmt.Fprintln(stdout, "nothing to remove")
	} else {
		var parts []string
		for _, o := range []garbage.Outcome{garbage.Removed, garbage.WasGone, garbage.Skipped, garbage.Failed} {
			if n := r.Count(o); n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, o))
			}
		}
		fmt.Fprintf(stdout, "\n%s; predicted %s, measured %s, in %v\n", strings.Join(parts, ", "), size(stats.Some(r.Predicted())), size(r.Freed()), r.Took.Round(time.Millisecond))
	}
	for _, text := range r.Plan.Problems() {
		fmt.Fprintln(stdout, "error:", text)
	}
	for _, left := range r.Plan.Left {
		fmt.Fprintln(stdout, "left alone:", left)
	}
	return nil
}

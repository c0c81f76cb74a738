// Package deschedule is jettison deschedule: it prints which pods should not be on this node any
// more.
package deschedule

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/base/output"
	"jettison/internal/base/table"
	"jettison/internal/base/terminal"
	"jettison/internal/node/config"
	"jettison/internal/node/kubeletdetect"
	"jettison/internal/node/manifests"
	"jettison/internal/node/nodedescheduler"
	"jettison/internal/node/observe"
	"jettison/internal/node/sources"
	descheduling "jettison/reclaim/nodedeschedule"
)

// options of run.
type options struct {
	look   observe.Options
	format output.Format
}

// manifestLimit is for static manifests, askLimit for an agent's answer.
const (
	manifestLimit = 5 * time.Second
	askLimit      = 2 * time.Second
)

// document is a plan as data. It has the names of the cluster's plans.
type document struct {
	Evictions []move  `json:"evictions"`
	Skipped   []move  `json:"skipped"`
	Stopped   []ended `json:"stopped"`
}

// move is a pod that goes, or that should and does not.
type move struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Strategy  string `json:"strategy"`
	Reason    string `json:"reason"`
}

type ended struct {
	Strategy string `json:"strategy"`
	Reason   string `json:"reason"`
}

// run looks at the node and prints which pods should not be on it any more, by the configuration's
// descheduling, whatever deschedule says. It stops none.
func run(ctx context.Context, o options, stdout *terminal.Screen, stderr io.Writer) error {
	s, err := sources.Open(o.look.Options)
	if err != nil {
		return err
	}
	defer s.Close()
	look := observe.Once(ctx, s, o.look)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case look.Runtime.Err != nil && look.Runtime.Pods == nil:
		return fmt.Errorf("deschedule: container runtime %s: %w", look.Runtime.Endpoint, look.Runtime.Err)
	}
	c := o.look.Config
	settings := c.Eviction().Policy
	seen := &nodedescheduler.Seen{
		Pods: look.Runtime.Pods, Summary: &look.Summary, Policy: &settings, Self: s.Reader.Self(),
		Objects: map[string]*eviction.Pod{},
	}
	if path := c.StaticPodPath; path != "" {
		all, doubt := manifests.Once(ctx, filepath.Join("/", o.look.HostRoot, path), manifestLimit)
		if doubt != "" {
			note(stderr, "not all static manifests are known: %s", doubt)
		}
		for uid, pod := range manifests.Bind(all, look.Runtime.Pods) {
			seen.Objects[uid] = eviction.NewManifestPod(pod)
			seen.Whole = append(seen.Whole, pod)
		}
	}
	if state, err := api.New(api.Options{Socket: c.Socket, Limit: askLimit}).State(ctx); err == nil &&
		state.Pods.Clients > 0 {
		note(stderr, "the agent knows objects of %d pods from clients, which this command does not: "+
			"what they tell it may decide otherwise",
			state.Pods.Clients)
	}
	policy, of := c.Descheduling.Policy(), seen.Look()
	return o.print(policy.Plan(&of, look.Time),
		func() string { return becomes(c.Deschedule, kubelet(&o)) }, stdout)
}

func note(stderr io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(stderr, "jettison: deschedule: "+format+"\n", args...)
}

// kubelet looks for one now.
func kubelet(o *options) bool {
	presence, err := kubeletdetect.OpenPresence(
		kubeletdetect.PresenceOptions{ProcMount: o.look.ProcMount, StateDir: o.look.Config.StateDir,
			ReadOnly: true})
	if err != nil {
		return true
	}
	found, _ := presence.Look()
	return found
}

// becomes says what an agent makes of such a plan.
func becomes(mode string, kubelet bool) string {
	switch {
	case mode == config.Off:
		return "An agent by this configuration does not ask (deschedule: off)."
	case mode == config.DescheduleAct && kubelet:
		return "An agent by this configuration only reports: a kubelet is here, which would start them again."
	case mode == config.DescheduleAct:
		return "An agent by this configuration stops them."
	}
	return "An agent by this configuration reports them (deschedule: report)."
}

func (o *options) print(plan descheduling.Result, becomes func() string,
	stdout *terminal.Screen) error {
	if o.format.Data() {
		d := document{Evictions: []move{}, Skipped: []move{}, Stopped: []ended{}}
		for _, e := range plan.Evictions {
			d.Evictions = append(d.Evictions, move{e.Pod.Namespace, e.Pod.Name, e.Pod.UID, e.Strategy,
				e.Reason})
		}
		for _, k := range plan.Kept {
			d.Skipped = append(d.Skipped, move{k.Pod.Namespace, k.Pod.Name, k.Pod.UID, k.Strategy, k.Reason})
		}
		if plan.Stopped != "" {
			d.Stopped = append(d.Stopped, ended{descheduling.Shed, plan.Stopped})
		}
		return o.format.Encode(stdout, d, false)
	}
	if len(plan.Evictions)+len(plan.Kept) == 0 && plan.Stopped == "" {
		return stdout.Print(terminal.Text(terminal.Plain, "Every pod may stay."))
	}
	t := &table.Table{Columns: []table.Column{
		{Name: "POD", Cut: true}, {Name: "STRATEGY", Cut: true}, {Name: "GOES"},
		{Name: "REASON", Fold: true}, {Name: "UID", Wide: true},
	}}
	for _, e := range plan.Evictions {
		t.Add(e.Pod.Namespace+"/"+e.Pod.Name, e.Strategy, "yes", e.Reason, e.Pod.UID)
	}
	for _, k := range plan.Kept {
		t.Add(k.Pod.Namespace+"/"+k.Pod.Name, k.Strategy, "stays", k.Reason, k.Pod.UID)
	}
	if err := t.Print(stdout, o.format == output.AsWide); err != nil {
		return err
	}
	if plan.Stopped != "" {
		if err := stdout.Print(terminal.Text(terminal.Plain, "%s ends: %s.",
			descheduling.Shed, plan.Stopped)); err != nil {
			return err
		}
	}
	if len(plan.Evictions) == 0 {
		return nil
	}
	return stdout.Print(terminal.Text(terminal.Plain, "%s", becomes()))
}

// Package deschedule implements jettison deschedule, which prints the pods that descheduling would
// evict from this node.
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

// options are the options of run.
type options struct {
	look   observe.Options
	format output.Format
}

// manifestTimeout limits reading of static manifests, agentTimeout a request to the agent.
const (
	manifestTimeout = 5 * time.Second
	agentTimeout    = 2 * time.Second
)

// document is the JSON and YAML output of a plan. Its fields are those of the cluster's plans.
type document struct {
	Evictions []entry `json:"evictions"`
	Skipped   []entry `json:"skipped"`
	Stopped   []stop  `json:"stopped"`
}

// entry is a pod that would be evicted, or that a rule keeps.
type entry struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Strategy  string `json:"strategy"`
	Reason    string `json:"reason"`
}

// stop is a strategy that stopped early.
type stop struct {
	Strategy string `json:"strategy"`
	Reason   string `json:"reason"`
}

// run reads the node and prints the plan of the configured descheduling. It ignores the setting
// deschedule and evicts nothing.
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
	seen := &nodedescheduler.Input{
		Pods: look.Runtime.Pods, Summary: &look.Summary, Policy: &settings, Self: s.Reader.Self(),
		Objects: map[string]*eviction.Pod{},
	}
	if path := c.StaticPodPath; path != "" {
		all, problem := manifests.Once(ctx, filepath.Join("/", o.look.HostRoot, path), manifestTimeout)
		if problem != "" {
			notice(stderr, "some static manifests could not be read: %s", problem)
		}
		for uid, pod := range manifests.Bind(all, look.Runtime.Pods) {
			seen.Objects[uid] = eviction.NewManifestPod(pod)
			seen.PodObjects = append(seen.PodObjects, pod)
		}
	}
	if state, err := api.New(api.Options{Socket: c.Socket, Limit: agentTimeout}).State(ctx); err == nil &&
		state.Pods.Clients > 0 {
		notice(stderr, "the agent has %s from clients that this command lacks: "+
			"its decisions may differ",
			output.Count(state.Pods.Clients, "pod object"))
	}
	policy, of := c.Descheduling.Policy(), seen.Look()
	return o.print(policy.Plan(&of, look.Time),
		func() string { return agentAction(c.Deschedule, kubeletPresent(&o)) }, stdout)
}

func notice(stderr io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(stderr, "jettison: deschedule: "+format+"\n", args...)
}

// kubeletPresent reports whether a kubelet runs on the node; true if that is unknown.
func kubeletPresent(o *options) bool {
	presence, err := kubeletdetect.OpenPresence(
		kubeletdetect.PresenceOptions{ProcMount: o.look.ProcMount, StateDir: o.look.Config.StateDir,
			ReadOnly: true})
	if err != nil {
		return true
	}
	found, _ := presence.Look()
	return found
}

// agentAction describes how an agent with this configuration handles the plan.
func agentAction(mode string, kubelet bool) string {
	switch {
	case mode == config.Off:
		return "With this configuration the agent does no descheduling (deschedule: off)."
	case mode == config.DescheduleAct && kubelet:
		return "With this configuration the agent only reports these pods: the kubelet on this node would restart them."
	case mode == config.DescheduleAct:
		return "With this configuration the agent evicts these pods."
	}
	return "With this configuration the agent only reports these pods (deschedule: report)."
}

func (o *options) print(plan descheduling.Result, becomes func() string,
	stdout *terminal.Screen) error {
	if o.format.Data() {
		d := document{Evictions: []entry{}, Skipped: []entry{}, Stopped: []stop{}}
		for _, e := range plan.Evictions {
			d.Evictions = append(d.Evictions, entry{e.Pod.Namespace, e.Pod.Name, e.Pod.UID, e.Strategy,
				e.Reason})
		}
		for _, k := range plan.Kept {
			d.Skipped = append(d.Skipped, entry{k.Pod.Namespace, k.Pod.Name, k.Pod.UID, k.Strategy, k.Reason})
		}
		if plan.Stopped != "" {
			d.Stopped = append(d.Stopped, stop{descheduling.Shed, plan.Stopped})
		}
		return o.format.Encode(stdout, d, false)
	}
	if len(plan.Evictions)+len(plan.Kept) == 0 && plan.Stopped == "" {
		return stdout.Print(terminal.Text(terminal.Plain, "No pod would be evicted."))
	}
	t := &table.Table{Columns: []table.Column{
		{Name: "POD", Cut: true}, {Name: "STRATEGY", Cut: true}, {Name: "EVICT"},
		{Name: "REASON", Fold: true}, {Name: "UID", Wide: true},
	}}
	for _, e := range plan.Evictions {
		t.Add(e.Pod.Namespace+"/"+e.Pod.Name, e.Strategy, "yes", e.Reason, e.Pod.UID)
	}
	for _, k := range plan.Kept {
		t.Add(k.Pod.Namespace+"/"+k.Pod.Name, k.Strategy, "no", k.Reason, k.Pod.UID)
	}
	if err := t.Print(stdout, o.format == output.AsWide); err != nil {
		return err
	}
	if plan.Stopped != "" {
		if err := stdout.Print(terminal.Text(terminal.Plain, "%s stopped: %s.",
			descheduling.Shed, plan.Stopped)); err != nil {
			return err
		}
	}
	if len(plan.Evictions) == 0 {
		return nil
	}
	return stdout.Print(terminal.Text(terminal.Plain, "%s", becomes()))
}

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Selector selects the pods of the agents, and Container names the agent's container in them
// (deploy/base).
const (
	Selector  = "app.kubernetes.io/name=jettison"
	Container = "agent"
)

// Agent describes the agent of a node.
type Agent struct {
	// State is "ready", "not ready", the reason for which its container does not run, "no pod", or
	// "unknown".
	State string `json:"state"`
	Pod   string `json:"pod,omitempty"`
	Image string `json:"image,omitempty"`
	// Version is the version that the bridge reported; empty: unknown.
	Version  string `json:"version,omitempty"`
	DryRun   *bool  `json:"dryRun,omitempty"` // nil: unknown
	Restarts int32  `json:"restarts,omitempty"`
}

// States of an agent. Another one is the reason for which its container does not run.
const (
	StateReady    = "ready"
	StateNotReady = "not ready"
	StateNoPod    = "no pod"
	StateUnknown  = "unknown"
)

// Runs reports whether the agent runs, as far as the API server knows.
func (a *Agent) Runs() bool {
	return a.State == StateReady || a.State == StateNotReady || a.Version != ""
}

// Label names the version of the agent: that of the bridge, or else the tag of its image. Empty:
// unknown.
func (a *Agent) Label() string {
	if a.Version != "" || a.Image == "" {
		return a.Version
	}
	name := a.Image[strings.LastIndexByte(a.Image, '/')+1:]
	if _, digest, ok := strings.Cut(name, "@"); ok {
		return "image " + digest[:min(len(digest), len("sha256:")+12)]
	}
	_, tag, _ := strings.Cut(name, ":")
	return "image " + cmp.Or(tag, "latest")
}

// readAgent describes the agent from its pod and from the load of the bridge.
func (r *reader) readAgent() {
	a := &r.out.Agent
	if l := r.out.Load; l != nil && l.AgentVersion != "" {
		a.Version, a.DryRun = l.AgentVersion, &l.DryRun
	}
	if why := r.notListed[Agents]; why != "" {
		a.State = StateUnknown
		r.out.Unknown[FieldAgent] = "cannot list its pods: " + why
		return
	}
	p := r.pod
	if p == nil {
		a.State = StateNoPod
		return
	}
	a.Pod, a.State = p.Name, cmp.Or(string(p.Status.Phase), StateUnknown)
	for _, c := range p.Spec.Containers {
		if c.Name != Container {
			continue
		}
		a.Image = c.Image
		if a.DryRun == nil {
			dry := slices.ContainsFunc(c.Args, func(arg string) bool {
				return arg == "--dry-run" || arg == "--dry-run=true"
			})
			a.DryRun = &dry
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.Name != Container {
			continue
		}
		a.Restarts = c.RestartCount
		switch {
		case c.State.Waiting != nil:
			a.State = cmp.Or(c.State.Waiting.Reason, "waiting")
		case c.State.Terminated != nil:
			a.State = cmp.Or(c.State.Terminated.Reason, "terminated")
		case c.State.Running != nil && c.Ready:
			a.State = StateReady
		case c.State.Running != nil:
			a.State = StateNotReady
		}
	}
}

// problem returns the problem of an agent with a pod; empty: it has none.
func (a *Agent) problem() string {
	switch a.State {
	case StateReady, StateNoPod, StateUnknown:
		return ""
	}
	text := "agent " + a.State
	if a.Restarts > 0 {
		text += fmt.Sprintf(" (restarts: %d)", a.Restarts)
	}
	return text
}

// Running returns the agent's running pod among the pods of one node. state describes the last pod
// if none runs; empty: the node has no pod of the agent.
func Running(pods []*v1.Pod) (pod *v1.Pod, state string) {
	for _, p := range pods {
		r := reader{pod: p}
		r.readAgent()
		if state = r.out.Agent.State; state == StateReady || state == StateNotReady {
			return p, state
		}
	}
	return nil, state
}

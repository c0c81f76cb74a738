package check

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/base/output"
	"jettison/internal/node/manifests"
	"jettison/internal/node/observe"
	"jettison/internal/node/priorities"
)

// agentLimit is for the answer of an agent that runs here.
const agentLimit = 2 * time.Second

// countUnknown notes how many pods are of unknown priority, and what to do about it. An agent that
// runs here knows objects of clients, which this command does not: its count is printed, where it
// answers.
func (r *Result) countUnknown(ctx context.Context, look *observe.Look, self string,
	o observe.Options) {
	if look.Runtime.Err != nil {
		r.note("pods of unknown priority: not known, for the runtime has not told its pods")
		return
	}
	by := "by the agent that runs here"
	n, from, err := askAgent(ctx, o.Config.Socket)
	if err != nil {
		by = "by annotations and static manifests alone: no agent tells of objects: " +
			output.OneLine(err.Error())
		policy := o.Config.Eviction().Policy
		count := priorities.Count(&policy, look.Runtime.Pods, staticPods(ctx, look, o), self)
		n = &count
	}
	r.note("%s (%s)", priorities.Text(*n), by)
	if from != "" {
		r.note("priorities come from %s", from)
	}
	if n.Unprotected > 0 {
		r.note("a critical one among those is evicted like any other. What protects: namespaces %v, an "+
			"oom_score_adj of -997 "+
			"outside the Guaranteed class, the runtime's word that a pod is static. To mend it, %s",
			o.Config.ProtectedNamespaces, priorities.Ways)
	}
}

// askAgent asks an agent for its count, and where it has objects from.
func askAgent(ctx context.Context, socket string) (n *api.UnknownPriority, from string, err error) {
	if socket == "" {
		return nil, "", errors.New("no socket is configured")
	}
	s, err := api.New(api.Options{Socket: socket, Limit: agentLimit}).State(ctx)
	if err == nil && s.Pods.UnknownPriority == nil {
		err = errors.New("the agent has not counted yet")
	}
	if err != nil {
		return nil, "", err
	}
	return s.Pods.UnknownPriority, priorities.Origins(&s.Pods), nil
}

// staticPods are the objects of static manifests. What cannot be read of them is as if it were not
// there, which counts too many pods.
func staticPods(ctx context.Context, look *observe.Look,
	o observe.Options) map[string]*eviction.Pod {
	if o.Config.StaticPodPath == "" {
		return nil
	}
	all, _ := manifests.Once(ctx, filepath.Join("/", o.HostRoot, o.Config.StaticPodPath), agentLimit)
	out := map[string]*eviction.Pod{}
	for uid, p := range manifests.Bind(all, look.Runtime.Pods) {
		out[uid] = eviction.NewManifestPod(p)
	}
	return out
}

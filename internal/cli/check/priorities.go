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

// agentTimeout bounds a query to the agent of this node.
const agentTimeout = 2 * time.Second

// countUnknown adds notes on the pods of unknown priority, with the remedy. It prefers the
// agent's count, because the agent has the pod objects of clients and this command does not.
func (r *Result) countUnknown(ctx context.Context, look *observe.Look, self string,
	o observe.Options) {
	if look.Runtime.Err != nil {
		r.note("pods of unknown priority: unknown, because the runtime did not list its pods")
		return
	}
	by := "counted by the agent"
	n, from, err := queryAgent(ctx, o.Config.Socket)
	if err != nil {
		by = "counted from annotations and static manifests only, no count from an agent: " +
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
		r.note("a critical pod among them is evicted like any other. Protected are: namespaces %v, pods "+
			"with an oom_score_adj of -997 outside the Guaranteed class, and pods that the runtime reports "+
			"as static. To fix it, %s",
			o.Config.ProtectedNamespaces, priorities.Advice)
	}
}

// queryAgent returns the agent's count, and the origin of its pod objects.
func queryAgent(ctx context.Context, socket string) (n *api.UnknownPriority, from string, err error) {
	if socket == "" {
		return nil, "", errors.New("no socket is configured")
	}
	s, err := api.New(api.Options{Socket: socket, Limit: agentTimeout}).State(ctx)
	if err == nil && s.Pods.UnknownPriority == nil {
		err = errors.New("the agent has not counted yet")
	}
	if err != nil {
		return nil, "", err
	}
	return s.Pods.UnknownPriority, priorities.Origins(&s.Pods), nil
}

// staticPods returns the pods of static manifests by UID. Manifests that cannot be read are left
// out, so that the count of pods of unknown priority may be too high.
func staticPods(ctx context.Context, look *observe.Look,
	o observe.Options) map[string]*eviction.Pod {
	if o.Config.StaticPodPath == "" {
		return nil
	}
	all, _ := manifests.Once(ctx, filepath.Join("/", o.HostRoot, o.Config.StaticPodPath), agentTimeout)
	out := map[string]*eviction.Pod{}
	for uid, p := range manifests.Bind(all, look.Runtime.Pods) {
		out[uid] = eviction.NewManifestPod(p)
	}
	return out
}

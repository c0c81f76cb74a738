package gc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"jettison/api"
	"jettison/internal/base/output"
	"jettison/internal/node/garbage"
	"jettison/internal/node/manifests"
	"jettison/reclaim"
	"jettison/stats/read"
)

// knownPods returns the pods of static manifests. If a manifest cannot be read, no pod counts as
// gone.
func (p *pass) knownPods(ctx context.Context, index read.Index) garbage.Known {
	out := garbage.Known{Pods: map[string]reclaim.Phase{}, Synced: true}
	path := p.o.config.StaticPodPath
	if path == "" {
		return out
	}
	all, doubt := manifests.Once(ctx, filepath.Join("/", p.o.hostRoot, path), answerTimeout)
	for uid, pod := range manifests.Bind(all, index) {
		out.Pods[uid] = garbage.PhaseOf(pod)
	}
	if doubt != "" {
		out.Synced = false
		p.note("no pod counts as gone: some static manifests cannot be read: %s", doubt)
	}
	return out
}

// checkAgent queries the agent for the number of pods that it knows only from clients. This command
// cannot read their objects. If the agent has any, no pod counts as gone here, and the agent's own
// passes remove the leftovers. An agent that does not answer may have objects of any pod. Only a
// socket without a listener proves that no agent runs.
func (p *pass) checkAgent(ctx context.Context, locked bool, known *garbage.Known) {
	clients, err := agentClients(ctx, p.o.config.Socket)
	noAgent := p.o.config.Socket == "" || errors.Is(err, os.ErrNotExist) ||
		errors.Is(err, syscall.ECONNREFUSED)
	switch {
	case err != nil && noAgent && !locked:
	case err != nil && locked:
		known.Synced = false
		p.note("no pod counts as gone: another process has locked %s, and its pods are unknown: %v",
			p.o.stateDir, err)
	case err != nil:
		known.Synced = false
		p.note("no pod counts as gone: an agent may be running, and its pods are unknown: %v", err)
	case clients > 0:
		known.Synced = false
		p.note("no pod counts as gone: the agent knows %s from clients that this command does not know",
			output.Count(clients, "pod"))
	}
}

// agentTimeout bounds the query to the agent.
const agentTimeout = 2 * time.Second

// agentClients returns the number of pods that the agent knows only from clients.
func agentClients(ctx context.Context, socket string) (int, error) {
	if socket == "" {
		return 0, errors.New("no socket is configured")
	}
	state, err := api.New(api.Options{Socket: socket, Limit: agentTimeout}).State(ctx)
	if err != nil {
		return 0, err
	}
	return state.Pods.Clients, nil
}

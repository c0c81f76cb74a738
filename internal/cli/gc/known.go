package gc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"jettison/api"
	"jettison/internal/node/garbage"
	"jettison/internal/node/manifests"
	"jettison/reclaim"
	"jettison/stats/read"
)

// known is what static manifests name. Where they cannot all be read no pod counts as gone.
func (p *pass) known(ctx context.Context, index read.Index) garbage.Known {
	out := garbage.Known{Pods: map[string]reclaim.Phase{}, Synced: true}
	path := p.o.config.StaticPodPath
	if path == "" {
		return out
	}
	all, doubt := manifests.Once(ctx, filepath.Join("/", p.o.hostRoot, path), answerLimit)
	for uid, pod := range manifests.Bind(all, index) {
		out.Pods[uid] = garbage.PhaseOf(pod)
	}
	if doubt != "" {
		out.Synced = false
		p.note("no pod counts as gone, for not all static manifests are known: %s", doubt)
	}
	return out
}

// askAgent asks an agent that runs here how many pods its clients name: this command knows nothing
// of those, and then no pod counts as gone here. The agent's own passes take those. Only where no
// process listens there is none; one that does not answer may know anything.
func (p *pass) askAgent(ctx context.Context, locked bool, known *garbage.Known) {
	clients, err := agentClients(ctx, p.o.config.Socket)
	none := p.o.config.Socket == "" || errors.Is(err, os.ErrNotExist) ||
		errors.Is(err, syscall.ECONNREFUSED)
	switch {
	case err != nil && none && !locked: // none runs
	case err != nil && locked:
		known.Synced = false
		p.note("no pod counts as gone: %s is kept by another process, and which pods it knows is not "+
			"known: %v", p.o.stateDir, err)
	case err != nil:
		known.Synced = false
		p.note("no pod counts as gone: an agent may run, and which pods it knows is not known: %v", err)
	case clients > 0:
		known.Synced = false
		p.note("no pod counts as gone here: the agent knows %d pods from clients, which this command does not", clients)
	}
}

// agentLimit is for the agent's answer.
const agentLimit = 2 * time.Second

// agentClients is how many pods only clients have told an agent of.
func agentClients(ctx context.Context, socket string) (int, error) {
	if socket == "" {
		return 0, errors.New("no socket is configured")
	}
	state, err := api.New(api.Options{Socket: socket, Limit: agentLimit}).State(ctx)
	if err != nil {
		return 0, err
	}
	return state.Pods.Clients, nil
}

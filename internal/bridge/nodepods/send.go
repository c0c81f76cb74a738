package nodepods

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
	"jettison/internal/base/podjson"
	"jettison/internal/base/retry"
)

// Times of the telling.
const (
	// together is how long what changes is gathered: a pod that starts changes several times within a
	// second.
	batchDelay = 100 * time.Millisecond
	// apart is that where each change has everything told anew: an author of large pods, who may
	// change them all the time, is not to keep the agent busy.
	trimmedBatchDelay = 5 * time.Second
	// anew is the time between two times that everything is told, for what the agent may have lost
	// without saying so.
	fullInterval = time.Minute
	// fresh is how long after the watch was last heard what is known is told anew. A server sends a
	// bookmark each minute; without one the agent is to see that nobody vouches for what it was told
	// (api.StaleAfter).
	watchTimeout = 3 * time.Minute
	// The pauses after what failed double from the first to the last.
	minBackoff, maxBackoff = time.Second, 30 * time.Second
)

// teller tells the agent.
type sender struct {
	agent  Agent
	store  *store
	log    *slog.Logger
	resync <-chan struct{}

	version       uint64         // of the agent's set of pods, as it said last
	failureLogged bool           // that it cannot be told was said
	successLogged bool           // that it has been told was said
	count         int            // of pods that it was told of when it was told of all
	fitted        podjson.Fitted // what all were cut by, as they were told last
}

// run tells until ctx ends.
func (t *sender) run(ctx context.Context) {
	all, pause := false, time.Duration(0)
	timer := time.NewTimer(fullInterval)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-t.store.wake:
			gather := batchDelay
			if t.trimmed() {
				gather = trimmedBatchDelay
			}
			if !retry.Sleep(ctx, gather) {
				return
			}
		case <-t.resync:
			all = true
		case <-timer.C:
			if all = all || t.store.activeWithin(watchTimeout); !all {
				timer.Reset(fullInterval)
				continue
			}
		}
		next := fullInterval
		switch ok, err := t.send(ctx, all || t.trimmed()); {
		case err != nil:
			all, pause = true, retry.Backoff(pause, minBackoff, maxBackoff)
			next = retry.Jitter(pause)
			t.logFailure(err)
		case ok:
			all, pause = false, 0
			t.logSuccess()
		}
		timer.Reset(next)
	}
}

// tell tells what is new, or everything. !ok: nothing is known yet.
func (t *sender) send(ctx context.Context, all bool) (ok bool, err error) {
	n, ok := t.store.takeChanges(all)
	if !ok {
		return false, nil
	}
	pods := make([]*v1.Pod, 0, len(n.pods))
	for _, p := range n.pods {
		if usedByAgent(p) {
			pods = append(pods, agentPod(p))
		}
	}
	if n.full {
		pods, did := podjson.Fit(pods)
		t.logTrimming(did)
		t.count = len(pods)
		answer, err := t.agent.ReplacePods(ctx, pods)
		t.version = answer.Version
		return true, err
	}
	if len(pods) > 0 {
		answer, err := t.agent.PutPods(ctx, pods)
		if err != nil {
			return true, err
		}
		if answer.Version < t.version { // it has started anew, and knows these alone
			return t.send(ctx, true)
		}
		t.version = answer.Version
	}
	for _, uid := range n.gone {
		if err := t.agent.DeletePod(ctx, string(uid)); err != nil && !isNotOurs(err) {
			return true, err
		}
	}
	return true, nil
}

// tight tells that pods were cut: beside these there is no room for more.
func (t *sender) trimmed() bool { return t.fitted != podjson.Fitted{} }

// cut says that pods are cut, when they are by more than before or no more.
func (t *sender) logTrimming(did podjson.Fitted) {
	was := t.fitted
	t.fitted = did
	switch {
	case did.Less > was.Less || did.Left > was.Left:
		t.log.Warn("this node's pods are more than the agent has room for: of the largest it is told "+
			"who they are, and of some nothing",
			"pods", did.Less, "left", did.Left)
	case did == (podjson.Fitted{}) && did != was:
		t.log.Info("the agent has room for this node's pods again")
	}
}

// unknown tells that the agent does not have the pod, or that it is not the bridge's to take away.
func isNotOurs(err error) bool {
	var status *api.StatusError
	return errors.As(err, &status) && (status.Status == http.StatusNotFound ||
		status.Status == http.StatusForbidden)
}

// complain says once that the agent cannot be told, until it can.
func (t *sender) logFailure(err error) {
	if !t.failureLogged && !errors.Is(err, context.Canceled) {
		t.failureLogged = true
		t.log.Warn("the agent cannot be told of this node's pods: it goes on by what it knows",
			"error", err)
	}
}

// recovered says once that the agent knows the pods, and again after it could not be told.
func (t *sender) logSuccess() {
	if t.failureLogged || !t.successLogged {
		t.failureLogged, t.successLogged = false, true
		t.log.Info("the agent knows this node's pods", "pods", t.count)
	}
}

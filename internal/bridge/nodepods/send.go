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

// Timing of the sender.
const (
	// batchDelay is the time in which changes are gathered: a pod that starts changes several times
	// within a second.
	batchDelay = 100 * time.Millisecond
	// trimmedBatchDelay replaces batchDelay while each change requires sending all pods: an author
	// who keeps changing large pods must not keep the agent busy.
	trimmedBatchDelay = 5 * time.Second
	// fullInterval is the time between two sends of all pods, in case the agent lost some without
	// reporting it.
	fullInterval = time.Minute
	// watchTimeout is the time without watch activity after which the sender stops resending all
	// pods. A server sends a bookmark each minute. Without one the agent must notice that its pods
	// may be stale (api.StaleAfter).
	watchTimeout = 3 * time.Minute
	// The backoff doubles from minBackoff to maxBackoff.
	minBackoff, maxBackoff = time.Second, 30 * time.Second
)

// sender sends the pods to the agent.
type sender struct {
	agent  Agent
	store  *store
	log    *slog.Logger
	resync <-chan struct{}

	version       uint64            // the agent's version of its pods, from its last response
	failureLogged bool              // "sending failed" is logged
	successLogged bool              // "sent" is logged
	count         int               // pods in the last full send
	fitted        podjson.Reduction // how the last full send was reduced
}

// run sends changes until ctx ends.
func (t *sender) run(ctx context.Context) {
	full, delay := false, time.Duration(0)
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
			full = true
		case <-timer.C:
			if full = full || t.store.activeWithin(watchTimeout); !full {
				timer.Reset(fullInterval)
				continue
			}
		}
		next := fullInterval
		switch ok, err := t.send(ctx, full || t.trimmed()); {
		case err != nil:
			full, delay = true, retry.Backoff(delay, minBackoff, maxBackoff)
			next = retry.Jitter(delay)
			t.logFailure(err)
		case ok:
			full, delay = false, 0
			t.logSuccess()
		}
		timer.Reset(next)
	}
}

// send sends the pending changes, or all pods. !ok: the pods are not known yet.
func (t *sender) send(ctx context.Context, full bool) (ok bool, err error) {
	n, ok := t.store.takeChanges(full)
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
		pods, reduction := podjson.Fit(pods)
		t.logTrimming(reduction)
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
		if answer.Version < t.version { // the agent restarted and has only these pods
			return t.send(ctx, true)
		}
		t.version = answer.Version
	}
	for _, uid := range n.gone {
		if err := t.agent.DeletePod(ctx, string(uid)); err != nil && !isGoneOrDenied(err) {
			return true, err
		}
	}
	return true, nil
}

// trimmed reports whether the last full send was reduced, so that there is no room for further
// pods.
func (t *sender) trimmed() bool { return t.fitted != podjson.Reduction{} }

// logTrimming logs when the reduction increases and when it ends.
func (t *sender) logTrimming(reduction podjson.Reduction) {
	previous := t.fitted
	t.fitted = reduction
	switch {
	case reduction.Minimal > previous.Minimal || reduction.Dropped > previous.Dropped:
		//log: This node's pods exceed the limits of the agent. The key pods counts the largest
		//  pods, of which the agent received only the identity; left counts pods that were not
		//  sent.
		//do: Find and remove pods with very large specs or annotations, or very many ended pods, on
		//  this node.
		t.log.Warn("pods of this node exceed agent limits",
			"pods", reduction.Minimal, "left", reduction.Dropped)
	case reduction == (podjson.Reduction{}) && reduction != previous:
		//log: The agent has all pods of this node in full again.
		t.log.Info("pods of this node fit agent limits again")
	}
}

// isGoneOrDenied reports whether the agent does not have the pod, or does not let the bridge delete
// it.
func isGoneOrDenied(err error) bool {
	var status *api.StatusError
	return errors.As(err, &status) && (status.Status == http.StatusNotFound ||
		status.Status == http.StatusForbidden)
}

// logFailure logs the first failure since the last success.
func (t *sender) logFailure(err error) {
	if !t.failureLogged && !errors.Is(err, context.Canceled) {
		t.failureLogged = true
		//log: Sending this node's pods to the agent failed and is retried. The agent keeps using
		//  the pods that it last received.
		//do: Check that the agent is running and that the bridge may write to its socket.
		t.log.Warn("sending pods to the agent failed, retrying",
			"error", err)
	}
}

// logSuccess logs the first success, and the first one after a logged failure.
func (t *sender) logSuccess() {
	if t.failureLogged || !t.successLogged {
		t.failureLogged, t.successLogged = false, true
		//log: The agent received all pods of this node.
		t.log.Info("pods sent to the agent", "pods", t.count)
	}
}

package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"jettison/admit"
	"jettison/api"
	"jettison/eviction"
	"jettison/internal/agent/admission"
	"jettison/stats"
)

// preempting creates the part for preemption. A dry run logs the pods that it would stop.
func (b *builder) preempting(l *loop) *admission.Preempting {
	p := admission.NewPreempting(admission.PreemptOptions{
		Enabled: b.o.Config.Preemption, Stop: l.preempt, Life: b.manager.Life, Ended: l.pods.Ended,
		Name: l.pods.Name, Log: b.log,
		// pods would be stopped: a minute-old result is not enough
		Kubelet:        func() bool { return l.kubelet.FoundLately(time.Now()) },
		ProcessPending: l.processPending,
		State: func(now time.Time) (admit.NodeState, error) {
			l.gate.admission.Changed()
			l.publishAdmission(now)
			return b.admission.State(now)
		},
		Publish: func(now time.Time) {
			l.gate.admission.Changed()
			l.publishAdmission(now)
		},
		WhyAlive: func(life *eviction.Life) string { return l.evictions.WhyAlive(life) },
	})
	b.onClose(p.Close)
	return p
}

// processPending processes pending lists and events, so that no pod is stopped for resources that
// are free by now.
func (l *loop) processPending() {
	select {
	case u := <-l.pods.Updates():
		l.onListed(u)
	default:
	}
	select {
	case u := <-l.gate.Updates():
		l.onEvents(u)
	default:
	}
}

// preempt stops pods for a critical one, by a look made now.
func (l *loop) preempt(ctx context.Context, now time.Time, uids []string,
	reason string) ([]*eviction.Life, error) {
	if len(uids) == 0 {
		return nil, nil
	}
	if err := l.looks.Pods(now, l.pods.All()); err != nil {
		l.log.Repeat("reading pods: "+err.Error(),
			func() { l.log.Warn("some pods could not be measured", api.EventSource.Attr(), "error", err) })
	}
	pods, objects := l.looks.Summary().Pods, l.objects.Pods()
	var victims []eviction.Eviction
	for _, uid := range uids {
		at := slices.IndexFunc(pods, func(p stats.PodStats) bool { return p.PodRef.UID == uid })
		if at < 0 {
			return nil, fmt.Errorf("pod %s has ended",
				l.pods.Name(stats.PodReference{UID: uid}))
		}
		victims = append(victims, eviction.Preempted(&pods[at], objects[uid], admit.ReasonPreempting,
			admit.PreemptedMessage))
	}
	lives, err := l.evictions.Preempt(ctx, now, victims, reason)
	l.publisher.markChanged()
	return lives, err
}

// deadSandboxes returns, by UID, the sandboxes of killed pods with no process left.
func (l *loop) deadSandboxes(now time.Time) map[string][]string {
	var out map[string][]string
	for _, life := range l.manager.Lives() {
		if back, _ := life.RoomState(now); back && life.Dead() {
			if out == nil {
				out = map[string][]string{}
			}
			p := &life.Eviction().Pod
			out[p.PodRef.UID] = p.SandboxIDs
		}
	}
	return out
}

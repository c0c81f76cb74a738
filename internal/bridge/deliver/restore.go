package deliver

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/internal/bridge/verdict"
)

const (
	// StablePeriod is the time that a status must stay as written before the bridge stops watching
	// it. Late reports of a kubelet have reverted a status for up to eight seconds, and the
	// kubelet's status manager compares the status every ten seconds.
	StablePeriod = time.Minute
	// maxRestores bounds how often a reverted phase is written again. A client that reverts it more
	// often does so on purpose.
	maxRestores = 20
	// maxReasonRestores bounds how often a removed reason is written again while containers of the
	// pod have not ended. A kubelet that has finished the pod writes its last known status every
	// ten seconds, forever (pkg/kubelet/status/status_manager.go needsReconcile, v1.36.3).
	maxReasonRestores = 3
)

// restoreState counts how often a status was reverted and written again.
type restoreState struct {
	failedAt    time.Time // when this process last set the pod to Failed; zero: it did not
	stableSince time.Time // when the status became as written; zero: it differs
	phase       int       // restores of the phase
	reason      int       // restores of the reason alone
	reported    bool      // "reverted too often" is logged
}

// restoreCount returns the counter to increase when the pod is restored; nil: the limit is reached.
// It logs that once.
func (d *Deliverer) restoreCount(e *entry, v verdict.Verdict, pod *v1.Pod) *int {
	n, limit := e.restores.counter(pod)
	if e.restores.resetStable(); *n < limit {
		return n
	}
	if e.settled = true; !e.restores.reported {
		e.restores.reported = true
		//log: Another client reverted the status that the bridge wrote to an evicted pod too many
		//  times. The bridge does not write it again.
		//do: Find the client that writes pods/status, for example in the API server's audit log.
		d.o.Log.Error("pod status reverted too often, giving up",
			append(d.fields(e), "reason", v.Reason)...)
	}
	return nil
}

// counter returns the counter for the part of the pod's status that is wrong, and its limit.
func (m *restoreState) counter(pod *v1.Pod) (n *int, limit int) {
	if pod.Status.Phase == v1.PodFailed {
		return &m.reason, maxReasonRestores
	}
	return &m.phase, maxRestores
}

// stable reports whether the status has stayed as written for StablePeriod.
func (m *restoreState) stable(now time.Time) bool {
	if m.stableSince.IsZero() {
		m.stableSince = now
	}
	return now.Sub(m.stableSince) >= StablePeriod
}

// stableAt returns when the status will have stayed as written for StablePeriod; zero: the status
// differs.
func (m *restoreState) stableAt() time.Time {
	if m.stableSince.IsZero() {
		return time.Time{}
	}
	return m.stableSince.Add(StablePeriod)
}

// resetStable records that the status differs from the one that was written.
func (m *restoreState) resetStable() { m.stableSince = time.Time{} }

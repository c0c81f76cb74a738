package deliver

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/internal/bridge/verdict"
)

const (
	// HoldFor is how long a status must stay as it was written until it is watched no longer. A
	// kubelet's own late report was seen to change it back for eight seconds, and its status
	// manager compares every ten.
	HoldFor = time.Minute
	// maxMends bounds how often a status that is changed back is written again. Who changes it more
	// often does so on purpose.
	maxMends = 20
	// maxReasonMends bounds how often a reason is that is removed while containers of the pod have
	// not ended. A kubelet that has finished the pod writes what it last knew, every ten seconds
	// and for good (pkg/kubelet/status/status_manager.go needsReconcile, v1.36.3).
	maxReasonMends = 3
)

// mending counts how often a status was changed back and written again.
type mending struct {
	failedAt  time.Time // when this process made the pod Failed last; zero: it did not
	heldSince time.Time // since when the status has been as written; zero: it is not
	phase     int       // mends of the phase
	reason    int       // mends of the reason alone
	reported  bool      // that no more follow is logged
}

// mayMend returns the count to increase when the pod is mended; nil: it is not mended any more,
// which is logged once.
func (d *Deliverer) mayMend(e *entry, v verdict.Verdict, pod *v1.Pod) *int {
	n, most := e.mends.of(pod)
	if e.mends.changed(); *n < most {
		return n
	}
	if e.settled = true; !e.mends.reported {
		e.mends.reported = true
		d.o.Log.Error("the pod's status is taken back again and again: it stays as it is",
			append(d.fields(e), "reason", v.Why)...)
	}
	return nil
}

// of returns the count for what is wrong with the pod's status now, and its bound.
func (m *mending) of(pod *v1.Pod) (n *int, most int) {
	if pod.Status.Phase == v1.PodFailed {
		return &m.reason, maxReasonMends
	}
	return &m.phase, maxMends
}

// held reports whether the status has stayed as it was written for HoldFor.
func (m *mending) held(now time.Time) bool {
	if m.heldSince.IsZero() {
		m.heldSince = now
	}
	return now.Sub(m.heldSince) >= HoldFor
}

// heldUntil returns when the status will have stayed for HoldFor; zero: it is not as written.
func (m *mending) heldUntil() time.Time {
	if m.heldSince.IsZero() {
		return time.Time{}
	}
	return m.heldSince.Add(HoldFor)
}

// changed records that the status is not as written.
func (m *mending) changed() { m.heldSince = time.Time{} }

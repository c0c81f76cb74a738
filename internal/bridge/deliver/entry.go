package deliver

import (
	"cmp"
	"reflect"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"jettison/api"
	"jettison/internal/bridge/verdict"
)

// Times of an entry.
const (
	// HoldFor is how long a status must have stayed as it was written to be looked at no longer. A kubelet's own late report was seen to
	// take it back for eight seconds, and its status manager compares every ten.
	HoldFor = time.Minute
	// mendings is how often what is taken back is written again. Whoever takes it back more often than that means it.
	mendings = 20
	// reasonMendings is how often a reason is that is taken away while containers of the pod have not ended. A kubelet that has done with it
	// says what it last knew, every ten seconds and for good (pkg/kubelet/status/status_manager.go needsReconcile, v1.36.3).
	reasonMendings = 3
	// The pauses after what failed double from the first to the last.
	firstPause, lastPause = 500 * time.Millisecond, 30 * time.Second
	// raceLast is the last one of an API that is away while a pod waits that its kubelet has fail by itself: whoever comes second says why.
	raceLast = time.Second
	// refusedPause is the last one after what is refused: who installs a role or a policy may do so later.
	refusedPause = 5 * time.Minute
)

// entry is one record, and how far it has come.
type entry struct {
	record *api.Record
	last   *v1.Pod // as the API last answered a request of ours; the watch may be behind it
	gone   bool    // a request has said that there is no such pod
	status bool    // its status needs nothing any more
	told   verdict.Verdict

	sent    map[string]bool // events that the API has, by name
	patches retry
	events  retry
	busy    bool      // a write of its pod is on its way, and not waited for
	slow    bool      // so was the last one
	vain    time.Time // when a write of it was not taken by an API that answers a read; zero: since the last one that was, none
	unsure  bool      // nobody knows whether the last one was done, or a bridge before this one did one just now
	wrote   time.Time // when the pod was last made Failed; zero: not by this process
	held    time.Time // since when the pod has been as it should be; zero: it is not
	mends   int       // of its phase
	reasons int       // mends of its reason alone
	quit    bool      // that it is not mended any more was said

	complaint string // what was said last of why it waits
}

// changes takes that the agent says more of it: whatever was due is another thing now, and is not what failed before. An agent that is
// asked anew says what it has said.
func (e *entry) changes(r *api.Record) {
	if reflect.DeepEqual(e.record, r) {
		return
	}
	e.record, e.status, e.told, e.patches.until = r, false, verdict.Verdict{}, e.patches.asked
}

// mending is how often the pod's status was mended for what is wrong with it now, and how often it is at most.
func (e *entry) mending(pod *v1.Pod) (n *int, most int) {
	if pod.Status.Phase == v1.PodFailed {
		return &e.reasons, reasonMendings
	}
	return &e.mends, mendings
}

// retry says when something that failed is tried again.
type retry struct {
	until time.Time     // it is left alone until then; zero: it is not
	asked time.Time     // as the API has asked
	pause time.Duration // the last one; zero: none
}

// failed has it wait before it is tried again: each time longer, up to a longest pause, or as long as the API asks for.
func (r *retry) failed(now time.Time, longest, asked time.Duration) {
	r.pause = min(max(2*r.pause, firstPause), longest)
	r.asked = now.Add(asked)
	r.until = later(r.asked, now.Add(jittered(r.pause)))
}

// waits tells that its time has not come.
func (r *retry) waits(now time.Time) bool { return now.Before(r.until) }

// final tells that the agent will say nothing more of it.
func (e *entry) final() bool { return verdict.Final(time.Now(), e.record) }

// current is the newest of what the watch and the last answer say of the pod.
func (e *entry) current(watched *v1.Pod) *v1.Pod {
	if e.gone {
		return nil
	}
	if watched == nil || e.last == nil {
		return cmp.Or(watched, e.last)
	}
	if order, err := resourceversion.CompareResourceVersion(watched.ResourceVersion, e.last.ResourceVersion); err == nil && order < 0 {
		return e.last
	}
	e.last = nil // which may be large, and of which there may be many
	return watched
}

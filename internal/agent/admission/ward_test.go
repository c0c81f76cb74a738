package admission

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/admit"
	"jettison/api"
	"jettison/eviction"
	"jettison/internal/base/logthrottle"
	"jettison/stats"
)

// ward is a node for at most a few pods, with its loop. Tests identify pods by UID.
type ward struct {
	*Preempting
	m        *eviction.Manager
	now      time.Time
	maxPods  int64
	pods     []admit.Held
	lives    map[string]*eviction.Life
	stopped  []string // UIDs, in the order in which they were stopped
	reason   string
	kubelet  bool
	pinErr   error // why a victim cannot be pinned
	stateErr error // why the node is unknown
	// published are the reservations at the last Publish.
	published []string
}

func newWard(most int64, pods ...string) *ward {
	w := &ward{m: eviction.NewManager(eviction.Config{}), now: time.Unix(1000, 0), maxPods: most, lives: map[string]*eviction.Life{}}
	for i, uid := range pods {
		w.pods = append(w.pods, admit.Held{UID: types.UID(uid), Name: uid, Namespace: "default", QOS: stats.BestEffort, Created: w.now.Add(time.Duration(i))})
	}
	w.Preempting = NewPreempting(PreemptOptions{
		Enabled: true, Kubelet: func() bool { return w.kubelet }, ProcessPending: func() {}, State: w.state,
		Publish: func(time.Time) { w.published = w.reserved() }, Stop: w.stop, Life: w.m.Life,
		WhyAlive: func(*eviction.Life) string { return "the kernel holds it" }, Name: func(p stats.PodReference) string { return p.Namespace + "/" + p.Name },
		Log: logthrottle.New(slog.New(slog.NewTextHandler(io.Discard, nil))),
	})
	return w
}

func (w *ward) state(now time.Time) (n admit.NodeState, err error) {
	n.Allocatable = v1.ResourceList{v1.ResourcePods: *resource.NewQuantity(w.maxPods, resource.DecimalSI)}
	for _, h := range w.pods {
		if l := w.lives[string(h.UID)]; l != nil {
			if back, over := l.RoomState(now); back {
				continue
			} else if h.Ending = !over; over {
				h.Protected = true
			}
		}
		n.Pods = append(n.Pods, h)
	}
	n.Reservations = w.Reservations(now)
	return n, w.stateErr
}

func (w *ward) stop(_ context.Context, now time.Time, uids []string, reason string) (out []*eviction.Life, err error) {
	if w.pinErr != nil {
		return nil, w.pinErr
	}
	for _, uid := range uids {
		pod := stats.PodStats{PodRef: stats.PodReference{UID: uid}, SandboxIDs: []string{uid}}
		l := w.m.Begin(eviction.Stamp{Time: now}, eviction.Preempted(&pod, nil, "", ""), eviction.Met{})
		w.lives[uid] = l
		out = append(out, l)
	}
	w.stopped, w.reason = append(w.stopped, uids...), reason
	return out, nil
}

func (w *ward) markDead(uid string) { w.m.Emptied(eviction.Stamp{Time: w.now}, w.lives[uid]) }

// critical returns a pod of system priority, ordinary one of priority 0.
func critical(uid string) admit.PodAttributes { return priority(uid, systemCriticalPriority) }
func ordinary(uid string) admit.PodAttributes { return priority(uid, 0) }
func priority(uid string, priority int32) admit.PodAttributes {
	return admit.PodAttributes{Pod: &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: uid, Namespace: "kube-system"}, Spec: v1.PodSpec{Priority: &priority},
	}}
}

// clientAnswer is the channel of a client's answer.
type clientAnswer chan answer

// ask sends a client's request to the loop and handles it there.
func (w *ward) ask(ctx context.Context, pod admit.PodAttributes) clientAnswer {
	out := make(clientAnswer, 1)
	go func() {
		result, err := w.Preempt(ctx, pod)
		out <- answer{result, err}
	}()
	w.OnRequest(ctx, w.now, <-w.Requests())
	return out
}

// checkPending fails if a client was answered.
func (w *ward) checkPending(t *testing.T, a clientAnswer) {
	t.Helper()
	select {
	case got := <-a:
		t.Fatalf("the client was answered already: %+v", got)
	default:
	}
}

// checkState compares the preemption part of the state with want.
func (w *ward) checkState(t *testing.T, want api.GateState) {
	t.Helper()
	var got api.GateState
	if w.Fill(w.now, &got); !cmp.Equal(got, want) {
		t.Errorf("state of preemption (-want +got):\n%s", cmp.Diff(want, got))
	}
}

func (w *ward) reserved() (out []string) {
	for _, h := range w.Reservations(w.now) {
		out = append(out, string(h.UID))
	}
	return out
}

// occupied returns the number of pods that live or have a reservation, except one.
func (w *ward) occupied(but string) (n int64) {
	lives := map[string]bool{}
	for _, h := range w.pods {
		back := false
		if l := w.lives[string(h.UID)]; l != nil {
			back, _ = l.RoomState(w.now)
		}
		lives[string(h.UID)] = !back
	}
	for _, uid := range w.reserved() {
		if !slices.ContainsFunc(w.inProgress, func(m *preemption) bool { return string(m.held.UID) == uid }) {
			lives[uid] = true
		}
	}
	for uid, is := range lives {
		if is && uid != but {
			n++
		}
	}
	return n
}

// dying returns the victims that may still end either way.
func (w *ward) dying() (out []string) {
	for uid, l := range w.lives {
		if _, over := l.RoomState(w.now); !over {
			out = append(out, uid)
		}
	}
	slices.Sort(out)
	return out
}

package replay

import (
	"fmt"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"jettison/cluster/lifecycle"
	"jettison/cluster/taint"
	"jettison/internal/cluster/config"
)

// world is a cluster in virtual time. Each write may fail, and the controller may restart at any
// time.
type world struct {
	t           *rapid.T
	state       *state
	now         time.Time
	alive       map[string]bool      // kubelets that renew
	lastRenewal map[string]time.Time // by node
	skew        map[string]time.Duration
	nodes       *lifecycle.Core
	pods        *taint.Core
	taintTimes  map[string][]time.Time // times of NoExecute taints, by zone
	restarts    int
}

func (w *world) restart() {
	c := config.Default()
	w.nodes, w.pods = lifecycle.New(c.Lifecycle()), taint.New(c.Taint())
	w.restarts++
}

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, state: newState(), now: zero, alive: map[string]bool{}, lastRenewal: map[string]time.Time{}, skew: map[string]time.Duration{},
		taintTimes: map[string][]time.Time{},
	}
	f := &Frame{Nodes: []v1.Node{}, Pods: []v1.Pod{}}
	for i := range rapid.IntRange(2, 9).Draw(t, "nodes") {
		n := v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), UID: types.UID(fmt.Sprint("u", i)), Labels: map[string]string{
			v1.LabelTopologyRegion: "r", v1.LabelTopologyZone: fmt.Sprint(i % 3)}}}
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: metav1.Time{Time: zero}}}
		f.Nodes = append(f.Nodes, n)
		w.alive[n.Name], w.lastRenewal[n.Name] = true, zero
		for j := range 3 {
			p := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: fmt.Sprintf("p%d-%d", i, j), UID: types.UID(fmt.Sprintf("p%d-%d", i, j))}}
			p.Spec.NodeName = n.Name
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
			if seconds := int64(j * 40); j > 0 {
				p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: &seconds}}
			}
			f.Pods = append(f.Pods, p)
		}
	}
	w.state.load(f)
	w.renew()
	w.restart()
	return w
}

// renew renews the Leases of live kubelets. Their clocks may jump.
func (w *world) renew() {
	for name, alive := range w.alive {
		if !alive {
			continue
		}
		stamp := metav1.Time{Time: w.now}
		renew := metav1.MicroTime{Time: w.now.Add(w.skew[name])}
		if was := w.state.leases[name]; was != nil && was.Spec.RenewTime.Equal(&renew) {
			continue // the API server stores no unchanged object
		}
		w.state.leases[name] = &coordination.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", Time: &stamp}}},
			Spec:       coordination.LeaseSpec{RenewTime: &renew},
		}
		w.lastRenewal[name] = w.now
		if c := &w.state.nodes[name].Status.Conditions[0]; c.Status != v1.ConditionTrue {
			c.Status, c.LastHeartbeatTime, c.LastTransitionTime = v1.ConditionTrue, metav1.Time{Time: w.now.Add(w.skew[name])}, metav1.Time{Time: w.now}
		}
	}
}

// fails reports whether a write fails.
func (w *world) fails() bool { return rapid.IntRange(0, 3).Draw(w.t, "fails") == 0 }

func (w *world) step() {
	actions := w.nodes.Step(w.now, lifecycle.Seen{Nodes: w.state.nodes, Leases: w.state.leases, Pods: w.state.podsOf})
	for i := range actions.Status {
		s := &actions.Status[i]
		if silent := w.now.Sub(w.lastRenewal[s.Node]); silent <= 50*time.Second {
			w.t.Fatalf("%v: node %s is Unknown %v after its renewal", w.now.Sub(zero), s.Node, silent)
		}
		ok := !w.fails()
		if ok {
			w.state.status(s)
		}
		w.nodes.End(w.now, s.Node, s.UID, lifecycle.WriteStatus, ok)
	}
	for i := range actions.Taints {
		w.taint(&actions.Taints[i])
	}
	for _, m := range actions.Marks {
		ok := !w.fails()
		if ok {
			w.state.mark(m)
		}
		w.nodes.EndMark(w.now, m, ok)
	}
	w.evict()
}

func (w *world) taint(c *lifecycle.Taints) {
	n := w.state.nodes[c.Node]
	for _, t := range c.Add {
		if t.Effect == v1.TaintEffectNoExecute && w.alive[c.Node] && w.now.Sub(w.lastRenewal[c.Node]) <= 50*time.Second {
			w.t.Fatalf("%v: healthy node %s gets taint %s", w.now.Sub(zero), c.Node, t.Key)
		}
	}
	ok := !w.fails()
	if ok {
		w.state.taint(c)
		if c.Evicted {
			zone := lifecycle.ZoneOf(n)
			w.taintTimes[zone] = append(w.taintTimes[zone], w.now)
		}
	}
	w.nodes.End(w.now, c.Node, c.UID, lifecycle.WriteTaints, ok)
}

func (w *world) evict() {
	evictions := w.pods.Step(w.now, taint.Seen{Nodes: w.state.nodes, Pods: w.state.podsOf, Zone: lifecycle.ZoneOf})
	for i := range evictions.Stamps {
		w.t.Fatalf("stamp although all taints have a time: %+v", evictions.Stamps[i])
	}
	for i := range evictions.Evict {
		e := &evictions.Evict[i]
		if at, ok := w.deadline(w.state.pods[e.UID]); !ok || w.now.Before(at) {
			w.t.Fatalf("%v: pod %s is evicted before its deadline %v (has one: %v)", w.now.Sub(zero), e.Name, at.Sub(zero), ok)
		}
		ok := !w.fails()
		if ok {
			w.state.drop(e.UID)
		}
		w.pods.End(w.now, e.UID, ok)
	}
}

// deadline returns the earliest deadline over all taints.
func (w *world) deadline(p *v1.Pod) (at time.Time, due bool) {
	for _, t := range w.state.nodes[p.Spec.NodeName].Spec.Taints {
		if t.Effect != v1.TaintEffectNoExecute {
			continue
		}
		end := t.TimeAdded.Time
		if len(p.Spec.Tolerations) > 0 {
			end = end.Add(time.Duration(*p.Spec.Tolerations[0].TolerationSeconds) * time.Second)
		}
		if !due || end.Before(at) {
			at, due = end, true
		}
	}
	return at, due
}

// With any failures and restarts: no healthy node is tainted or becomes Unknown, no pod is deleted
// before its deadline, and the rates hold. When writes succeed, all due pods are deleted.
func TestFaultsBreakNoPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(10, 60).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 10).Draw(t, "seconds")) * time.Second)
			name := fmt.Sprint("n", rapid.IntRange(0, len(w.alive)-1).Draw(t, "node"))
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				w.alive[name] = false
			case 1:
				w.alive[name] = true
			case 2:
				w.skew[name] = time.Duration(rapid.IntRange(-3600, 3600).Draw(t, "skew")) * time.Second
			case 3:
				w.restart()
			}
			w.renew()
			w.step()
		}
		for zone, at := range w.taintTimes {
			for i := range at {
				if j := i + w.restarts + 1; j < len(at) && at[j].Sub(at[i]) < 10*time.Second {
					t.Fatalf("zone %s: %d nodes tainted within %v, with %d restarts", zone, j-i+1, at[j].Sub(at[i]), w.restarts)
				}
			}
		}
		w.checkSettled()
	})
}

// checkSettled lets writes succeed and fails if a due pod is left.
func (w *world) checkSettled() {
	for range 40 {
		w.now = w.now.Add(time.Second)
		w.renew()
		evictions := w.pods.Step(w.now, taint.Seen{Nodes: w.state.nodes, Pods: w.state.podsOf, Zone: lifecycle.ZoneOf})
		for i := range evictions.Evict {
			w.state.drop(evictions.Evict[i].UID)
			w.pods.End(w.now, evictions.Evict[i].UID, true)
		}
	}
	for _, p := range w.state.pods {
		if at, due := w.deadline(p); due && w.now.Sub(at) > time.Second {
			w.t.Fatalf("pod %s was due %v ago and exists", p.Name, w.now.Sub(at))
		}
	}
}

package oracle

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/internal/cluster/config"
)

const (
	renewEvery  = 10 * time.Second
	postEvery   = time.Minute
	maintenance = "example.com/maintenance"
)

// change is a change of objects or of the controllers.
type change struct {
	at      time.Duration
	restart bool
	kubelet bool // a kubelet's write, which taint evictions ignore
	do      func(store)
}

// trouble is an event of a timeline besides nodes that die and recover. The rules use it.
type trouble struct {
	what   string
	at     time.Duration
	object string // Node/NAME or Pod/NAMESPACE/NAME; empty: all
}

// timeline is a sequence of changes.
type timeline struct {
	*rand.Rand
	seed     int
	config   *config.Cluster
	end      time.Duration
	names    []string
	zones    map[string]string        // of nodes
	skews    map[string]time.Duration // of their clocks
	pods     []*v1.Pod
	lives    map[string][]span
	renewals map[string][]time.Duration // of nodes, since their clock was set back
	before   map[string][]time.Duration // of nodes, the renewals before that
	statuses map[string][]time.Duration // of nodes
	changes  []change
	troubles []trouble
}

// state of a kubelet.
type state int

const (
	alive state = iota
	notReady
	silent
)

// span is an interval in which a kubelet is in a state.
type span struct {
	from, to time.Duration
	is       state
}

func (l *timeline) one(in int) bool { return l.IntN(in) == 0 }

// All changes are between the instants at which upstream's controllers run, every 100 ms from their
// start: otherwise the order would be random.
const (
	step    = 100 * time.Millisecond
	happens = 37 * time.Millisecond
	begins  = 71 * time.Millisecond
)

func (l *timeline) seconds(from, to int) time.Duration {
	return time.Duration(from*10+l.IntN((to-from)*10)) * step
}

func (l *timeline) add(at time.Duration, do func(store)) {
	l.changes = append(l.changes, change{at: at + happens, do: do})
}

// addWrite adds a write of a kubelet.
func (l *timeline) says(at time.Duration, do func(store)) {
	l.changes = append(l.changes, change{at: at + happens, kubelet: true, do: do})
}

func newTimeline(seed int) *timeline {
	l := &timeline{
		Rand: rand.New(rand.NewPCG(uint64(seed), 18)), seed: seed, config: config.Default(), end: 8 * time.Minute,
		zones: map[string]string{}, lives: map[string][]span{}, skews: map[string]time.Duration{},
		renewals: map[string][]time.Duration{}, before: map[string][]time.Duration{}, statuses: map[string][]time.Duration{},
	}
	l.config.NodeMonitorPeriod = time.Second // the core runs at every change
	l.config.NodeEvictionRate = []float64{0.1, 0.5, 1, 5}[l.IntN(4)]
	l.config.LargeClusterSizeThreshold = int32(2 + l.IntN(6))
	l.config.Doubt = l.one(4)
	nodes, zones := 2+l.IntN(8), 1+l.IntN(3)
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		l.names = append(l.names, name)
		l.zones[name] = string(rune('a' + l.IntN(zones)))
		if l.one(10) {
			l.skews[name] = -l.seconds(0, 3600) // its clock is behind
		}
		for j := range 1 + l.IntN(3) {
			l.pods = append(l.pods, l.newPod(fmt.Sprintf("p%d-%d", i, j), name))
		}
	}
	for _, name := range l.names {
		l.lives[name] = l.life()
	}
	l.together()
	for _, name := range l.names {
		l.live(name)
	}
	for range l.IntN(4) {
		l.trouble()
	}
	l.changes = slices.DeleteFunc(l.changes, func(c change) bool { return c.at >= l.end })
	slices.SortStableFunc(l.changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	return l
}

// life returns the states of one kubelet. Silences are so short that neither side may notice them,
// or so long that both must, at any polling time.
func (l *timeline) life() (out []span) {
	at := time.Duration(0)
	for at < l.end {
		s := span{from: at, is: alive, to: at + l.seconds(70, 250)}
		if len(out) > 0 && out[len(out)-1].is == alive || len(out) == 0 && l.one(6) {
			switch l.IntN(5) {
			case 0:
				s.is, s.to = notReady, at+l.seconds(20, 200)
			case 1:
				s.is, s.to = silent, at+l.seconds(10, 25)
			default:
				s.is, s.to = silent, at+l.seconds(90, 250)
			}
		} else if len(out) > 0 && out[len(out)-1].is == notReady && l.one(3) {
			s.is, s.to = silent, at+l.seconds(90, 200)
		}
		if at = s.to; l.one(3) && s.is == alive {
			s.to = max(s.to, l.end)
			at = s.to
		}
		out = append(out, s)
	}
	return out
}

// together makes all nodes of some zones silent at about the same time.
func (l *timeline) together() {
	if !l.one(3) {
		return
	}
	at, to := l.seconds(70, 150), l.seconds(260, 400)
	which := l.IntN(4) // 3: all
	for _, name := range l.names {
		if which == 3 || l.zones[name] == string(rune('a'+which)) {
			from := at + l.seconds(0, 20)
			l.lives[name] = []span{{0, from, alive}, {from, to, silent}, {to, l.end, alive}}
		}
	}
}

// begin adds the initial objects.
func (l *timeline) begin(s store) {
	for _, name := range l.names {
		s.putNode(l.newNode(name, types.UID("uid-"+name), -time.Hour))
		s.putLease(lease(name, start.Add(l.skews[name]), start))
	}
	for _, p := range l.pods {
		s.putPod(p.DeepCopy())
	}
}

func (l *timeline) newNode(name string, uid types.UID, at time.Duration) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, CreationTimestamp: stamp(at),
		Labels: map[string]string{v1.LabelTopologyRegion: "r", v1.LabelTopologyZone: l.zones[name], v1.LabelOSStable: "linux"}}}
	for _, t := range []v1.NodeConditionType{v1.NodeReady, v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure} {
		status := v1.ConditionFalse
		if t == v1.NodeReady {
			status = v1.ConditionTrue
		}
		n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: t, Status: status, Reason: "KubeletReady",
			LastHeartbeatTime: stamp(at), LastTransitionTime: stamp(at)})
	}
	return n
}

// lease returns a Lease that the API server has stamped.
func lease(name string, renewed, stamped time.Time) *coordination.Lease {
	return &coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1.NamespaceNodeLease, Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, Time: &metav1.Time{Time: stamped.Truncate(time.Second)}}}},
		Spec: coordination.LeaseSpec{HolderIdentity: &name, RenewTime: &metav1.MicroTime{Time: renewed}},
	}
}

func (l *timeline) newPod(name, node string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: stamp(0)},
		Spec:       v1.PodSpec{NodeName: node, Tolerations: l.tolerations()},
		Status: v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue,
			LastTransitionTime: stamp(0)}}},
	}
}

func (l *timeline) tolerations() (out []v1.Toleration) {
	for _, key := range []string{v1.TaintNodeNotReady, v1.TaintNodeUnreachable, maintenance} {
		t := v1.Toleration{Key: key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
		switch l.IntN(6) {
		case 0:
			continue
		case 1:
		default:
			t.TolerationSeconds = new(int64(l.IntN(150)))
		}
		out = append(out, t)
	}
	if l.one(12) {
		out = append(out, v1.Toleration{Operator: v1.TolerationOpExists})
	}
	return out
}

// live makes a kubelet renew its lease and post its status.
func (l *timeline) live(name string) {
	skew := l.skews[name]
	back := l.end
	if l.one(25) {
		back = l.seconds(60, 440)
		l.note(clockBack, back, "Node/"+name)
	}
	clock := func(at time.Duration) time.Duration {
		if at >= back {
			return skew - time.Hour
		}
		return skew
	}
	for _, s := range l.lives[name] {
		if s.is == silent {
			continue
		}
		offset := l.seconds(0, 10)
		for at := s.from; at < min(s.to, l.end); at += postEvery {
			l.says(at, post(name, s.is == alive, at, clock(at)))
			l.statuses[name] = append(l.statuses[name], at)
		}
		if s.is == alive {
			l.says(s.from, postPods(name))
		}
		renews := func(at time.Duration) {
			if l.says(at, renew(name, at, clock(at))); at >= back {
				l.renewals[name] = append(l.renewals[name], at)
			} else {
				l.before[name] = append(l.before[name], at)
			}
		}
		renews(s.from)
		for at := s.from + offset; at < min(s.to, l.end); at += renewEvery {
			renews(at)
		}
	}
}

func renew(name string, at, skew time.Duration) func(store) {
	return func(s store) {
		if s.node(name) != nil {
			s.putLease(lease(name, start.Add(at+skew), start.Add(at)))
		}
	}
}

// post returns a kubelet's status update, with conditions in the time of its clock.
func post(name string, ready bool, at, skew time.Duration) func(store) {
	return func(s store) {
		n := s.node(name)
		if n == nil {
			return
		}
		for i := range n.Status.Conditions {
			c := &n.Status.Conditions[i]
			status := v1.ConditionFalse
			switch {
			case c.Type == v1.NodeReady && ready:
				status = v1.ConditionTrue
			case string(c.Type) == n.Annotations["pressed"]:
				status = v1.ConditionTrue
			}
			if c.LastHeartbeatTime = stamp(at + skew); c.Status != status {
				c.Status, c.Reason, c.LastTransitionTime = status, "Kubelet", c.LastHeartbeatTime
			}
		}
		s.putNode(n)
	}
}

// postPods returns the pod status updates of a kubelet that runs again.
func postPods(name string) func(store) {
	return func(s store) {
		if s.node(name) == nil {
			return
		}
		for _, p := range s.podsOf(name) {
			for i := range p.Status.Conditions {
				if c := &p.Status.Conditions[i]; c.Type == v1.PodReady {
					c.Status = v1.ConditionTrue
				}
			}
			s.putPod(p)
		}
	}
}

// is returns a kubelet's state at a time.
func (l *timeline) is(node string, at time.Duration) state {
	for _, s := range l.lives[node] {
		if at >= s.from && at < s.to {
			return s.is
		}
	}
	return alive
}

// unseen returns the interval in which upstream skips a node, alive or silent, because its clock was
// set back: its condition stays, and it counts in no zone. Both are 0 if upstream never skips it.
//
// Upstream remembers a Lease only if its time grows. A grace period after the last growth, it skips
// a node whose Lease has another version than the remembered one (NodeControllerLeaseCircuitBreaker).
// Upstream remembers the current Lease, whatever its time, when it starts, and one pass after it
// sees another heartbeat in the status: of the kubelet, or of a node made again. If that is before
// the first renewal since the clock was set back, upstream remembers the old Lease again.
func (l *timeline) unseen(name string) (from, to time.Duration) {
	first := slices.IndexFunc(l.renewals[name], func(at time.Duration) bool { return l.exists(name, at) })
	if first < 0 {
		return 0, 0
	}
	renewed, period := l.renewals[name][first]+happens, l.config.NodeMonitorPeriod
	from, to = l.pass(0), l.end
	for _, at := range l.before[name] {
		from = max(from, l.pass(at+happens))
	}
	// forget takes when upstream forgets the Lease, and when it remembers the current one.
	forget := func(at, until time.Duration) {
		if until < renewed {
			from = max(from, until)
		} else {
			to = min(to, at)
		}
	}
	for _, at := range l.statuses[name] {
		at = l.pass(at + happens)
		forget(at, at+period)
	}
	for _, t := range l.troubles {
		switch at := l.pass(t.at); {
		case t.what == restarted:
			forget(at, at)
		case t.what == remade && t.object == "Node/"+name:
			forget(at, at+period)
		}
	}
	from = max(from+l.config.NodeMonitorGracePeriod+period, l.pass(renewed))
	if from >= to {
		return 0, 0
	}
	return from, to
}

// pass returns when upstream first looks at the nodes from a time on.
func (l *timeline) pass(at time.Duration) time.Duration {
	first, period := step, l.config.NodeMonitorPeriod
	for _, t := range l.troubles {
		if t.what == restarted && t.at <= at {
			first = max(first, t.at+step)
		}
	}
	return first + max(0, at-first+period-1)/period*period
}

// exists reports whether a node has an object at a time.
func (l *timeline) exists(name string, at time.Duration) bool {
	last, exists := time.Duration(0), true
	for _, t := range l.troubles {
		if t.object == "Node/"+name && (t.what == removed || t.what == remade) && t.at <= at && t.at >= last {
			last, exists = t.at, t.what == remade
		}
	}
	return exists
}

// contacts returns when a node's kubelet was in contact, in order.
func (l *timeline) contacts(name string) (out []time.Duration) {
	for _, at := range slices.Concat(l.statuses[name], l.before[name], l.renewals[name]) {
		out = append(out, at+happens)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// changesAt returns the number of changes at a time: the film has only the state after the last.
func (l *timeline) changesAt(at time.Duration) (count int) {
	for _, c := range l.changes {
		if c.at == at {
			count++
		}
	}
	return count
}

// troubled reports whether objects had a trouble at an instant.
func (l *timeline) troubled(at time.Duration) bool {
	return slices.ContainsFunc(l.troubles, func(t trouble) bool { return t.what != restarted && t.at+happens == at })
}

// happened reports whether an object had a trouble between two times.
func (l *timeline) happened(what, object string, from, to time.Duration) bool {
	return slices.ContainsFunc(l.troubles, func(t trouble) bool {
		return t.what == what && t.object == object && t.at >= from && t.at <= to
	})
}

// begun reports whether the controllers were started between two times.
func (l *timeline) begun(from, to time.Duration) bool {
	return from <= 0 && to >= 0 || l.happened(restarted, "", from, to)
}

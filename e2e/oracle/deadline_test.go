package oracle

import (
	"maps"
	"math/bits"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// habits are behaviours of upstream's taint eviction that an improvement removes.
type habits int

const (
	anew      habits = 1 << iota // a taint swapped for the other counts as new
	anyPhase                     // finished or terminating pods are deleted, too
	fromNow                      // the period begins when a pod is processed with the taints, not at TimeAdded
	onceSet                      // a timer is never changed
	byName                       // timers are kept by pod name
	nodeless                     // timers outlive the node
	allHabits = 1<<iota - 1
)

// improvements names the improvement that removes a habit.
var improvements = map[habits]string{
	anew: bySwap, anyPhase: byFinished, fromNow: byAdded, onceSet: byChange, byName: byUID, nodeless: byNodeGone,
}

// present is a NoExecute taint, and the time since which it is present.
type present struct {
	v1.Taint
	since time.Duration
}

// other has the taint for which each of the two is swapped.
var other = map[string]string{v1.TaintNodeNotReady: v1.TaintNodeUnreachable, v1.TaintNodeUnreachable: v1.TaintNodeNotReady}

// never is later than all times of a timeline.
const never = 1000 * time.Hour

// model is a taint eviction with some of the habits. With none it equals the core, with all it
// equals upstream. The habits that lead from one to the other explain a difference. They are facts
// of pkg/controller/tainteviction, 1.37.2.
type model struct {
	*world
	habits
	timers map[string]time.Duration // deletion times, by namespace/name
	taints map[string][]present
	sights map[string]time.Duration // by node's UID and taint: first seen without TimeAdded
	swaps  map[string]time.Duration // by node's UID and taint: swapped for the other
	looks  map[string]time.Duration // by pod's UID and taint: first processed with each other
	gone   map[types.UID]time.Duration
	opens  time.Duration       // time of its first pass after a start
	nodes0 map[string]*v1.Node // the nodes before a change
	pods0  map[string]*v1.Pod
}

// predict plays a timeline's changes and returns the deletion times.
func predict(line *timeline, changes []change, h habits) map[types.UID]time.Duration {
	m := &model{
		world: newWorld(), habits: h, sights: map[string]time.Duration{}, swaps: map[string]time.Duration{}, gone: map[types.UID]time.Duration{},
	}
	line.begin(m)
	m.begin()
	m.step(0)
	perform(m.world, changes, line.end, m.begin, m.step, m.next)
	return m.gone
}

func (m *model) has(h habits) bool { return m.habits&h != 0 }

// begin resets all state at a start. Upstream checks every 100 ms whether its caches are filled
// (client-go, syncedPollPeriod), and starts then.
func (m *model) begin() {
	m.timers, m.taints, m.looks = map[string]time.Duration{}, map[string][]present{}, map[string]time.Duration{}
	m.nodes0, m.pods0 = map[string]*v1.Node{}, map[string]*v1.Pod{}
	if m.opens = m.now; m.has(fromNow) {
		m.opens += step
	}
}

// next returns when the next timer fires.
func (m *model) next() (at time.Time) {
	if m.now < m.opens {
		return start.Add(m.opens)
	}
	for _, fire := range m.timers {
		if at.IsZero() || start.Add(fire).Before(at) {
			at = start.Add(fire)
		}
	}
	return at
}

func (m *model) step(at time.Duration) {
	if m.now = at; at < m.opens {
		return
	}
	m.nodesChanged()
	m.podsChanged()
	m.nodes0, m.pods0 = maps.Clone(m.nodes), maps.Clone(m.pods)
	for key, fire := range m.timers {
		if fire > at {
			continue
		}
		if delete(m.timers, key); m.pods[key] != nil {
			m.gone[m.pods[key].UID] = at
			m.dropPod(key)
			delete(m.pods0, key)
		}
	}
}

func (m *model) nodesChanged() {
	for name := range m.nodes0 {
		if m.nodes[name] == nil {
			delete(m.taints, name)
			m.cancel(name, !m.has(nodeless))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		n, old := m.nodes[name], m.nodes0[name]
		if old != nil && old.UID == n.UID && equality.Semantic.DeepEqual(evicting(old), evicting(n)) {
			continue
		}
		m.taints[name] = m.present(n)
		m.cancel(name, len(m.taints[name]) == 0)
		for key, p := range m.pods {
			if p.Spec.NodeName == name && len(m.taints[name]) > 0 {
				m.judge(key, p)
			}
		}
	}
}

// cancel stops the timers of the pods on a node, if so is true.
func (m *model) cancel(node string, so bool) {
	maps.DeleteFunc(m.timers, func(key string, _ time.Duration) bool {
		return so && m.pods[key] != nil && m.pods[key].Spec.NodeName == node
	})
}

func evicting(n *v1.Node) []v1.Taint {
	return slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t v1.Taint) bool { return t.Effect != v1.TaintEffectNoExecute })
}

// present returns the NoExecute taints of a node. One without TimeAdded counts from its first
// sight.
func (m *model) present(n *v1.Node) (out []present) {
	there := map[string]bool{}
	for _, t := range evicting(n) {
		key := string(n.UID) + " " + t.Key
		if _, seen := m.sights[key]; !seen {
			m.sights[key] = m.now
			if _, was := m.sights[string(n.UID)+" "+other[t.Key]]; was {
				m.swaps[key] = m.now
			}
		}
		there[key] = true
		since := m.sights[key]
		if t.TimeAdded != nil {
			since = t.TimeAdded.Sub(start)
		}
		if at, swapped := m.swaps[key]; swapped && m.has(anew) {
			since = at
		}
		out = append(out, present{t, since})
	}
	for _, key := range []string{maintenance, v1.TaintNodeNotReady, v1.TaintNodeUnreachable} {
		if key = string(n.UID) + " " + key; !there[key] {
			delete(m.sights, key)
			delete(m.swaps, key)
		}
	}
	return out
}

func (m *model) podsChanged() {
	for key, old := range m.pods0 {
		if p := m.pods[key]; p == nil || p.UID != old.UID && !m.has(byName) {
			delete(m.timers, key)
		}
	}
	for key, p := range m.pods {
		old := m.pods0[key]
		if old == nil || old.UID != p.UID || old.Spec.NodeName != p.Spec.NodeName ||
			!equality.Semantic.DeepEqual(old.Spec.Tolerations, p.Spec.Tolerations) || leaves(old) != leaves(p) && !m.has(anyPhase) {
			m.judge(key, p)
		}
	}
}

func leaves(p *v1.Pod) bool { return p.DeletionTimestamp != nil || p.Status.Phase == v1.PodSucceeded }

// judge sets a pod's timer.
func (m *model) judge(key string, p *v1.Pod) {
	taints := m.taints[p.Spec.NodeName]
	if leaves(p) && !m.has(anyPhase) {
		delete(m.timers, key)
		return
	}
	if len(taints) == 0 {
		return
	}
	fire := never
	for _, t := range taints {
		i := slices.IndexFunc(p.Spec.Tolerations, func(o v1.Toleration) bool { return o.ToleratesTaint(klog.Logger{}, &t.Taint, false) })
		if i < 0 {
			m.timers[key] = m.now
			return
		}
		if seconds := p.Spec.Tolerations[i].TolerationSeconds; seconds != nil {
			fire = min(fire, m.base(p, t)+time.Duration(*seconds)*time.Second)
		}
	}
	_, set := m.timers[key]
	switch {
	case fire == never:
		delete(m.timers, key)
	case !set || !m.has(onceSet):
		m.timers[key] = max(fire, m.now)
	}
}

// base returns the start of a pod's period with a taint.
func (m *model) base(p *v1.Pod, t present) time.Duration {
	key := string(p.UID) + " " + t.Key
	if _, seen := m.looks[key]; !seen {
		m.looks[key] = m.now
	}
	switch {
	case m.has(fromNow) && m.has(onceSet):
		return m.now
	case m.has(fromNow):
		return m.looks[key]
	}
	return max(t.since, p.CreationTimestamp.Sub(start)) // a pod created later starts at its creation
}

// deletion is a pod with different deletion times.
type deletion struct {
	uid          types.UID
	ours, theirs time.Duration // 0: not deleted
	why          string        // empty: unexplained
	more         bool          // more than one habit explains it
}

// deletions returns the pods that the core and upstream's controller delete at different times,
// with the improvement that explains each: of the smallest set of habits that makes the core act
// like upstream, the first that has an effect alone.
func deletions(line *timeline, changes []change, ours, theirs map[types.UID]time.Duration) (out []deletion) {
	predicted := map[habits]map[types.UID]time.Duration{}
	as := func(h habits) map[types.UID]time.Duration {
		if predicted[h] == nil {
			predicted[h] = predict(line, changes, h)
		}
		return predicted[h]
	}
	all := maps.Clone(ours)
	maps.Copy(all, theirs)
	for _, uid := range slices.Sorted(maps.Keys(all)) {
		x, y := ours[uid], theirs[uid]
		if together(x, y, line.end) {
			continue
		}
		d := deletion{uid: uid, ours: x, theirs: y}
		var found habits
		for h := habits(1); h <= allHabits; h++ {
			if together(as(h)[uid], y, line.end) && (found == 0 || bits.OnesCount(uint(h)) < bits.OnesCount(uint(found))) {
				found = h
			}
		}
		d.more = bits.OnesCount(uint(found)) > 1
		first := found & -found
		for h := first; h != 0 && h <= allHabits; h <<= 1 {
			if found&h != 0 && !together(as(h)[uid], x, line.end) {
				first = h
				break
			}
		}
		if d.why = improvements[first]; d.why == "" && min(x, y) == 0 && line.troubled(max(x, y)) {
			d.why = byTimer // a deadline at the instant of a change that ends it: either may be first
		}
		out = append(out, d)
	}
	return out
}

// together reports whether two deletion times are equal, apart from TimeAdded's whole seconds and
// times after the end.
func together(x, y, end time.Duration) bool {
	const most = 1200 * time.Millisecond
	if x == 0 || y == 0 {
		return max(x, y) == 0 || max(x, y) > end-2*most
	}
	return (x - y).Abs() <= most
}

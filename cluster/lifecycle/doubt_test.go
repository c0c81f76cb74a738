package lifecycle

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// inZones distributes nodes over zones. sizes lists the nodes of the first ones, the last one has the
// rest.
func inZones(all map[string]*v1.Node, sizes ...int) {
	i, zone := 0, 0
	for n := range len(all) {
		for zone < len(sizes) && i == sizes[zone] {
			i, zone = 0, zone+1
		}
		i++
		all[fmt.Sprintf("n%03d", n)].Labels = map[string]string{v1.LabelTopologyRegion: "r", v1.LabelTopologyZone: fmt.Sprint("z", zone)}
	}
}

// beat posts a heartbeat of the nodes from, from+1, ..., to-1.
func beat(all map[string]*v1.Node, now time.Time, from, to int) {
	for i := from; i < to; i++ {
		n := all[fmt.Sprintf("n%03d", i)].DeepCopy()
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(now)}}
		all[n.Name] = n
	}
}

// doubtOf plays the nodes for a time, second by second, and returns how long the core was in doubt
// in each hour. renew posts the heartbeats of a second.
func doubtOf(all map[string]*v1.Node, period time.Duration, renew func(second int, now time.Time)) (perHour []time.Duration) {
	core := New(defaults())
	for at := time.Duration(0); at < period; at += time.Second {
		now := start.Add(at)
		renew(int(at/time.Second), now)
		out := core.Step(now, seen(all))
		for _, w := range out.Status {
			core.End(now, w.Node, w.UID, WriteStatus, true)
			n := all[w.Node].DeepCopy()
			n.Status.Conditions = w.Conditions
			all[w.Node] = n
		}
		for _, w := range out.Taints {
			core.End(now, w.Node, w.UID, WriteTaints, true)
		}
		if at%time.Hour == 0 {
			perHour = append(perHour, 0)
		}
		if out.Doubt != "" {
			perHour[len(perHour)-1] += time.Second
		}
	}
	return perHour
}

// Kubelets that always renew too late do not suspend the evictions of a cluster: small zones raise no
// doubt, and larger ones a limited number of times.
func TestLateKubeletsRaiseLimitedDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		sizes []int
		most  time.Duration // in an hour
	}{
		"two zones of one node":    {[]int{1, 1}, 0},
		"two zones of three nodes": {[]int{3, 3}, maxDoubts * doubtPeriod},
	} {
		all, late := nodes(40, 0), c.sizes[0]+c.sizes[1]
		inZones(all, c.sizes...)
		for hour, doubt := range doubtOf(all, 3*time.Hour, func(second int, now time.Time) {
			if second%52 == 0 {
				beat(all, now, 0, late)
			}
			if second%10 == 0 {
				beat(all, now, late, 40)
			}
		}) {
			if doubt > c.most || c.most > 0 && doubt < c.most/2 {
				t.Errorf("%s that renew every 52s: %v of doubt in hour %d, want at most %v", name, doubt, hour, c.most)
			}
		}
	}
}

// Two zones that fall silent together raise doubt also if one of their nodes has been dead for a
// long time.
func TestDeadNodeDoesNotPreventDoubt(t *testing.T) {
	all := nodes(12, 0)
	inZones(all, 4, 4)
	doubt := doubtOf(all, time.Hour, func(second int, now time.Time) {
		switch {
		case second%10 != 0:
		case second < 1200:
			beat(all, now, 1, 12) // n000 is dead
		default:
			beat(all, now, 8, 12)
		}
	})
	if doubt[0] != doubtPeriod {
		t.Errorf("%v of doubt after two zones fell silent, one with a dead node, want %v", doubt[0], doubtPeriod)
	}
}

// While all nodes of a cluster are silent, and for a while afterwards, the silence is in doubt, also
// in a single zone.
func TestSilenceOfAllNodesIsDoubt(t *testing.T) {
	all := nodes(5, 0)
	doubt := doubtOf(all, time.Hour, func(second int, now time.Time) {
		if second%10 == 0 && (second < 300 || second > 1500) {
			beat(all, now, 0, 5)
		}
	})
	// from 50s after the last heartbeat, at 290s, to 60s after the first one, at 1510s
	if want := (1510 - 341 + 60) * time.Second; (doubt[0] - want).Abs() > 2*time.Second {
		t.Errorf("%v of doubt, want %v", doubt[0], want)
	}
}

// While the silence of nodes is in doubt, their pods are not marked. The marks follow when the
// doubt ends. The pods that are new on a node whose kubelet reports NotReady are marked also then.
func TestDoubtDelaysMarks(t *testing.T) {
	for name, c := range map[string]struct {
		sizes []int
		back  time.Duration // when n008 to n011 report again; 2m: always
	}{"two zones": {[]int{4, 4}, 2 * time.Minute}, "all nodes": {nil, 5 * time.Minute}} {
		core, all, pods := New(defaults()), nodes(12, 0), map[string][]*v1.Pod{}
		inZones(all, c.sizes...)
		add := func(node, name string) {
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID(name)}}
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
			pods[node] = append(pods[node], p)
		}
		add("n000", "p")
		marked, ended := map[string]time.Duration{}, time.Duration(0)
		for at := time.Duration(0); at < 10*time.Minute; at += time.Second {
			now, from := start.Add(at), 12
			if at < 2*time.Minute {
				from = 0
			} else if at >= c.back {
				from = 8
			}
			if at%(10*time.Second) == 0 && from < 12 {
				beat(all, now, from, 12)
				all["n011"].Status.Conditions[0].Status = v1.ConditionFalse
			}
			if at == 3*time.Minute {
				add("n000", "later")
				add("n011", "other")
			}
			s := seen(all)
			s.Pods = func(node string) []*v1.Pod { return pods[node] }
			out := core.Step(now, s)
			for _, w := range out.Status {
				core.End(now, w.Node, w.UID, WriteStatus, true)
				n := all[w.Node].DeepCopy()
				n.Status.Conditions = w.Conditions
				all[w.Node] = n
			}
			for _, m := range out.Marks {
				marked[m.Name] = at
				core.EndMark(now, m, true)
			}
			if out.Doubt != "" {
				ended = at + time.Second
			}
		}
		if ended < 3*time.Minute || marked["p"] != ended || marked["later"] != ended {
			t.Errorf("%s: pods marked at %v, want p and later at the end of the doubt, %v", name, marked, ended)
		}
		if name == "two zones" && marked["other"] != 3*time.Minute {
			t.Errorf("%s: pods marked at %v, want the one on the NotReady node at 3m", name, marked)
		}
	}
}

// Doubt begins and ends at its limits: a read older than 10s, zones that fall silent within one grace
// period and have a tenth of all nodes, at most ten times an hour. Nodes whose kubelets report
// NotReady are not silent, and a cluster of one node has no doubt.
func TestLimitsOfDoubt(t *testing.T) {
	apart := func(size int, later time.Duration) func(Config) string {
		return func(config Config) string {
			core, all := New(config), nodes(size, 0)
			inZones(all, 1, 1)
			core.Step(start, seen(all))
			at := start.Add(later)
			beat(all, at, 1, size)
			core.Step(at, seen(all))
			beat(all, at.Add(45*time.Second), 2, size)
			return core.Step(at.Add(51*time.Second), seen(all)).Doubt
		}
	}
	read := func(age time.Duration) func(Config) string {
		return func(config Config) string {
			s := seen(nodes(2, 0))
			s.Read = start.Add(-age)
			out := New(config).Step(start, s)
			if !out.Next.After(start) {
				t.Errorf("read %v ago: next step %v after this one, want later", age, out.Next.Sub(start))
			}
			return out.Doubt
		}
	}
	silent := func(size int) func(Config) string {
		return func(config Config) string {
			core, all := New(config), nodes(size, 0)
			core.Step(start, seen(all))
			return core.Step(start.Add(51*time.Second), seen(all)).Doubt
		}
	}
	for name, c := range map[string]struct {
		doubt func(Config) string
		want  bool
	}{
		"read 10s ago": {read(staleAfter), false}, "read over 10s ago": {read(staleAfter + 1), true},
		"zones one grace period apart": {apart(20, 50*time.Second), true}, "zones further apart": {apart(20, 51*time.Second), false},
		"a tenth of all nodes": {apart(20, time.Second), true}, "fewer nodes": {apart(21, time.Second), false},
		"one silent node": {silent(1), false}, "two silent nodes": {silent(2), true},
		"NotReady nodes": {func(config Config) string { return New(config).Step(start, seen(nodes(0, 3))).Doubt }, false},
	} {
		config := defaults()
		if got := c.doubt(config); (got != "") != c.want {
			t.Errorf("%s: doubt %q, want doubt: %t", name, got, c.want)
		}
		if config.Doubt = false; c.doubt(config) != "" {
			t.Errorf("%s: doubt although it is off", name)
		}
	}
	for since, want := range map[time.Duration]bool{doubtWindow: true, doubtWindow - 1: false} {
		core, all := New(defaults()), nodes(20, 0)
		inZones(all, 1, 1)
		core.Step(start, seen(all))
		now := start.Add(51 * time.Second)
		for range maxDoubts {
			core.doubt.raised = append(core.doubt.raised, now.Add(-since))
		}
		beat(all, now, 2, 20)
		if got := core.Step(now, seen(all)).Doubt; (got != "") != want {
			t.Errorf("%d doubts %v ago: doubt %q, want doubt: %t", maxDoubts, since, got, want)
		}
	}
}

// The comparison of many silent zones takes little time.
func TestManySilentZones(t *testing.T) {
	const count = 10_000
	all := nodes(count, 0)
	for name, n := range all {
		n.Labels = map[string]string{v1.LabelTopologyRegion: "r", v1.LabelTopologyZone: name}
	}
	core := New(defaults())
	core.Step(start, seen(all))
	beat(all, start.Add(50*time.Second), 0, 1)
	began := time.Now()
	out := core.Step(start.Add(51*time.Second), seen(all))
	if took := time.Since(began); len(out.Status) != count-1 || out.Doubt == "" || took > 3*time.Second {
		t.Errorf("%d nodes of %d zones are silent, doubt %q, after %v, want all but one, doubt, and at most 3s", len(out.Status), count, out.Doubt, took)
	}
}

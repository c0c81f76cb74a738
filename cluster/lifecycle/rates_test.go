package lifecycle

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"slices"
	"syscall"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// sea is a cluster of nodes in three zones, each with ten pods, in virtual time: its kubelets renew every ten seconds, spread over them, and
// its API does at once what it is asked to.
type sea struct {
	core  *Core
	now   time.Time
	begun time.Time
	seen  Seen
	names []string
	dead  map[string]bool
	came  map[string]time.Time
	pods  map[string][]*v1.Pod

	tainted map[string]time.Time // those that have a NoExecute taint
	given   int
	steps   int
	spent   time.Duration
	longest time.Duration
	bytes   uint64
}

const seaRenews = 10 * time.Second

func newSea(nodes int) *sea {
	s := &sea{
		core: New(defaults()), now: start, begun: start, dead: map[string]bool{}, came: map[string]time.Time{}, pods: map[string][]*v1.Pod{},
		tainted: map[string]time.Time{},
		seen:    Seen{Nodes: map[string]*v1.Node{}, Leases: map[string]*coordination.Lease{}},
	}
	s.seen.Pods = func(node string) []*v1.Pod { return s.pods[node] }
	s.seen.Came = func(node string) (beat, lease time.Time) { return start, s.came[node] }
	for i := range nodes {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%04d", i), UID: types.UID(fmt.Sprint("u", i)), Labels: map[string]string{
			v1.LabelTopologyRegion: "r", v1.LabelTopologyZone: fmt.Sprint("z", i%3),
		}}}
		for _, t := range []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure, v1.NodeReady} {
			c := v1.NodeCondition{Type: t, Status: v1.ConditionFalse, LastHeartbeatTime: metav1.Time{Time: start}}
			if t == v1.NodeReady {
				c.Status = v1.ConditionTrue
			}
			n.Status.Conditions = append(n.Status.Conditions, c)
		}
		s.seen.Nodes[n.Name], s.names = n, append(s.names, n.Name)
		for j := range 10 {
			s.pods[n.Name] = append(s.pods[n.Name], &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(n.Name, "-", j), UID: types.UID(fmt.Sprint("p", i, "-", j))},
				Status:     v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
			})
		}
	}
	return s
}

// phase is when in its period the ith node renews.
func (s *sea) phase(i int) time.Duration {
	return time.Duration(i/10%100) * seaRenews / 100
}

// beat has those that live have renewed.
func (s *sea) beat() {
	s.seen.Read = s.now
	for i, name := range s.names {
		first := s.begun.Add(s.phase(i))
		if s.dead[name] || s.now.Before(first) {
			continue
		}
		if last := first.Add(s.now.Sub(first) / seaRenews * seaRenews); last.After(s.came[name]) {
			s.came[name] = last
			s.seen.Leases[name] = &coordination.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: last}}}},
				Spec:       coordination.LeaseSpec{RenewTime: &metav1.MicroTime{Time: last}},
			}
		}
	}
}

// allocated are the bytes that were ever allocated.
func allocated() uint64 {
	one := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(one)
	return one[0].Value.Uint64()
}

// threadTime is what this thread has had of the processors: others may have them meanwhile.
func threadTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(1, &u); err != nil { // RUSAGE_THREAD
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// pass takes steps until a time, each when the one before wants it or right after what it has written.
func (s *sea) pass(b *testing.B, until time.Time) {
	for s.now.Before(until) {
		s.beat()
		bytes, began := allocated(), threadTime(b)
		out := s.core.Step(s.now, s.seen)
		took := threadTime(b) - began
		s.bytes += allocated() - bytes
		s.spent += took
		s.longest = max(s.longest, took)
		s.steps++
		next := until
		if !out.Next.IsZero() && out.Next.Before(next) {
			next = out.Next
		}
		if soon := s.now.Add(20 * time.Millisecond); s.write(b, out) && soon.Before(next) {
			next = soon
		}
		s.now = next
	}
}

// write does what is asked for.
func (s *sea) write(b *testing.B, out *Actions) (wrote bool) {
	change := func(name string, do func(*v1.Node)) {
		n := s.seen.Nodes[name].DeepCopy()
		do(n)
		s.seen.Nodes[name], wrote = n, true
	}
	for _, w := range out.Status {
		change(w.Node, func(n *v1.Node) {
			for _, c := range w.Conditions {
				i := slices.IndexFunc(n.Status.Conditions, func(o v1.NodeCondition) bool { return o.Type == c.Type })
				n.Status.Conditions[i] = c
			}
		})
		s.core.End(s.now, w.Node, w.UID, WriteStatus, true)
	}
	for _, w := range out.Taints {
		if w.Evicted {
			if s.given++; !s.dead[w.Node] {
				b.Fatalf("%s lives and is tainted", w.Node)
			}
			s.tainted[w.Node] = s.now
		}
		change(w.Node, func(n *v1.Node) {
			for _, t := range w.Remove {
				n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(o v1.Taint) bool { return o.Key == t.Key && o.Effect == t.Effect })
				if t.Effect == v1.TaintEffectNoExecute {
					delete(s.tainted, w.Node)
				}
			}
			n.Spec.Taints = append(n.Spec.Taints, w.Add...)
		})
		s.core.End(s.now, w.Node, w.UID, WriteTaints, true)
	}
	for _, m := range out.Marks {
		i := slices.IndexFunc(s.pods[m.Node], func(p *v1.Pod) bool { return p.UID == m.UID })
		p := s.pods[m.Node][i].DeepCopy()
		p.Status.Conditions[0].Status = v1.ConditionFalse
		s.pods[m.Node] = slices.Clone(s.pods[m.Node])
		s.pods[m.Node][i], wrote = p, true
		s.core.EndMark(s.now, m, true)
	}
	return wrote
}

// allowed is when the rates allow the nth node of a zone its taint, nodes being that many whose silence is due then, sorted: by the rates
// that the states of the zone have by what was due, a limiter that is swapped while it is empty being empty.
func allowed(due []time.Time, nodes int, c Config) (out []time.Time) {
	rate, ready := c.NodeEvictionRate, due[0]
	of := func(silent int) float64 {
		if share := float32(silent) / float32(nodes); silent < nodes && silent > 2 && share >= c.UnhealthyZoneThreshold {
			return c.SecondaryNodeEvictionRate
		}
		return c.NodeEvictionRate
	}
	every := func() time.Duration { return time.Duration(float64(time.Second) / rate) }
	given := func(until time.Time, silent int) {
		for len(out) < silent && ready.Before(until) {
			out = append(out, ready)
			ready = ready.Add(every())
		}
	}
	for i, at := range due {
		given(at, i)
		if ready.Before(at) {
			ready = at
		}
		if now := of(i + 1); now != rate {
			had := !at.Before(ready)
			if rate = now; had {
				ready = at
			} else {
				ready = at.Add(every())
			}
		}
	}
	given(due[len(due)-1].AddDate(1, 0, 0), len(due))
	return out
}

// BenchmarkDefaultRates lets nodes die of 5,000, in virtual time at the default rates: when the nth of a zone gets its NoExecute taint, beside
// when the rates allow it, and what a step costs.
func BenchmarkDefaultRates(b *testing.B) {
	const nodes = 5000
	for what, dies := range map[string]func(i int) bool{
		"a-tenth": func(i int) bool { return i%10 == 0 }, "a-zone": func(i int) bool { return i%3 == 0 }, "all": func(int) bool { return true },
	} {
		b.Run(what, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for range b.N {
				s := newSea(nodes)
				s.pass(b, start.Add(time.Minute))
				rest := *s
				due, size, dead := map[string][]time.Time{}, map[string]int{}, 0
				for i, name := range s.names {
					zone := ZoneOf(s.seen.Nodes[name])
					if size[zone]++; dies(i) {
						dead++
						s.dead[name] = true
						due[zone] = append(due[zone], s.came[name].Add(defaults().NodeMonitorGracePeriod))
					}
				}
				longest := time.Duration(0)
				for _, all := range due {
					slices.SortFunc(all, time.Time.Compare)
					longest = max(longest, time.Duration(len(all)+2)*10*time.Second)
				}
				if what == "all" {
					longest = 10 * time.Minute
				}
				s.pass(b, s.now.Add(2*time.Minute+longest))
				b.Logf("%d nodes die: %d NoExecute taints are given, %d are there in the end", dead, s.given, len(s.tainted))
				for zone, all := range due {
					if what != "all" {
						s.compare(b, zone, all, size[zone])
					}
				}
				steps := s.steps - rest.steps
				b.Logf("%d steps, %v each, the longest %v, %d KiB each", steps, ((s.spent - rest.spent) / time.Duration(steps)).Round(time.Microsecond),
					s.longest.Round(time.Microsecond), (s.bytes-rest.bytes)/uint64(steps)/1024)
				b.ReportMetric((s.spent-rest.spent).Seconds()*1000/float64(steps), "ms/step")
				b.ReportMetric(float64((s.bytes-rest.bytes)/uint64(steps)), "B/step")
			}
		})
	}
}

// compare prints when the nth node of a zone was tainted.
func (s *sea) compare(b *testing.B, zone string, due []time.Time, size int) {
	var had []time.Time
	for name, at := range s.tainted {
		if ZoneOf(s.seen.Nodes[name]) == zone {
			had = append(had, at)
		}
	}
	slices.SortFunc(had, time.Time.Compare)
	if len(had) != len(due) {
		b.Fatalf("%s: %d of %d are tainted", zone, len(had), len(due))
	}
	want, worst := allowed(due, size, defaults()), time.Duration(0)
	for i := range had {
		worst = max(worst, had[i].Sub(want[i]).Abs())
	}
	for _, n := range []int{1, 2, 10, 100, len(had)} {
		if n > len(had) {
			continue
		}
		b.Logf("%s: node %4d is tainted %10.2f s after the first was due, allowed %10.2f s", zone, n, had[n-1].Sub(due[0]).Seconds(),
			want[n-1].Sub(due[0]).Seconds())
	}
	b.Logf("%s: at most %v from when it is allowed", zone, worst)
}

// Nodes whose taints cannot be written, as a webhook may forbid it, do not keep those that failed after them from theirs.
func TestNodesThatCannotBeTaintedKeepNobodyWaiting(t *testing.T) {
	c, all := New(defaults()), nodes(20, 8)
	forbidden := map[string]bool{"n020": true, "n021": true, "n022": true, "n023": true, "n024": true}
	for name := range forbidden {
		all[name].Spec.Taints = []v1.Taint{{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoSchedule}}
	}
	now, tainted := start, map[string]bool{}
	for now.Before(start.Add(10 * time.Minute)) {
		out := c.Step(now, seen(all))
		for _, w := range out.Taints {
			ok := !forbidden[w.Node]
			if c.End(now, w.Node, w.UID, WriteTaints, ok); !ok {
				continue
			}
			n := all[w.Node].DeepCopy()
			n.Spec.Taints = append(n.Spec.Taints, w.Add...)
			all[w.Node] = n
			tainted[w.Node] = tainted[w.Node] || w.Evicted
		}
		next := now.Add(5 * time.Second)
		if !out.Next.IsZero() && out.Next.Before(next) {
			next = out.Next
		}
		now = next
		for _, n := range all {
			n.Status.Conditions[0].LastHeartbeatTime = metav1.Time{Time: now}
		}
	}
	for _, name := range []string{"n025", "n026", "n027"} {
		if !tainted[name] {
			t.Errorf("%s has no NoExecute taint after ten minutes", name)
		}
	}
}

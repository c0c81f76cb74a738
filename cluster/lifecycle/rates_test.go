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

// simulation is a cluster in virtual time with nodes in three zones and ten pods on each. Kubelets
// renew every ten seconds, at different times. Writes succeed immediately.
type simulation struct {
	core      *Core
	now       time.Time
	startedAt time.Time
	seen      Seen
	names     []string
	dead      map[string]bool
	renewedAt map[string]time.Time
	pods      map[string][]*v1.Pod

	tainted     map[string]time.Time // nodes with a NoExecute taint
	taintsGiven int
	steps       int
	spent       time.Duration
	longest     time.Duration
	bytes       uint64
}

const renewPeriod = 10 * time.Second

func newSimulation(nodes int) *simulation {
	s := &simulation{
		core: New(defaults()), now: start, startedAt: start, dead: map[string]bool{}, renewedAt: map[string]time.Time{}, pods: map[string][]*v1.Pod{},
		tainted: map[string]time.Time{},
		seen:    Seen{Nodes: map[string]*v1.Node{}, Leases: map[string]*coordination.Lease{}},
	}
	s.seen.Pods = func(node string) []*v1.Pod { return s.pods[node] }
	s.seen.Arrivals = func(node string) (beat, lease time.Time) { return start, s.renewedAt[node] }
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

// phase returns the offset of the ith node's renewals in the period.
func (s *simulation) phase(i int) time.Duration {
	return time.Duration(i/10%100) * renewPeriod / 100
}

// renewLeases renews the Leases of the nodes that are alive.
func (s *simulation) renewLeases() {
	s.seen.Read = s.now
	for i, name := range s.names {
		first := s.startedAt.Add(s.phase(i))
		if s.dead[name] || s.now.Before(first) {
			continue
		}
		if last := first.Add(s.now.Sub(first) / renewPeriod * renewPeriod); last.After(s.renewedAt[name]) {
			s.renewedAt[name] = last
			s.seen.Leases[name] = &coordination.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: last}}}},
				Spec:       coordination.LeaseSpec{RenewTime: &metav1.MicroTime{Time: last}},
			}
		}
	}
}

// allocated returns the total number of bytes allocated.
func allocated() uint64 {
	one := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(one)
	return one[0].Value.Uint64()
}

// threadTime returns the CPU time of this thread.
func threadTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(1, &u); err != nil { // RUSAGE_THREAD
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// run takes steps until a time: each when the last one requested it, or right after its writes.
func (s *simulation) run(b *testing.B, until time.Time) {
	for s.now.Before(until) {
		s.renewLeases()
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

// write carries out the actions.
func (s *simulation) write(b *testing.B, out *Actions) (wrote bool) {
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
			if s.taintsGiven++; !s.dead[w.Node] {
				b.Fatalf("node %s is alive and tainted", w.Node)
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

// allowed returns the times at which the rates allow the NoExecute taints of a zone. due holds the
// sorted times at which its nodes become silent, of the given number of nodes. Each change of the
// zone's state changes the rate; a limiter that is empty then stays empty.
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

// BenchmarkDefaultRates simulates the death of some of 5,000 nodes at the default rates. It
// compares the time of each NoExecute taint with the time allowed by the rates, and measures the
// cost of a step.
func BenchmarkDefaultRates(b *testing.B) {
	const nodes = 5000
	for what, dies := range map[string]func(i int) bool{
		"a-tenth": func(i int) bool { return i%10 == 0 }, "a-zone": func(i int) bool { return i%3 == 0 }, "all": func(int) bool { return true },
	} {
		b.Run(what, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for range b.N {
				s := newSimulation(nodes)
				s.run(b, start.Add(time.Minute))
				warmup := *s
				due, size, dead := map[string][]time.Time{}, map[string]int{}, 0
				for i, name := range s.names {
					zone := ZoneOf(s.seen.Nodes[name])
					if size[zone]++; dies(i) {
						dead++
						s.dead[name] = true
						due[zone] = append(due[zone], s.renewedAt[name].Add(defaults().NodeMonitorGracePeriod))
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
				s.run(b, s.now.Add(2*time.Minute+longest))
				b.Logf("%d nodes die: %d NoExecute taints added, %d left at the end", dead, s.taintsGiven, len(s.tainted))
				for zone, all := range due {
					if what != "all" {
						s.compare(b, zone, all, size[zone])
					}
				}
				steps := s.steps - warmup.steps
				b.Logf("%d steps, %v each, the longest %v, %d KiB each", steps, ((s.spent - warmup.spent) / time.Duration(steps)).Round(time.Microsecond),
					s.longest.Round(time.Microsecond), (s.bytes-warmup.bytes)/uint64(steps)/1024)
				b.ReportMetric((s.spent-warmup.spent).Seconds()*1000/float64(steps), "ms/step")
				b.ReportMetric(float64((s.bytes-warmup.bytes)/uint64(steps)), "B/step")
			}
		})
	}
}

// compare logs the times of the NoExecute taints of a zone.
func (s *simulation) compare(b *testing.B, zone string, due []time.Time, size int) {
	var had []time.Time
	for name, at := range s.tainted {
		if ZoneOf(s.seen.Nodes[name]) == zone {
			had = append(had, at)
		}
	}
	slices.SortFunc(had, time.Time.Compare)
	if len(had) != len(due) {
		b.Fatalf("zone %s: %d nodes are tainted, want %d", zone, len(had), len(due))
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
	b.Logf("%s: taints at most %v from the allowed time", zone, worst)
}

// Nodes with taint writes that always fail, for example because of a webhook, do not delay the
// taints of other nodes.
func TestFailingNodesDoNotBlockOthers(t *testing.T) {
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
			t.Errorf("node %s has no NoExecute taint after ten minutes", name)
		}
	}
}

// A silent node whose conditions cannot be written now takes no token: a node that falls silent later
// is tainted before it.
func TestNodeThatBacksOffTakesNoToken(t *testing.T) {
	c, all := New(defaults()), nodes(4, 0)
	c.Step(start, seen(all))
	for range 8 {
		c.End(start.Add(40*time.Second), "n000", all["n000"].UID, WriteStatus, false) // for 30s
	}
	tainted := map[string]time.Duration{}
	for at := 5 * time.Second; at <= time.Minute; at += time.Second {
		if now := start.Add(at); at == 5*time.Second {
			beat(all, now, 1, 4)
		} else if at%(10*time.Second) == 0 {
			beat(all, now, 2, 4)
		}
		for _, w := range c.Step(start.Add(at), seen(all)).Taints {
			if w.Evicted {
				tainted[w.Node] = at
			}
		}
	}
	if want := 56 * time.Second; len(tainted) != 1 || tainted["n001"] != want {
		t.Errorf("nodes tainted after %v, want n001 only, after %v", tainted, want)
	}
}

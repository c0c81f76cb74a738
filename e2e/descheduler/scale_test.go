package descheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/deschedule"
)

// largeCluster returns so many nodes in three zones, with thirty pods each. The owners have thirty
// pods; some spread, some use anti-affinity, some select a zone. One node in five is fuller than
// the others, one in five hundred has a taint that its pods do not tolerate, and one pod in a
// thousand restarted too often.
func largeCluster(nodes int) *deschedule.Snapshot {
	r := rand.New(rand.NewPCG(5, uint64(nodes)))
	s := &deschedule.Snapshot{}
	for i := range nodes {
		name := fmt.Sprintf("n%05d", i)
		list := v1.ResourceList{
			v1.ResourceCPU:    *resource.NewMilliQuantity(16000, resource.DecimalSI),
			v1.ResourceMemory: *resource.NewQuantity(64<<30+int64(i)<<10, resource.BinarySI),
			v1.ResourcePods:   *resource.NewQuantity(110, resource.DecimalSI),
		}
		n := &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{hostname: name, zone: string(rune('a' + i%3))}},
			Status: v1.NodeStatus{Capacity: list, Allocatable: list,
				Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}},
		}
		if i%500 == 7 {
			n.Spec.Taints = []v1.Taint{{Key: "t", Value: "v", Effect: v1.TaintEffectNoSchedule}}
		}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range nodes * 30 {
		owner := i / 30
		on := i % nodes
		if r.IntN(10) == 0 {
			on = r.IntN(nodes) / 5 * 5
		}
		s.Pods = append(s.Pods, largePod(r, i, owner, s.Nodes[on].Name))
	}
	return s
}

func largePod(r *rand.Rand, i, owner int, on string) *v1.Pod {
	name := fmt.Sprintf("o%d", owner)
	namespace := fmt.Sprintf("space%d", owner%50)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	age := metav1.NewTime(now.Add(-time.Duration(r.IntN(14*24)) * time.Hour))
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("p%06d", i), UID: types.UID(fmt.Sprint("uid-", i)),
			Labels: map[string]string{"app": name}, CreationTimestamp: age,
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: name, UID: types.UID("uid-" + name)}}},
		Spec: v1.PodSpec{NodeName: on, Priority: new(int32(r.IntN(5) * 100)), Containers: []v1.Container{{Name: "c", Image: "image",
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
				v1.ResourceCPU:    *resource.NewMilliQuantity(int64(100+100*r.IntN(4)), resource.DecimalSI),
				v1.ResourceMemory: *resource.NewQuantity(int64(1+r.IntN(3))<<28, resource.BinarySI)}}}}},
		Status: v1.PodStatus{Phase: v1.PodRunning, QOSClass: v1.PodQOSBurstable, StartTime: &age,
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", RestartCount: int32(r.IntN(1000))}}},
	}
	switch owner % 20 {
	case 0, 1:
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: zone, WhenUnsatisfiable: v1.DoNotSchedule,
			LabelSelector: selector}}
	case 2:
		affinity(p).PodAntiAffinity = &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
			LabelSelector: selector, TopologyKey: hostname}}}
	case 3:
		zones := []string{"a", "b", "c"}
		if owner%200 == 3 {
			zones = zones[:2]
		}
		required(p, v1.NodeSelectorRequirement{Key: zone, Operator: v1.NodeSelectorOpIn, Values: zones})
	}
	return p
}

// largePolicy returns a policy with all strategies that can be combined, with limits for a cluster
// of that size.
func largePolicy() *deschedule.Policy {
	p := &deschedule.Policy{TypeMeta: metav1.TypeMeta{APIVersion: deschedule.APIVersion, Kind: deschedule.Kind},
		MaxNoOfPodsToEvictPerNode: new(uint(5)), MaxNoOfPodsToEvictTotal: new(uint(2000))}
	profile := deschedule.Profile{Name: "p", PluginConfig: []deschedule.PluginConfig{{Name: deschedule.DefaultEvictor,
		Args: &deschedule.DefaultEvictorArgs{NodeFit: true}}}}
	profile.Enable(deschedule.TooManyRestarts, &deschedule.TooManyRestartsArgs{PodRestartThreshold: 999})
	profile.Enable(deschedule.RemoveFailedPods, &deschedule.RemoveFailedPodsArgs{})
	profile.Enable(deschedule.NodeTaints, &deschedule.NodeTaintsArgs{})
	profile.Enable(deschedule.NodeAffinity, &deschedule.NodeAffinityArgs{NodeAffinityType: []string{deschedule.RequiredAffinity}})
	profile.Enable(deschedule.InterPodAntiAffinity, &deschedule.AntiAffinityArgs{})
	profile.Enable(deschedule.RemoveDuplicates, &deschedule.RemoveDuplicatesArgs{})
	profile.Enable(deschedule.LowNodeUtilization, &deschedule.LowNodeUtilizationArgs{
		Thresholds:       deschedule.Thresholds{v1.ResourceCPU: 45, v1.ResourceMemory: 45, v1.ResourcePods: 45},
		TargetThresholds: deschedule.Thresholds{v1.ResourceCPU: 60, v1.ResourceMemory: 60, v1.ResourcePods: 60}})
	profile.Enable(deschedule.TopologySpreadConstraint, &deschedule.SpreadArgs{})
	p.Profiles = []deschedule.Profile{profile}
	return p
}

// measured has the cost of one plan, or of one cycle.
type measured struct {
	Seconds, CPU float64 // wall time, CPU time of all threads
	Extra, Whole float64 // MiB of the heap's peak: beyond its size before, and in total
	Allocated    float64 // MiB
	Evictions    int
}

// measure runs a function and samples the heap continuously.
func measure(run func() int) (m measured) {
	const objects, allocated = "/memory/classes/heap/objects:bytes", "/gc/heap/allocs:bytes"
	gauge := func(name string) float64 {
		s := []metrics.Sample{{Name: name}}
		metrics.Read(s)
		return float64(s[0].Value.Uint64()) / (1 << 20)
	}
	runtime.GC()
	runtime.GC()
	before, was := gauge(objects), gauge(allocated)
	peak := before
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			peak = max(peak, gauge(objects))
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	began, cpu := time.Now(), cpuSeconds()
	m.Evictions = run()
	m.Seconds, m.CPU = time.Since(began).Seconds(), cpuSeconds()-cpu
	close(done)
	<-ended
	m.Extra, m.Whole, m.Allocated = peak-before, peak, gauge(allocated)-was
	return m
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// utilizationPolicy returns a policy with LowNodeUtilization alone, whose moves cost most: each is
// scored as the scheduler would.
func utilizationPolicy() *deschedule.Policy {
	p := largePolicy()
	profile := &p.Profiles[0]
	profile.Plugins.Deschedule.Enabled = nil
	profile.Plugins.Balance.Enabled = []string{deschedule.LowNodeUtilization}
	return p
}

// planSide measures one plan by a policy.
func planSide(of func() *deschedule.Policy) func(testing.TB, *deschedule.Snapshot) measured {
	return func(t testing.TB, s *deschedule.Snapshot) measured {
		policy, _ := read(t, of())
		return measure(func() int {
			result, err := deschedule.Plan(policy, s, now)
			if err != nil {
				t.Fatal(err)
			}
			return len(result.Evictions)
		})
	}
}

// sides are the measured programs.
var sides = map[string]func(testing.TB, *deschedule.Snapshot) measured{
	"plan":             planSide(largePolicy),
	"plan-utilization": planSide(utilizationPolicy),
	"descheduler": func(t testing.TB, s *deschedule.Snapshot) measured {
		_, policy := read(t, largePolicy())
		c, err := newCycle(policy, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.asIs = true
		steps, err := c.steps()
		if err != nil {
			t.Fatal(err)
		}
		c.fill(s)
		nodes, err := c.nodes(s)
		if err != nil {
			t.Fatal(err)
		}
		return measure(func() int {
			for _, step := range steps {
				if err := step.run(context.Background(), nodes); err != nil {
					t.Fatal(err)
				}
			}
			return len(c.out)
		})
	},
}

// TestOneSide runs JETTISON_SIDE on JETTISON_NODES nodes in a separate process, for BenchmarkScale.
func TestOneSide(t *testing.T) {
	side, ok := sides[os.Getenv("JETTISON_SIDE")]
	if !ok {
		t.Skip("runs only as a process of BenchmarkScale")
	}
	nodes := 0
	if _, err := fmt.Sscan(os.Getenv("JETTISON_NODES"), &nodes); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(side(t, largeCluster(nodes)))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\nmeasured %s\n", text)
}

// BenchmarkScale measures time and memory of one plan, and of one cycle of the descheduler over the
// same objects, each in a separate process. The objects and the descheduler's caches exist before,
// and count for neither. MiB-more is the heap at its peak, garbage included: with Go's GOGC of 100
// a program that allocates much has up to twice the memory of its live objects.
func BenchmarkScale(b *testing.B) {
	for _, nodes := range []int{100, 500, 1000, 2000, 5000} {
		for _, side := range []string{"plan", "plan-utilization", "descheduler"} {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, side), func(b *testing.B) {
				for b.Loop() {
					alone(b, side, nodes)
				}
			})
		}
	}
}

func alone(b *testing.B, side string, nodes int) {
	self := exec.CommandContext(b.Context(), os.Args[0], "-test.run", "^TestOneSide$", "-test.timeout", "30m")
	self.Env = append(os.Environ(), "JETTISON_SIDE="+side, fmt.Sprint("JETTISON_NODES=", nodes))
	self.Stderr = os.Stderr
	out, err := self.Output()
	if err != nil {
		b.Fatalf("one side of the comparison failed: %v\n%s", err, out)
	}
	_, line, ok := bytes.Cut(out, []byte("\nmeasured "))
	line, _, _ = bytes.Cut(line, []byte("\n"))
	var m measured
	if err := json.Unmarshal(line, &m); !ok || err != nil {
		b.Fatalf("parse the output of one side: %v\n%s", err, out)
	}
	b.ReportMetric(m.Seconds, "s")
	b.ReportMetric(m.CPU, "cpu-s")
	b.ReportMetric(m.Extra, "MiB-more")
	b.ReportMetric(m.Whole, "MiB-whole")
	b.ReportMetric(m.Allocated, "MiB-allocated")
	b.ReportMetric(float64(m.Evictions), "evictions")
}

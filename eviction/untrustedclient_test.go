package eviction

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// lie is a look at a node that is short of memory: a leaker, and an innocent pod that uses a tenth
// of it. change turns the leaker's honest object into that of a client, and the leaker into what
// the kernel and the runtime report.
type lie struct {
	name   string
	change func(leaker *stats.PodStats, object *v1.Pod)
	// victim is the name of the evicted pod: leaker, innocent, or none.
	victim string
	static bool // the object is from a manifest, not from a client
}

func (l *lie) input() Input {
	pod := func(name, use string) stats.PodStats {
		return stats.PodStats{
			PodRef: stats.PodReference{Namespace: "default", Name: name, UID: name}, Announced: true, Populated: stats.Some(true),
			QOSClass: stats.Burstable, MemoryRequest: stats.Some(stats.Range{}), StartTime: epoch, Memory: stats.PodMemoryStats{WorkingSetBytes: stats.Some(quantity(use))},
		}
	}
	object := func(name string) *v1.Pod {
		priority, o := int32(0), &v1.Pod{}
		o.Namespace, o.Name, o.UID = "default", name, "leaker"
		o.Spec.Priority = &priority
		o.Status.Phase, o.Status.QOSClass = v1.PodRunning, v1.PodQOSBurstable
		return o
	}
	leaker, claimed := pod("leaker", "1Gi"), object("leaker")
	l.change(&leaker, claimed)
	of := NewPod(claimed)
	if l.static {
		of = NewManifestPod(claimed)
	}
	honest := object("innocent")
	honest.UID = "innocent"
	s := &stats.Summary{Time: epoch, Pods: []stats.PodStats{leaker, pod("innocent", "100Mi")}}
	s.Node.Memory = stats.NodeMemoryStats{
		Time: epoch, CapacityBytes: stats.Some(quantity("8Gi")), KernelAvailableBytes: stats.Some(quantity("10Mi")),
	}
	return Input{Summary: s, Pods: map[string]*Pod{leaker.PodRef.UID: of, "innocent": NewPod(honest)}}
}

// A client's wrong pod object neither protects a leaking pod nor causes the eviction of another
// pod, if the kernel or the runtime reports otherwise.
func TestWhatAClientSaysIsNoBetterThanWhatIsSeen(t *testing.T) {
	critical := func(o *v1.Pod) { o.Spec.Priority = new(int32(systemCriticalPriority)) }
	annotate := func(key, value string) func(*stats.PodStats, *v1.Pod) {
		return func(_ *stats.PodStats, o *v1.Pod) { o.Annotations = map[string]string{key: value} }
	}
	for _, c := range []lie{
		{"the truth", func(*stats.PodStats, *v1.Pod) {}, "leaker", false},
		{"it failed, and lives", func(_ *stats.PodStats, o *v1.Pod) { o.Status.Phase = v1.PodFailed }, "leaker", false},
		{"it succeeded, and lives", func(_ *stats.PodStats, o *v1.Pod) { o.Status.Phase = v1.PodSucceeded }, "leaker", false},
		{"it failed, and whether it lives is not known", func(p *stats.PodStats, o *v1.Pod) {
			p.Populated, o.Status.Phase = stats.Opt[bool]{}, v1.PodFailed
		}, "innocent", false},
		{"it runs, and is empty", func(p *stats.PodStats, _ *v1.Pod) { p.Populated.V = false }, "innocent", false},
		{"a client calls it static", annotate(annotationConfigSource, "file"), "leaker", false},
		{"a client calls it a mirror", annotate(annotationConfigMirror, "hash"), "leaker", false},
		{"a manifest calls it static", annotate(annotationConfigSource, "file"), "innocent", true},
		{"critical, by its own name", func(_ *stats.PodStats, o *v1.Pod) { critical(o) }, "innocent", false},
		{"critical, by another name", func(_ *stats.PodStats, o *v1.Pod) { critical(o); o.Name = "other" }, "leaker", false},
		{"critical, in another namespace", func(_ *stats.PodStats, o *v1.Pod) { critical(o); o.Namespace = "kube-system" }, "leaker", false},
		{"a request of another's", func(_ *stats.PodStats, o *v1.Pod) {
			o.Name = "other"
			o.Spec.Containers = []v1.Container{container0("c", "100Gi")}
		}, "leaker", false},
		{"a request, in a BestEffort pod's cgroup", func(p *stats.PodStats, o *v1.Pod) {
			p.QOSClass = stats.BestEffort
			o.Spec.Containers = []v1.Container{container0("c", "100Gi")}
		}, "leaker", false},
		{"a request that no node has", func(_ *stats.PodStats, o *v1.Pod) {
			o.Spec.Containers = []v1.Container{container0("c", "100Gi")}
		}, "leaker", false},
		{"a request for all of its use, of which the runtime shows nothing", func(p *stats.PodStats, o *v1.Pod) {
			p.Memory.WorkingSetBytes = stats.Some(quantity("4Gi"))
			o.Spec.Containers = []v1.Container{container0("c", "5Gi")}
		}, "leaker", false},
		{"no priority, in a protected namespace", func(p *stats.PodStats, o *v1.Pod) {
			p.PodRef.Namespace, o.Namespace, o.Spec.Priority = "kube-system", "kube-system", nil
		}, "innocent", false},
		{"no priority, with an oom_score_adj of -997", func(p *stats.PodStats, o *v1.Pod) {
			p.NodeCritical, o.Spec.Priority = true, nil
		}, "innocent", false},
		{"no priority, but an annotation that counts", func(p *stats.PodStats, o *v1.Pod) {
			p.PodRef.Namespace, o.Namespace, o.Spec.Priority = "kube-system", "kube-system", nil
			p.Annotations = map[string]string{annotationPriority: "-1"}
		}, "leaker", false},
		{"no priority, of a critical class", func(_ *stats.PodStats, o *v1.Pod) {
			o.Spec.Priority, o.Spec.PriorityClassName = nil, "system-cluster-critical"
		}, "innocent", false},
		{"another's priority, in a protected namespace", func(p *stats.PodStats, o *v1.Pod) {
			p.PodRef.Namespace = "kube-system"
		}, "innocent", false},
		{"another's priority, with an oom_score_adj of -997", func(p *stats.PodStats, o *v1.Pod) {
			p.NodeCritical, o.Name = true, "other"
		}, "innocent", false},
		{"a priority, with a static pod's UID that only the kernel knows", func(p *stats.PodStats, _ *v1.Pod) {
			p.Announced, p.PodRef = false, stats.PodReference{UID: strings.Repeat("0f", 16)}
		}, "innocent", false},
	} {
		m := NewManager(Config{
			Thresholds: []Threshold{{Signal: stats.SignalMemoryAvailable, Value: ThresholdValue{Quantity: new(resource.MustParse("100Mi"))}}},
			Policy:     Policy{AnnotationNamespaces: []string{"kube-system"}, ProtectedNamespaces: []string{"kube-system"}},

			MemoryAvailable: stats.MemoryAvailableKernel,
		})
		got := "nobody"
		if d := m.Step(epoch, c.input()); len(d.Evictions) == 1 {
			got = d.Evictions[0].Pod.PodRef.Name
		}
		if got != c.victim {
			t.Errorf("%s: victim = %s, want %s", c.name, got, c.victim)
		}
	}
}

// A pod known only from a client does not exist: neither the kernel nor the runtime has it, so
// nothing of it can be evicted. In a frame that was written by hand it exists, as for the kubelet.
func TestPodKnownOnlyFromClient(t *testing.T) {
	l := lie{change: func(*stats.PodStats, *v1.Pod) {}}
	for _, foreign := range []bool{false, true} {
		m := NewManager(Config{
			Thresholds:      []Threshold{{Signal: stats.SignalMemoryAvailable, Value: ThresholdValue{Quantity: new(resource.MustParse("100Mi"))}}},
			MemoryAvailable: stats.MemoryAvailableKernel,
		})
		in := l.input()
		in.Summary.Pods, in.Foreign = nil, foreign
		if d := m.Step(epoch, in); (len(d.Evictions) == 1) != foreign {
			t.Errorf("foreign Summary %v: %d evictions, want one only if foreign", foreign, len(d.Evictions))
		}
	}
}

// What the agent measured on the disk counts, whether or not the object names the volume. In a
// foreign Summary, which also has volumes elsewhere, the object decides which are local.
func TestVolumeMissingInObject(t *testing.T) {
	for foreign, victim := range map[bool]string{false: "leaker", true: "innocent"} {
		l := lie{change: func(p *stats.PodStats, o *v1.Pod) {
			p.EphemeralStorage.Volumes = []stats.VolumeStats{{Name: "v", FsUsage: stats.FsUsage{UsedBytes: 1 << 30}}}
			p.EphemeralStorage.Logs = stats.Some(stats.FsUsage{UsedBytes: 1 << 10})
		}}
		in := l.input()
		in.Foreign = foreign
		in.Summary.Pods[1].EphemeralStorage.Logs = stats.Some(stats.FsUsage{UsedBytes: 1 << 20})
		in.Summary.Node.Layout = stats.Some(stats.Layout{})
		in.Summary.Node.Fs = stats.Some(stats.FsStats{
			Time: epoch, AvailableBytes: stats.Some(quantity("10Mi")), CapacityBytes: stats.Some(quantity("8Gi")),
		})
		m := NewManager(Config{
			Thresholds: []Threshold{{Signal: stats.SignalNodeFsAvailable, Value: ThresholdValue{Quantity: new(resource.MustParse("100Mi"))}}},
		})
		m.Step(epoch, in)
		if d := m.StepAfterReclaim(epoch, in); len(d.Evictions) != 1 || d.Evictions[0].Pod.PodRef.Name != victim {
			t.Errorf("foreign Summary %v: %d evictions, want one of %s: %s", foreign, len(d.Evictions), victim, d.Reason)
		}
	}
}

// A limit on local storage applies only if the object belongs to the runtime's pod.
func TestALimitOfAnothersPod(t *testing.T) {
	size := resource.MustParse("1Mi")
	for name, c := range map[string]struct {
		change func(*stats.PodStats, *v1.Pod)
		goes   bool
	}{
		"its own":                      {func(*stats.PodStats, *v1.Pod) {}, true},
		"another name":                 {func(_ *stats.PodStats, o *v1.Pod) { o.Name = "other" }, false},
		"another namespace":            {func(_ *stats.PodStats, o *v1.Pod) { o.Namespace = "other" }, false},
		"it failed, and it lives":      {func(_ *stats.PodStats, o *v1.Pod) { o.Status.Phase = v1.PodFailed }, true},
		"not announced by the runtime": {func(p *stats.PodStats, _ *v1.Pod) { p.Announced, p.PodRef = false, stats.PodReference{UID: "leaker"} }, false},
	} {
		l := lie{change: func(p *stats.PodStats, o *v1.Pod) {
			o.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &size}}}}
			p.EphemeralStorage.Volumes = []stats.VolumeStats{{Name: "v", FsUsage: stats.FsUsage{UsedBytes: 2 << 20}}}
			c.change(p, o)
		}}
		m := NewManager(Config{LocalStorage: true})
		in := l.input()
		if d := m.Step(epoch.Add(time.Second), in); (len(d.Evictions) == 1) != c.goes {
			t.Errorf("%s: %d evictions, want one: %v", name, len(d.Evictions), c.goes)
		}
	}
}

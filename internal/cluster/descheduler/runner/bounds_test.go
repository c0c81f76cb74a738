package runner

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"jettison/cluster/taint"
	"jettison/internal/base/race"
)

// objectLimit is the largest object that the API server stores (etcd's --max-request-bytes).
const objectLimit = 3 << 19

// largePods are pods of which a tenant made one list as long as the API server stores.
var largePods = map[string]func(p *v1.Pod, i int){
	"tolerations": func(p *v1.Pod, i int) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: fmt.Sprint("k", i), Effect: v1.TaintEffectNoExecute})
	},
	"labels":       func(p *v1.Pod, i int) { p.Labels[fmt.Sprint("k", i)] = "" },
	"nodeSelector": func(p *v1.Pod, i int) { p.Spec.NodeSelector[fmt.Sprint("k", i)] = "" },
	"owners": func(p *v1.Pod, i int) {
		p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "K", Name: "n", UID: types.UID(fmt.Sprint(i))})
	},
	"volumes": func(p *v1.Pod, i int) {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprint(i), VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	},
	"claims": func(p *v1.Pod, i int) {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprint(i), VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}})
	},
	"containers": func(p *v1.Pod, i int) {
		p.Spec.Containers = append(p.Spec.Containers, storedContainer(i))
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{Name: fmt.Sprint("c", i), State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}})
	},
	"init containers": func(p *v1.Pod, i int) { p.Spec.InitContainers = append(p.Spec.InitContainers, storedContainer(i)) },
	"requests": func(p *v1.Pod, i int) {
		if i == 0 {
			p.Spec.Containers = append(p.Spec.Containers, storedContainer(i))
		}
		p.Spec.Containers[0].Resources.Requests[v1.ResourceName(fmt.Sprint("e.x/", i))] = resource.MustParse("1")
	},
	"host ports": func(p *v1.Pod, i int) {
		if i == 0 {
			p.Spec.Containers = append(p.Spec.Containers, storedContainer(i))
		}
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, v1.ContainerPort{ContainerPort: 1, HostPort: int32(i + 1), Protocol: v1.ProtocolTCP})
	},
	"affinity terms": func(p *v1.Pod, _ int) {
		a := affinityOf(p)
		if a.PodAntiAffinity == nil {
			a.PodAntiAffinity = &v1.PodAntiAffinity{}
		}
		list := &a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		*list = append(*list, v1.PodAffinityTerm{TopologyKey: "k"})
	},
	"affinity values": func(p *v1.Pod, i int) {
		a := affinityOf(p)
		if a.NodeAffinity == nil {
			a.NodeAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
				{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "k", Operator: v1.NodeSelectorOpIn}}}}}}
		}
		list := &a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Values
		*list = append(*list, fmt.Sprint(i%10))
	},
	"spread constraints": func(p *v1.Pod, i int) {
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: fmt.Sprint(i), WhenUnsatisfiable: v1.ScheduleAnyway})
	},
	"resource claims": func(p *v1.Pod, i int) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: fmt.Sprint(i), ResourceClaimName: new("c")})
	},
	"conditions": func(p *v1.Pod, i int) {
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodConditionType(fmt.Sprint(i)), Status: v1.ConditionTrue})
	},
}

// storedContainer returns a container with the defaults of the API server.
func storedContainer(i int) v1.Container {
	return v1.Container{Name: fmt.Sprint("c", i), Image: "i", TerminationMessagePath: v1.TerminationMessagePathDefault,
		TerminationMessagePolicy: v1.TerminationMessageReadFile, ImagePullPolicy: v1.PullIfNotPresent,
		Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}}}
}

func affinityOf(p *v1.Pod) *v1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &v1.Affinity{}
	}
	return p.Spec.Affinity
}

func emptyPod() *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p", UID: "u", Labels: map[string]string{}},
		Spec: v1.PodSpec{NodeName: "n", NodeSelector: map[string]string{}}}
}

// largePod returns a pod with as many items as the API server stores.
func largePod(add func(p *v1.Pod, i int)) *v1.Pod {
	sample := emptyPod()
	for i := range 10_000 {
		add(sample, i)
	}
	count := objectLimit / (sample.Size() / 10_000)
	p := emptyPod()
	for i := 0; i < count && (i%1000 != 0 || p.Size() < objectLimit); i++ {
		add(p, i)
	}
	return p
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// keptOf returns what the informer keeps of a pod, and its size in memory.
func keptOf(t *testing.T, p *v1.Pod) (kept *v1.Pod, bytes int64) {
	t.Helper()
	before := heap()
	kept = p.DeepCopy()
	if _, err := trim(kept); err != nil {
		t.Fatal(err)
	}
	bytes = heap() - before
	runtime.KeepAlive(p)
	return kept, bytes
}

// A tenant may make any list of a pod as long as an object can be. The informers keep little of such
// a pod, and the pod stays. They keep shorter lists.
func TestInformersKeepLittleOfLargePods(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	const most = 256 << 10
	for name, add := range largePods {
		p := largePod(add)
		kept, bytes := keptOf(t, p)
		t.Logf("%s: %d KiB stored, %d KiB kept", name, p.Size()>>10, bytes>>10)
		if bytes > most {
			t.Errorf("%s: %d KiB of the pod are kept, want at most %d KiB", name, bytes>>10, most>>10)
		}
		if !taint.Unread(kept.Spec.Tolerations) {
			t.Errorf("%s: the pod is not marked as incomplete", name)
		}
		largest, complete := int64(0), 0
		short := emptyPod()
		for i, next := 0, 10; i < 3000; i++ {
			if add(short, i); i < next {
				continue
			}
			next += next / 4
			kept, bytes := keptOf(t, short)
			if taint.Unread(kept.Spec.Tolerations) {
				break
			}
			largest, complete = max(largest, bytes), i
		}
		t.Logf("%s: up to %d KiB kept of a complete pod with %d items", name, largest>>10, complete)
		if largest > most {
			t.Errorf("%s: up to %d KiB of a complete pod are kept, want at most %d KiB", name, largest>>10, most>>10)
		}
		if complete < 20 {
			t.Errorf("%s: a pod with %d items is complete, want one with 20", name, complete)
		}
	}
}

// An incomplete pod stays, whatever its annotations, with that reason. Others leave.
func TestIncompletePodStays(t *testing.T) {
	large := pod("large", "n1", func(p *v1.Pod) {
		p.Annotations["descheduler.alpha.kubernetes.io/evict"] = ""
		for i := range 1000 {
			largePods["tolerations"](p, i)
		}
	})
	text, log, err := run(t, apiWithPods(t, large, pod("a", "n1")), lifeTimePolicy(), func(o *Options) { o.DryRun = true })
	var plan struct {
		Evictions, Skipped []struct{ Name, Reason string }
	}
	if decodeErr := json.Unmarshal([]byte(text), &plan); err != nil || decodeErr != nil {
		t.Fatalf("dry run failed: error %v, output error %v, want neither, log:\n%s", err, decodeErr, log)
	}
	if len(plan.Evictions) != 1 || plan.Evictions[0].Name != "a" || len(plan.Skipped) != 1 || plan.Skipped[0].Name != "large" ||
		plan.Skipped[0].Reason != incompleteReason {
		t.Errorf("plan = %+v, want the eviction of a, and large skipped as incomplete", plan)
	}
}

// Claims and budgets are written by tenants, too.
func TestTrimBoundsClaimsAndBudgets(t *testing.T) {
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{"a": "b"},
		Annotations: map[string]string{"volume.kubernetes.io/selected-node": "n", "volume.kubernetes.io/x": "y"}},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: "v", StorageClassName: new("s"), Selector: &metav1.LabelSelector{}}}
	small := &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}}
	large := small.DeepCopy()
	for i := range 10_000 {
		large.Spec.Selector.MatchLabels[fmt.Sprint("k", i)] = ""
	}
	for _, o := range []any{claim, small, large} {
		if _, err := trim(o); err != nil {
			t.Fatal(err)
		}
	}
	if claim.Labels != nil || len(claim.Annotations) != 1 || claim.Spec.VolumeName != "v" || claim.Spec.StorageClassName == nil || claim.Spec.Selector != nil {
		t.Errorf("claim = %+v, want name, volume, storage class and selected node", claim)
	}
	if len(small.Spec.Selector.MatchLabels) != 1 || large.Spec.Selector == nil || large.Spec.Selector.Size() > 0 {
		t.Errorf("selectors have %d and %d bytes, want the small one kept and the large one empty", small.Spec.Selector.Size(), large.Spec.Selector.Size())
	}
}

// Tolerations that others cover are not kept, and do not keep a pod in place.
func TestRedundantTolerationsAreDropped(t *testing.T) {
	p := &v1.Pod{}
	for i := range 10_000 {
		p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: "k", Value: fmt.Sprint(i % 3), TolerationSeconds: new(int64(i)), Effect: v1.TaintEffectNoExecute},
			v1.Toleration{Key: "all", Operator: v1.TolerationOpExists}, v1.Toleration{Key: "all", Value: fmt.Sprint(i)})
	}
	if _, err := trim(p); err != nil {
		t.Fatal(err)
	}
	if kept := p.Spec.Tolerations; len(kept) != 4 || taint.Unread(kept) {
		t.Errorf("%d tolerations are kept, want 4", len(kept))
	}
}

// An incomplete pod still uses the resources of its node, and stays incomplete if the informer trims
// it again.
func TestIncompletePodKeepsItsRequests(t *testing.T) {
	p := largePod(largePods["init containers"])
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("3"), "example.com/gpu": resource.MustParse("2")}
	p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: list}}, {Resources: v1.ResourceRequirements{Requests: list}}}
	for range 2 {
		if _, err := trim(p); err != nil {
			t.Fatal(err)
		}
		got := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
		if cpu, gpu := got[v1.ResourceCPU], got["example.com/gpu"]; cpu.Value() != 6 || gpu.Value() != 4 {
			t.Errorf("requests = %v, want 6 cpu and 4 gpu", got)
		}
		if !taint.Unread(p.Spec.Tolerations) || p.Spec.NodeName != "n" || p.UID != "u" {
			t.Errorf("pod on node %q with UID %q, %d tolerations: want the mark, its node and its UID", p.Spec.NodeName, p.UID, len(p.Spec.Tolerations))
		}
	}
}

// The messages of failed containers do not make a pod too large to plan for. A kubelet stores up to
// 12 KiB of them.
func TestTerminationMessagesAreDropped(t *testing.T) {
	p := &v1.Pod{}
	for i := range 20 {
		name := fmt.Sprint("container-", i)
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name, Image: "registry.example/team/application/component:1.2.3"})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{Name: name, State: v1.ContainerState{
			Terminated: &v1.ContainerStateTerminated{Reason: "Error", ExitCode: 3, Message: strings.Repeat("x", 12<<10/20), ContainerID: "containerd://" + strings.Repeat("0", 64)}}})
	}
	if _, err := trim(p); err != nil || len(incomplete([]*v1.Pod{p})) > 0 {
		t.Fatalf("a failed pod with 20 containers is too large to plan for (%v)", err)
	}
	if got := p.Status.ContainerStatuses[0].State.Terminated; got.Reason != "Error" || got.ExitCode != 3 || got.Message != "" {
		t.Errorf("state = %+v, want reason and exit code without the message", got)
	}
}

package descheduler

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// owner has the properties common to all pods of one owner.
type owner struct {
	name, namespace string
	refs            []metav1.OwnerReference
	cpu, memory     int64
	edit            []func(*v1.Pod)
}

func (m *maker) owner(i int) *owner {
	o := &owner{name: fmt.Sprintf("o%d", i), namespace: "default", cpu: int64(50 + 50*m.IntN(12)), memory: int64(10 * m.IntN(40))}
	if i > 0 && m.one(3) {
		o.namespace = "other"
	}
	kind := of(m, "ReplicaSet", "ReplicaSet", "ReplicaSet", "StatefulSet", "Job", "DaemonSet", "")
	if kind != "" {
		o.refs = []metav1.OwnerReference{{Kind: kind, Name: o.name, UID: types.UID("uid-" + o.name)}}
		if m.one(15) {
			o.refs = append(o.refs, metav1.OwnerReference{Kind: "Group", Name: "g", UID: "uid-g"})
		}
	}
	add := func(edit func(*v1.Pod)) { o.edit = append(o.edit, edit) }
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"owner": o.name}}
	switch m.IntN(9) {
	case 0, 1:
		for _, k := range m.constraints(selector) {
			add(func(p *v1.Pod) { p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, k) })
		}
	case 2:
		term := v1.PodAffinityTerm{LabelSelector: selector, TopologyKey: of(m, hostname, zone)}
		if m.one(3) {
			term.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"owner": fmt.Sprintf("o%d", m.IntN(i+1))}}
		}
		add(func(p *v1.Pod) {
			affinity(p).PodAntiAffinity = &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term}}
		})
	case 3:
		add(func(p *v1.Pod) {
			required(p, v1.NodeSelectorRequirement{Key: zone, Operator: v1.NodeSelectorOpIn, Values: []string{"a", "b"}})
		})
	case 4:
		value := of(m, "ssd", "hdd")
		add(func(p *v1.Pod) {
			p.Spec.NodeSelector = map[string]string{disk: value}
			required(p, v1.NodeSelectorRequirement{Key: zone, Operator: v1.NodeSelectorOpExists})
		})
	case 5:
		add(func(p *v1.Pod) {
			affinity(p).NodeAffinity = &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{Weight: 10,
				Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
					{Key: disk, Operator: v1.NodeSelectorOpIn, Values: []string{"ssd"}}}}}}}
		})
	}
	if m.one(3) {
		add(m.tolerations())
	}
	if m.gpus && m.one(2) {
		add(func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests[gpu] = *resource.NewQuantity(1, resource.DecimalSI)
		})
	}
	return o
}

func (m *maker) constraints(selector *metav1.LabelSelector) []v1.TopologySpreadConstraint {
	when := of(m, v1.DoNotSchedule, v1.DoNotSchedule, v1.ScheduleAnyway)
	k := v1.TopologySpreadConstraint{MaxSkew: int32(1 + m.IntN(2)), TopologyKey: of(m, zone, zone, hostname), WhenUnsatisfiable: when,
		LabelSelector: selector}
	if m.one(4) {
		k.NodeTaintsPolicy = new(v1.NodeInclusionPolicyHonor)
	}
	if m.one(8) && when == v1.DoNotSchedule {
		k.MinDomains = new(int32(2 + m.IntN(2)))
	}
	out := []v1.TopologySpreadConstraint{k}
	if m.one(4) && k.TopologyKey == zone {
		out = append(out, v1.TopologySpreadConstraint{MaxSkew: 2, TopologyKey: hostname, WhenUnsatisfiable: v1.DoNotSchedule,
			LabelSelector: selector})
	}
	return out
}

func (m *maker) tolerations() func(*v1.Pod) {
	t := of(m, v1.Toleration{Operator: v1.TolerationOpExists}, v1.Toleration{Key: "t", Operator: v1.TolerationOpExists},
		v1.Toleration{Key: "t", Operator: v1.TolerationOpEqual, Value: "v", Effect: v1.TaintEffectNoSchedule},
		v1.Toleration{Key: "u", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectPreferNoSchedule})
	return func(p *v1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, t) }
}

func affinity(p *v1.Pod) *v1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &v1.Affinity{}
	}
	return p.Spec.Affinity
}

func required(p *v1.Pod, r v1.NodeSelectorRequirement) {
	affinity(p).NodeAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{r}}}}}
}

// pod makes a pod of an owner. All pods of a cluster differ in eviction rank, age and restarts, so
// that their order is defined.
func (m *maker) pod(o *owner, name string) *v1.Pod {
	rank := m.ranks[0]
	m.ranks = m.ranks[1:]
	age := time.Duration(m.IntN(48))*time.Hour + time.Duration(rank*5)*time.Second
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.namespace, Name: name, UID: types.UID("uid-" + name), OwnerReferences: o.refs,
			Labels: map[string]string{"owner": o.name, "tier": of(m, "front", "back")}, Annotations: map[string]string{},
			CreationTimestamp: metav1.NewTime(now.Add(-age)),
		},
		Spec: v1.PodSpec{NodeName: m.Nodes[m.IntN(len(m.Nodes))].Name, Containers: []v1.Container{{Name: "c", Image: of(m, "i", "i", "i", "j"),
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}}}},
		Status: v1.PodStatus{Phase: v1.PodRunning, StartTime: new(metav1.NewTime(now.Add(-age))), Conditions: []v1.PodCondition{
			{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-age))}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", RestartCount: int32(rank), State: v1.ContainerState{
				Running: &v1.ContainerStateRunning{}}}}},
	}
	m.class(p, o, rank)
	for _, edit := range o.edit {
		edit(p)
	}
	m.oddities(p)
	return p
}

// class sets a pod's place in the order: six per priority, by class and annotation; the last
// priority is none.
func (m *maker) class(p *v1.Pod, o *owner, rank int) {
	if priority := rank / 6; priority > 0 {
		p.Spec.Priority = new(int32(priority * 10))
	}
	r := &p.Spec.Containers[0].Resources
	switch rank % 3 {
	case 0:
		p.Status.QOSClass = v1.PodQOSBestEffort
	case 1:
		p.Status.QOSClass = v1.PodQOSBurstable
		r.Requests[v1.ResourceCPU] = *resource.NewMilliQuantity(o.cpu, resource.DecimalSI)
		r.Requests[v1.ResourceMemory] = *resource.NewQuantity(o.memory, resource.DecimalSI)
	case 2:
		p.Status.QOSClass = v1.PodQOSGuaranteed
		r.Requests[v1.ResourceCPU] = *resource.NewMilliQuantity(o.cpu, resource.DecimalSI)
		r.Requests[v1.ResourceMemory] = *resource.NewQuantity(o.memory+1, resource.DecimalSI)
		r.Limits = r.Requests.DeepCopy()
	}
	if rank%6 > 2 {
		p.Annotations["descheduler.alpha.kubernetes.io/prefer-no-eviction"] = ""
	}
}

// oddities adds rare properties.
func (m *maker) oddities(p *v1.Pod) {
	s := &p.Status.ContainerStatuses[0].State
	switch m.IntN(24) {
	case 0:
		p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	case 1:
		p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			ClaimName: of(m, "fast", "slow", "missing")}}}}
	case 2, 3:
		p.Status.Phase, p.Status.Reason = v1.PodFailed, of(m, "", "Evicted", "NodeLost")
		*s = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: of(m, "Error", "OOMKilled"), ExitCode: of(m, int32(1), 137)}}
		p.Status.Conditions[0].Status = v1.ConditionFalse
	case 4:
		p.Status.Phase = v1.PodSucceeded
		p.Status.Conditions[0].Status = v1.ConditionFalse
	case 5:
		p.Status.Phase = v1.PodPending
		p.Status.Conditions[0].Status = v1.ConditionFalse
		*s = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
	case 6:
		*s = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	case 7:
		p.DeletionTimestamp = new(metav1.NewTime(now.Add(-time.Second)))
	case 8:
		p.Spec.Priority = new(2000000000 + p.Status.ContainerStatuses[0].RestartCount)
	case 9:
		p.Annotations["descheduler.alpha.kubernetes.io/evict"] = ""
	case 10:
		p.Annotations[v1.MirrorPodAnnotationKey] = "x"
	case 11:
		p.Annotations["kubernetes.io/config.source"] = of(m, "file", "api")
	case 12:
		p.OwnerReferences = nil
	case 13:
		p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "i", RestartCount: 1000}}
	case 14:
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "claim"}}
	}
}

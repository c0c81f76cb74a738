package model

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Two host ports conflict if number and protocol are equal, and the addresses are equal or one of them
// means all.
func TestPortsConflict(t *testing.T) {
	port := func(number int32, protocol v1.Protocol, ip string) v1.ContainerPort {
		return v1.ContainerPort{HostPort: number, Protocol: protocol, HostIP: ip}
	}
	for _, c := range []struct {
		a, b v1.ContainerPort
		want bool
	}{
		{port(80, "", ""), port(80, v1.ProtocolTCP, ""), true},
		{port(80, "", ""), port(81, "", ""), false},
		{port(80, v1.ProtocolUDP, ""), port(80, "", ""), false},
		{port(80, v1.ProtocolUDP, ""), port(80, v1.ProtocolUDP, ""), true},
		{port(80, "", "10.0.0.1"), port(80, "", "10.0.0.1"), true},
		{port(80, "", "10.0.0.1"), port(80, "", "10.0.0.2"), false},
		{port(80, "", "10.0.0.1"), port(80, "", ""), true},
		{port(80, "", "10.0.0.1"), port(80, "", "0.0.0.0"), true},
		{port(80, "", "fd00::1"), port(80, "", "::"), true},
	} {
		if a, b := portsConflict(&c.a, &c.b), portsConflict(&c.b, &c.a); a != c.want || b != c.want {
			t.Errorf("portsConflict(%+v, %+v) = %t, reversed %t, want %t", c.a, c.b, a, b, c.want)
		}
	}
}

// Ports of containers and of restartable init containers are in use until their pod ends.
func TestPortsInUse(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	port := func(number int32) v1.Container {
		return v1.Container{Ports: []v1.ContainerPort{{ContainerPort: 80, HostPort: number}}}
	}
	sidecar := port(80)
	sidecar.RestartPolicy = &always
	for name, c := range map[string]struct {
		spec  v1.PodSpec
		phase v1.PodPhase
		want  bool
	}{
		"container":               {v1.PodSpec{Containers: []v1.Container{port(80)}}, v1.PodRunning, true},
		"no host port":            {v1.PodSpec{Containers: []v1.Container{port(0)}}, v1.PodRunning, false},
		"sidecar":                 {v1.PodSpec{InitContainers: []v1.Container{sidecar}}, v1.PodRunning, true},
		"init container":          {v1.PodSpec{InitContainers: []v1.Container{port(80)}}, v1.PodRunning, false},
		"container that ended":    {v1.PodSpec{Containers: []v1.Container{port(80)}}, v1.PodSucceeded, false},
		"second, which conflicts": {v1.PodSpec{Containers: []v1.Container{port(81), port(80)}}, v1.PodRunning, true},
	} {
		other := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "there", Namespace: "x"}, Spec: c.spec, Status: v1.PodStatus{Phase: c.phase}}
		other.Spec.NodeName = "n1"
		for want, asked := range map[bool]int32{c.want: 80, false: 0} {
			cl := New(&Objects{Nodes: []*v1.Node{node("n1", "a")}, Pods: []*v1.Pod{other}}, nil)
			p := cl.NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "x"}, Spec: v1.PodSpec{Containers: []v1.Container{port(asked)}}})
			if got := cl.FitCheck(p).FailureReason(cl.Find("n1")); (got != "") != want {
				t.Errorf("%s: port %d: failure reason = %q, want a conflict: %t", name, asked, got, want)
			}
		}
	}
}

// A pod fits on the node on which it uses a port itself.
func TestOwnPortIsFree(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "x"},
		Spec: v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Ports: []v1.ContainerPort{{HostPort: 80}}}}}}
	cl := New(&Objects{Nodes: []*v1.Node{node("n1", "a")}, Pods: []*v1.Pod{p}}, nil)
	if got := cl.FitCheck(cl.Pods()[0]).FailureReason(cl.Find("n1")); got != "" {
		t.Errorf("failure reason = %q, want none: the pod is gone", got)
	}
	if got := cl.FitCheck(cl.Pods()[0]).Successor().FailureReason(cl.Find("n1")); got == "" {
		t.Error("failure reason = \"\", want a conflict: the pod is still being deleted")
	}
}

// A node reaches a volume if the volume's node affinity matches and each of its zone labels names the
// node's zone. Of an unknown volume the zone of the node is known for which it was made.
func TestVolumesOfNodes(t *testing.T) {
	in := func(values ...string) *v1.VolumeNodeAffinity {
		return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: values}}}}}}
	}
	zone := func(value string) map[string]string { return map[string]string{v1.LabelTopologyZone: value} }
	for name, c := range map[string]struct {
		volume   *v1.PersistentVolume
		selected string // the node for which an unknown volume was made
		claimed  string // its name
		want     bool
	}{
		"no restriction":       {&v1.PersistentVolume{}, "", "v", true},
		"empty affinity":       {&v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{NodeAffinity: &v1.VolumeNodeAffinity{}}}, "", "v", true},
		"affinity":             {&v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{NodeAffinity: in("a")}}, "", "v", true},
		"affinity elsewhere":   {&v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{NodeAffinity: in("b")}}, "", "v", false},
		"zone":                 {&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: zone("a")}}, "", "v", true},
		"one of two zones":     {&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: zone("b__a")}}, "", "v", true},
		"other zones":          {&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: zone("b__c")}}, "", "v", false},
		"a region, unknown":    {&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1.LabelTopologyRegion: "r"}}}, "", "v", false},
		"made for n1":          {nil, "n1", "w", true},
		"made for another":     {nil, "n2", "w", false},
		"not made yet":         {nil, "n2", "", true},
		"made for a lost node": {nil, "n3", "w", true},
	} {
		claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "new-data", Namespace: "x",
			Annotations: map[string]string{selectedNodeAnnotation: c.selected}}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: c.claimed}}
		o := &Objects{Nodes: []*v1.Node{node("n1", "a"), node("n2", "b")}, Claims: []*v1.PersistentVolumeClaim{claim}}
		if c.volume != nil {
			c.volume.Name = "v"
			o.Volumes = []*v1.PersistentVolume{c.volume}
		}
		for kind, source := range map[string]v1.VolumeSource{
			"claim":     {PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "new-data"}},
			"ephemeral": {Ephemeral: &v1.EphemeralVolumeSource{}},
		} {
			cl := New(o, nil)
			p := cl.NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "x"},
				Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "logs"}, {Name: "data", VolumeSource: source}}}})
			if got := cl.FitCheck(p).FailureReason(cl.Find("n1")); (got == "") != c.want {
				t.Errorf("%s, %s: failure reason = %q, want the volume in reach: %t", name, kind, got, c.want)
			}
		}
	}
}

// Amounts are bounded, cpu in millicores.
func TestAmountsAreBounded(t *testing.T) {
	const most = int64(maxAmount)
	for _, c := range []struct {
		name v1.ResourceName
		q    *resource.Quantity
		want int64
	}{
		{v1.ResourceMemory, resource.NewQuantity(most-1, resource.DecimalSI), most - 1},
		{v1.ResourceMemory, resource.NewQuantity(most, resource.DecimalSI), most},
		{v1.ResourceMemory, resource.NewQuantity(most+1, resource.DecimalSI), most},
		{v1.ResourceMemory, resource.NewQuantity(most/1000, resource.DecimalSI), most / 1000},
		{v1.ResourceCPU, resource.NewMilliQuantity(1500, resource.DecimalSI), 1500},
		{v1.ResourceCPU, resource.NewQuantity(most/1000-1, resource.DecimalSI), (most/1000 - 1) * 1000},
		{v1.ResourceCPU, resource.NewQuantity(most/1000, resource.DecimalSI), most},
		{v1.ResourceCPU, resource.NewQuantity(most, resource.DecimalSI), most},
		{"x/y", resource.NewMilliQuantity(1500, resource.DecimalSI), 2},
	} {
		if got := ValueOf(c.name, *c.q); got != c.want {
			t.Errorf("ValueOf(%s, %v) = %d, want %d", c.name, c.q, got, c.want)
		}
	}
}

// Short and long lists of amounts give the same answers.
func TestAmountsOfManyResources(t *testing.T) {
	for _, count := range []int{1, smallCount - 1, smallCount, smallCount + 1, 3 * smallCount} {
		var all amounts
		for i := range count {
			all.add(amounts{{v1.ResourceName(fmt.Sprintf("r%03d", count-i)), int64(count - i)}}, 1)
		}
		for i := range count {
			all.add(amounts{{v1.ResourceName(fmt.Sprintf("r%03d", count-i)), int64(count - i)}}, 2)
		}
		for i := 1; i <= count; i++ {
			if got, ok := all.get(v1.ResourceName(fmt.Sprintf("r%03d", i))); !ok || got != int64(3*i) {
				t.Errorf("%d resources: amount %d of r%03d (%t), want %d", count, got, i, ok, 3*i)
			}
		}
		if got, ok := all.get("r000"); ok || len(all) != count {
			t.Errorf("%d resources: amount %d of an absent one in %d, want none", count, got, len(all))
		}
	}
}

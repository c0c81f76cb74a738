package oracle

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/record"
	podhelper "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/preemption"
	"k8s.io/kubernetes/pkg/kubelet/sysctl"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"jettison/admit"
	"jettison/stats"
)

// The kubelet's sysctl handler and the agent's check admit the same pods.
func TestSysctlsAreTheKubelets(t *testing.T) {
	unsafe := []string{"net.core.*", "kernel.msg*", "user.*", "kernel.domainname"}
	theirs, err := sysctl.NewAllowlist(append(sysctl.SafeSysctlAllowlist(t.Context()), unsafe...))
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := admit.NewSysctls(unsafe)
	if err != nil {
		t.Fatal(err)
	}
	names := append(sysctl.SafeSysctlAllowlist(t.Context()), "net.core.somaxconn", "kernel.msgmax", "user.max_user_namespaces",
		"user/max_mnt_namespaces", "kernel.domainname", "vm.swappiness", "net.ipv4.tcp_mem")
	yes, no := true, false
	for _, name := range names {
		for _, hostUsers := range []*bool{nil, &yes, &no} {
			for _, host := range []bool{false, true} {
				p := &v1.Pod{Spec: v1.PodSpec{HostNetwork: host, HostIPC: host, HostUsers: hostUsers, SecurityContext: &v1.PodSecurityContext{
					Sysctls: []v1.Sysctl{{Name: name}}}}}
				want := theirs.Admit(t.Context(), &lifecycle.PodAdmitAttributes{Pod: p})
				got := admit.Admit(admit.PodAttributes{Pod: p}, admit.NodeState{Sysctls: allowed})
				if got.Admit != want.Admit || got.Reason != want.Reason || got.Message != want.Message {
					t.Errorf("admission with %s, host namespaces %v, host users %v = %+v, want %+v", name, host, hostUsers, got, want)
				}
			}
		}
	}
}

// The class of a static pod is the kubelet's, and the class and the pod-level resources of another
// pod are those that the API server stores.
func TestPodLevelResourcesAreUpstreams(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 37))
	for range 20_000 {
		p := randomPod(r)
		decoded := p.DeepCopy()
		corev1.SetObjectDefaults_Pod(decoded)
		if got, want := stats.QOSOf(p), qos.ComputePodQOS(decoded); string(got) != string(want) {
			t.Fatalf("class of a static pod = %s, want %s:\n%s", got, want, text(p))
		}
		var internal core.Pod
		if err := corev1.Convert_v1_Pod_To_core_Pod(decoded, &internal, nil); err != nil {
			t.Fatal(err)
		}
		podhelper.DefaultPodLevelResources(&internal)
		var created v1.Pod
		if err := corev1.Convert_core_Pod_To_v1_Pod(&internal, &created, nil); err != nil {
			t.Fatal(err)
		}
		got, _ := admit.Requested(admit.PodAttributes{Pod: p})
		if g, w := stats.QOSOf(got), qos.ComputePodQOS(&created); string(g) != string(w) {
			t.Fatalf("class of an object = %s, want %s:\n%s", g, w, text(p))
		}
		if got.Spec.Resources != nil && (!same(got.Spec.Resources.Requests, created.Spec.Resources.Requests) ||
			!same(got.Spec.Resources.Limits, created.Spec.Resources.Limits)) {
			t.Fatalf("pod-level resources = %s, want %s:\n%s", text(got.Spec.Resources), text(created.Spec.Resources), text(p))
		}
	}
}

func same(a, b v1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}

func text(v any) string {
	out, _ := json.Marshal(v)
	return string(out)
}

// randomPod returns a pod whose resources often are 0, equal or absent.
func randomPod(r *rand.Rand) *v1.Pod {
	list := func() v1.ResourceList {
		if r.IntN(3) == 0 {
			return nil
		}
		out := v1.ResourceList{}
		for _, name := range []v1.ResourceName{"cpu", "memory", "hugepages-2Mi"} {
			if n := r.IntN(5); n < 3 && (name != "hugepages-2Mi" || n > 0) {
				out[name] = *resource.NewQuantity(int64(n), resource.DecimalSI)
			}
		}
		return out
	}
	container := func() v1.Container {
		c := v1.Container{Name: "c", Resources: v1.ResourceRequirements{Requests: list(), Limits: list()}}
		if r.IntN(3) == 0 {
			c.Resources.Requests = nil
		}
		return c
	}
	p := &v1.Pod{}
	for range 1 + r.IntN(2) {
		p.Spec.Containers = append(p.Spec.Containers, container())
	}
	for range r.IntN(3) {
		c := container()
		if r.IntN(2) == 0 {
			always := v1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	switch r.IntN(4) {
	case 0:
		p.Spec.Resources = &v1.ResourceRequirements{}
	case 1:
		p.Spec.Resources = &v1.ResourceRequirements{Requests: list(), Limits: list()}
	}
	return p
}

// kubeletCase is a case of TestKubeletAnswers in package admit.
type kubeletCase struct {
	Pod     *v1.Pod
	Node    *v1.Node
	Others  []*v1.Pod
	Sysctls []string
	Answer  *kubeletAnswer
}

type kubeletAnswer struct {
	Admit           bool
	Reason, Message string
	Killed          []string `json:",omitempty"`
}

// TestRecordKubeletAnswers reads the cases of the file JETTISON_KUBELET_CASES, written by
// `go test ./admit -run TestKubeletAnswers -kubelet-cases FILE -rapid.checks=1000`, and writes them
// with the kubelet's answers to FILE.answers. Compressed with gzip -9n, that is
// admit/testdata/kubelet.jsonl.gz.
func TestRecordKubeletAnswers(t *testing.T) {
	path := os.Getenv("JETTISON_KUBELET_CASES")
	if path == "" {
		t.Skip("records only with JETTISON_KUBELET_CASES")
	}
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(path + ".answers")
	if err != nil {
		t.Fatal(err)
	}
	lines, encoder := bufio.NewScanner(in), json.NewEncoder(out)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		var c kubeletCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		c.Answer = answer(t, &c)
		if err := encoder.Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// answer returns the decision of the kubelet's handlers about the case. It does not change the
// case. All kills succeed.
func answer(t *testing.T, c *kubeletCase) *kubeletAnswer {
	decoded := func(p *v1.Pod) *v1.Pod {
		p = p.DeepCopy()
		corev1.SetObjectDefaults_Pod(p)
		return p
	}
	attributes := &lifecycle.PodAdmitAttributes{Pod: decoded(c.Pod), Operation: lifecycle.AddOperation}
	for _, p := range c.Others {
		attributes.OtherPods = append(attributes.OtherPods, decoded(p))
	}
	allowed, err := sysctl.NewAllowlist(append(sysctl.SafeSysctlAllowlist(t.Context()), c.Sysctls...))
	if err != nil {
		t.Fatal(err)
	}
	out := &kubeletAnswer{}
	kill := func(p *v1.Pod, _ bool, _ *int64, _ func(*v1.PodStatus)) error {
		out.Killed = append(out.Killed, p.Name)
		return nil
	}
	active := func() []*v1.Pod { return attributes.OtherPods }
	node := func(context.Context, bool) (*v1.Node, error) { return c.Node, nil }
	plugins := func(*framework.NodeInfo, *lifecycle.PodAdmitAttributes) error { return nil }
	failures := preemption.NewCriticalPodAdmissionHandler(active, kill, &record.FakeRecorder{})
	for _, h := range []lifecycle.PodAdmitHandler{allowed, lifecycle.NewPredicateAdmitHandler(node, failures, plugins)} {
		r := h.Admit(t.Context(), attributes)
		if out.Admit, out.Reason, out.Message = r.Admit, r.Reason, r.Message; !r.Admit {
			break
		}
	}
	return out
}

package priorities

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/api"
	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/node/nodetest"
	"jettison/stats/read"
)

// runs returns pods of the runtime: "uid namespace", then gone (no ready sandbox), critical (an
// oom_score_adj of -997), self, or an annotation KEY=VALUE.
func runs(lines ...string) read.Index {
	l := cri.Listing{}
	for _, line := range lines {
		f := strings.Fields(line)
		s := cri.PodSandbox{
			ID: "s-" + f[0], UID: f[0], Namespace: f[1], Name: f[0], Ready: true, Annotations: map[string]string{},
			CgroupParent: "/kubepods/burstable/pod" + f[0],
		}
		for _, word := range f[2:] {
			switch key, value, is := strings.Cut(word, "="); {
			case is:
				s.Annotations[key] = value
			case word == "gone":
				s.Ready = false
			case word == "critical":
				adj := int64(-997)
				l.Containers = append(l.Containers, cri.Container{ID: "c-" + f[0], SandboxID: s.ID, State: cri.Running, OOMScoreAdj: &adj})
			}
		}
		l.Sandboxes = append(l.Sandboxes, s)
	}
	return read.NewIndex(l)
}

func object(uid, name string, priority *int32) *eviction.Pod {
	p := &v1.Pod{}
	p.UID, p.Namespace, p.Name, p.Spec.Priority = types.UID(uid), "default", name, priority
	return eviction.NewPod(p)
}

var policy = eviction.Policy{AnnotationNamespaces: []string{"kube-system"}, ProtectedNamespaces: []string{"kube-system"}}

// Each running pod counts unless its priority is known, and as unprotected unless another rule
// protects it.
func TestCount(t *testing.T) {
	for _, c := range []struct {
		pod    string
		object *eviction.Pod
		want   api.UnknownPriority
	}{
		{"a default", nil, api.UnknownPriority{Pods: 1, Unprotected: 1}},
		{"a default gone", nil, api.UnknownPriority{}},
		{"a default", object("a", "a", new(int32(0))), api.UnknownPriority{}},
		{"a default", object("a", "a", nil), api.UnknownPriority{Pods: 1, Unprotected: 1}},
		{"a default", object("a", "other", new(int32(0))), api.UnknownPriority{Pods: 1, Unprotected: 1}},
		{"a default jettison/priority=7", nil, api.UnknownPriority{Pods: 1, Unprotected: 1}},
		{"a kube-system jettison/priority=7", nil, api.UnknownPriority{}},
		{"a kube-system jettison/priority=high", nil, api.UnknownPriority{Pods: 1}},
		{"a kube-system", nil, api.UnknownPriority{Pods: 1}},
		{"a default critical", nil, api.UnknownPriority{Pods: 1}},
		{"a default kubernetes.io/config.source=file", nil, api.UnknownPriority{Pods: 1}},
		{"a default kubernetes.io/config.source=api", nil, api.UnknownPriority{Pods: 1, Unprotected: 1}},
		{"self default", nil, api.UnknownPriority{Pods: 1}},
	} {
		got := Count(&policy, runs(c.pod), map[string]*eviction.Pod{"a": c.object}, "kubepods/burstable/podself/agent")
		if got != c.want {
			t.Errorf("count of pod %q = %+v, want %+v", c.pod, got, c.want)
		}
	}
}

// Before the first list the count is absent, not 0. It follows later changes.
func TestCountFollowsChanges(t *testing.T) {
	p := New(Options{Policy: policy, Self: func() string { return "" }, Log: nodetest.New(t).Log})
	if got := p.Count(); got != nil {
		t.Errorf("count before the first list = %+v, want nil", got)
	}
	p.Start()
	p.Tick(time.Unix(1, 0))
	p.OnPods(read.Index{})
	if got := p.Count(); got == nil || *got != (api.UnknownPriority{}) {
		t.Errorf("count of an empty list = %+v, want zeros", got)
	}
	p.OnPods(runs("a default", "b default", "c kube-system"))
	first := p.Count()
	p.OnObjects(map[string]*eviction.Pod{"a": object("a", "a", new(int32(0)))})
	if second := p.Count(); *first != (api.UnknownPriority{Pods: 3, Unprotected: 2}) || *second != (api.UnknownPriority{Pods: 2, Unprotected: 1}) {
		t.Errorf("counts before and after an object = %+v, %+v", first, second)
	}
	if allocs := testing.AllocsPerRun(10, func() { p.Tick(time.Unix(2, 0)); p.Count() }); allocs != 0 {
		t.Errorf("unchanged input made %v allocations, want none", allocs)
	}
}

// Unprotected pods are logged once: at the start, or after some minutes; and once when none are
// left.
func TestLog(t *testing.T) {
	const warning, resolved = "pods of unknown priority found", "no unprotected pod of unknown priority left"
	at := func(minutes int) time.Time { return time.Unix(int64(minutes)*60, 0) }
	logged := func(n *nodetest.Node) string {
		return fmt.Sprint(strings.Count(n.Text(), warning), " ", strings.Count(n.Text(), resolved))
	}
	known := map[string]*eviction.Pod{"a": object("a", "a", new(int32(0)))}
	for _, c := range []struct {
		name string
		do   func(p *Part)
		want string
	}{
		{"some at the start", func(p *Part) { p.OnPods(runs("a default")); p.Start(); p.Tick(at(0)); p.Tick(at(9)) }, "1 0"},
		{"none at the start", func(p *Part) { p.OnPods(runs("a kube-system")); p.Start(); p.Tick(at(0)); p.Tick(at(9)) }, "0 0"},
		{"a client sends objects late", func(p *Part) {
			p.Start()
			p.OnPods(runs("a default"))
			p.Tick(at(0))
			p.Tick(at(4))
			p.OnObjects(known)
			p.Tick(at(9))
		}, "0 0"},
		{"one pod after another, each with an object in time", func(p *Part) {
			for i := range 5 {
				p.OnPods(runs("a default"))
				p.OnObjects(nil)
				p.Tick(at(4 * i))
				p.OnObjects(known)
				p.Tick(at(4*i + 3))
			}
		}, "0 0"},
		{"no objects", func(p *Part) { p.OnPods(runs("a default")); p.Tick(at(0)); p.Tick(at(5)); p.Tick(at(9)) }, "1 0"},
		{"a client sends objects after the start", func(p *Part) {
			p.OnPods(runs("a default"))
			p.Start()
			p.OnObjects(known)
			p.Tick(at(0))
			p.OnObjects(nil)
			p.Tick(at(9))
		}, "1 1"},
	} {
		n := nodetest.New(t)
		c.do(New(Options{Policy: policy, Self: func() string { return "" }, Log: n.Log}))
		if got := logged(n); got != c.want {
			t.Errorf("%s: logged %s times, want %s:\n%s", c.name, got, c.want, n.Text())
		}
	}
}

// Each source of objects is listed with its number of pods and whether it is silent.
func TestOrigins(t *testing.T) {
	for want, p := range map[string]api.PodCount{
		"annotations only: no pod objects known": {Runtime: 3},
		"the kubelet's local pods API (3 pods)":  {Objects: 3, Kubelet: 3},
		"static manifests (1 pod)":               {Objects: 1},
		"clients of the agent's socket (2 pods)": {Objects: 2, Clients: 2},
		"the kubelet's local pods API (3 pods), static manifests (1 pod), clients of the agent's socket (2 pods), silent for 5m0s": {
			Objects: 6, Kubelet: 3, Clients: 2, Stale: 2,
		},
	} {
		if got := Origins(&p); got != want {
			t.Errorf("origins of objects = %q, want %q", got, want)
		}
	}
}

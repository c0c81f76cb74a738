package manifests

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read"
)

// manifest returns a manifest for "namespace/name" or "namespace/name#uid".
func manifest(text string, containers ...string) *v1.Pod {
	text, uid, _ := strings.Cut(text, "#")
	namespace, name, _ := strings.Cut(text, "/")
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c})
	}
	return p
}

// pod returns a pod of the runtime for "uid namespace/name source" and its containers; source "-":
// no annotation.
func pod(text string, containers ...string) *read.Pod {
	f := strings.Fields(text)
	namespace, name, _ := strings.Cut(f[1], "/")
	p := &read.Pod{PodRef: stats.PodReference{UID: f[0], Namespace: namespace, Name: name}, Annotations: map[string]string{}}
	if f[2] != "-" {
		p.Annotations[annotationSource] = f[2]
	}
	for _, c := range containers {
		p.Containers = append(p.Containers, cri.Container{Name: c})
	}
	return p
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		name      string
		manifests []*v1.Pod
		pods      []*read.Pod
		want      string // "uid:manifest ..." in any order
	}{
		{"nothing", nil, []*read.Pod{pod("u a/b file")}, ``},
		{"no pods", []*v1.Pod{manifest("a/b")}, nil, ``},
		{"the node's name after it", []*v1.Pod{manifest("kube-system/etcd")}, []*read.Pod{pod("u kube-system/etcd-n1 file")}, `u:etcd`},
		{"a node's name with dots and dashes", []*v1.Pod{manifest("a/b")}, []*read.Pod{pod("u a/b-ip-10-0-0-1.example.com file")}, `u:b`},
		{"the same name, no kubelet", []*v1.Pod{manifest("default/web")}, []*read.Pod{pod("u default/web -")}, `u:web`},
		{"the same name from a file", []*v1.Pod{manifest("default/web")}, []*read.Pod{pod("u default/web file")}, `u:web`},
		{"from an API server", []*v1.Pod{manifest("default/web")}, []*read.Pod{pod("u default/web api"), pod("v default/web-n1 api")}, ``},
		{"its UID, from an API server", []*v1.Pod{manifest("default/web#u")}, []*read.Pod{pod("u default/web api")}, ``},
		{"a longer name, no kubelet: a tenant's", []*v1.Pod{manifest("default/web")}, []*read.Pod{pod("u default/web-n1 -")}, ``},
		{"another namespace", []*v1.Pod{manifest("a/web")}, []*read.Pod{pod("u b/web-n1 file")}, ``},
		{"no dash", []*v1.Pod{manifest("a/web")}, []*read.Pod{pod("u a/website file")}, ``},
		{"nothing after the dash", []*v1.Pod{manifest("a/web")}, []*read.Pod{pod("u a/web- file")}, ``},
		{"an explicit UID", []*v1.Pod{manifest("a/web#u")}, []*read.Pod{pod("u a/web-n1 file")}, `u:web`},
		{"an explicit UID, no kubelet", []*v1.Pod{manifest("a/web#u")}, []*read.Pod{pod("u a/web -")}, `u:web`},
		{"an explicit UID by another name", []*v1.Pod{manifest("a/web#u")}, []*read.Pod{pod("u a/other file")}, ``},
		{"an explicit UID in another namespace: a tenant's", []*v1.Pod{manifest("a/web#u")}, []*read.Pod{pod("u b/web -")}, ``},
		{"an explicit UID by a longer name, no kubelet: a tenant's", []*v1.Pod{manifest("a/web#u")}, []*read.Pod{pod("u a/web-n1 -")}, ``},
		{"an explicit UID, and the pod of before", []*v1.Pod{manifest("a/web#u")}, []*read.Pod{pod("v a/web-n1 file")}, `v:web`},
		{"two pods during an update", []*v1.Pod{manifest("a/web")}, []*read.Pod{pod("u a/web-n1 file"), pod("v a/web-n1 file")}, `u:web v:web`},
		{"the longest name", []*v1.Pod{manifest("a/etcd"), manifest("a/etcd-events")},
			[]*read.Pod{pod("u a/etcd-n1 file"), pod("v a/etcd-events-n1 file")}, `u:etcd v:etcd-events`},
		{"the longest name, where the other's pod is not there", []*v1.Pod{manifest("a/etcd"), manifest("a/etcd-events")},
			[]*read.Pod{pod("v a/etcd-events-n1 file")}, `v:etcd-events`},
		{"all end with the node's name: no other etcd", []*v1.Pod{manifest("a/etcd")},
			[]*read.Pod{pod("u a/etcd-n1 file"), pod("v a/etcd-events-n1 file")}, `u:etcd`},
		{"the node's name is told by others too", []*v1.Pod{manifest("a/etcd")},
			[]*read.Pod{pod("v a/etcd-events-n1 file"), pod("w b/scheduler-n1 http"), pod("x b/web-7d-n2 api")}, ``},
		{"another's containers", []*v1.Pod{manifest("a/etcd", "etcd")}, []*read.Pod{pod("u a/etcd-events-n1 file", "events")}, ``},
		{"its containers", []*v1.Pod{manifest("a/etcd", "etcd", "backup")}, []*read.Pod{pod("u a/etcd-n1 file", "backup")}, `u:etcd`},
	} {
		index := read.Index{}
		for _, p := range c.pods {
			index[p.PodRef.UID] = p
		}
		want := map[string]string{}
		for _, m := range strings.Fields(c.want) {
			uid, name, _ := strings.Cut(m, ":")
			want[uid] = name
		}
		got := map[string]string{}
		for uid, m := range Match(c.manifests, index) {
			got[uid] = m.Name
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("matches of %s = %v, want %v", c.name, got, want)
		}
	}
}

func TestBind(t *testing.T) {
	m := manifest("a/etcd", "etcd")
	m.Annotations = map[string]string{"jettison/priority": "1", annotationSource: "api"}
	before := fmt.Sprint(m)
	got := Bind([]*v1.Pod{m}, read.Index{"u": pod("u a/etcd-n1 file")})
	o := got["u"]
	if len(got) != 1 || o == nil || o.UID != "u" || o.Name != "etcd-n1" || o.Namespace != "a" || o.Annotations[annotationSource] != "file" ||
		o.Annotations["jettison/priority"] != "1" || o.Spec.Containers[0].Name != "etcd" {
		t.Errorf("bound objects = %v, want one with the runtime's UID", got)
	}
	if fmt.Sprint(m) != before {
		t.Error("Bind modified the manifest")
	}
}

// A static pod's object shares the manifest's memory: a node has up to 110 of them. The manifest is
// unchanged, also if a caller adds to the object's quantities.
func TestStaticSharesTheManifest(t *testing.T) {
	m := manifest("kube-system/etcd", "etcd")
	m.Annotations = map[string]string{annotationSource: sourceAPI}
	m.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}
	before := m.DeepCopy()
	got := Static(m, stats.PodReference{UID: "u", Namespace: "kube-system", Name: "etcd-n1"})
	if got.UID != "u" || got.Name != "etcd-n1" || got.Annotations[annotationSource] != sourceFile {
		t.Errorf("object of the static pod = %+v", got.ObjectMeta)
	}
	if &got.Spec.Containers[0] != &m.Spec.Containers[0] {
		t.Error("containers were copied, want those of the manifest")
	}
	got.Spec.Resources.Requests[v1.ResourceMemory] = resource.MustParse("2Gi")
	if !reflect.DeepEqual(m, before) {
		t.Errorf("manifest = %+v, want it unchanged: %+v", m, before)
	}
}

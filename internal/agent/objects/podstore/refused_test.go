package podstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"jettison/cri"
	"jettison/stats/read"
)

// lists returns an index of pods of the runtime, given as "uid namespace/name".
func lists(pods ...string) read.Index {
	l := cri.Listing{}
	for _, p := range pods {
		uid, name, _ := strings.Cut(p, " ")
		namespace, name, _ := strings.Cut(name, "/")
		l.Sandboxes = append(l.Sandboxes, cri.PodSandbox{ID: "s-" + uid, UID: uid, Namespace: namespace, Name: name, Ready: true,
			Annotations: map[string]string{"kubernetes.io/config.source": "api"}})
	}
	return read.NewIndex(l)
}

func refused(s *Snapshot) []string {
	var out []string
	for _, r := range s.Refused {
		out = append(out, fmt.Sprintf("%s: %s/%s, not %s/%s", r.Runtime.UID, r.Runtime.Namespace, r.Runtime.Name, r.Object.Namespace, r.Object.Name))
	}
	return out
}

// An object is rejected if its namespace and name are not those of the runtime's pod with its UID,
// in either order of arrival. Others stay. It counts again when the runtime agrees.
func TestObjectOfAnotherPodIsRejected(t *testing.T) {
	s := New()
	put(t, s, false, text("a", 1), text("b", 1)) // of default/pod-a and default/pod-b
	if got := s.Snapshot(); len(got.Refused) != 0 || len(got.Pods) != 2 {
		t.Errorf("before the runtime's pods are known: pods %v, rejected %v; want none rejected", uids(got), refused(got))
	}
	s.SetRuntime(lists("a default/other", "b default/pod-b"))
	got := s.Snapshot()
	if want := []string{"a: default/other, not default/pod-a"}; !slices.Equal(refused(got), want) || !slices.Equal(uids(got), []string{"b"}) ||
		len(got.Objects) != 1 || got.Clients != 1 {
		t.Errorf("rejected = %v, want %v; known %v, %d objects, %d of clients", refused(got), want, uids(got), len(got.Objects), got.Clients)
	}
	s.SetRuntime(lists("a default/other", "b default/pod-b"))
	if s.Snapshot() != got {
		t.Error("new snapshot without a change")
	}
	put(t, s, false, text("b", 2), strings.Replace(text("c", 1), "default", "shop", 1))
	if got := s.Snapshot(); !slices.Equal(uids(got), []string{"b", "c"}) || len(got.Refused) != 1 {
		t.Errorf("after a put: known %v, rejected %v; want b, c and one rejected", uids(got), refused(got))
	}
	s.SetRuntime(lists("a default/pod-a", "c default/pod-c"))
	got = s.Snapshot()
	if want := []string{"c: default/pod-c, not shop/pod-c"}; !slices.Equal(refused(got), want) || !slices.Equal(uids(got), []string{"a", "b"}) {
		t.Errorf("rejected = %v, want %v; known %v, want a, b", refused(got), want, uids(got))
	}
	if s.Delete("c", ByRoot) != nil || len(s.Snapshot().Refused) != 0 {
		t.Error("rejected object not deleted")
	}
	if put(t, s, true, text("a", 1)); len(s.Snapshot().Pods) != 1 {
		t.Errorf("known pods after a replace = %v, want a", uids(s.Snapshot()))
	}
}

// A client cannot mark a pod as static or mirror; the manifest's mark counts.
func TestClientCannotMarkPodStatic(t *testing.T) {
	claiming := `{"metadata":{"uid":"h1","namespace":"kube-system","name":"etcd-n1","annotations":{"kubernetes.io/config.source":"file",
"kubernetes.io/config.mirror":"x","kubernetes.io/config.seen":"now","jettison/never-evict":"true"}}}`
	s := New()
	put(t, s, false, claiming)
	if got := s.Snapshot().Objects[0].Annotations; len(got) != 1 || got["jettison/never-evict"] != "true" {
		t.Errorf("annotations of a client's pod = %v, want only jettison/never-evict", got)
	}
	s.SetManifests([]*v1.Pod{manifest("etcd")})
	s.SetRuntime(read.NewIndex(running("h1", "etcd-n1")))
	if got := s.Snapshot().Objects[0].Annotations; len(got) != 1 || got["kubernetes.io/config.source"] != "file" {
		t.Errorf("annotations of the manifest's pod = %v, want only source file", got)
	}
}

// A tenant's oversized pod, which an API server accepts, does not affect other objects.
func TestOversizedPodAffectsNoOther(t *testing.T) {
	var annotations strings.Builder
	for i := range 1001 {
		fmt.Fprintf(&annotations, `"a/k%d":"",`, i)
	}
	tolerations := strings.Repeat(`{"key":"a"},`, 501)
	s := New()
	put(t, s, true, text("a", 1), `{"metadata":{"uid":"t","namespace":"tenant","name":"t","annotations":{`+annotations.String()+`"b":""}},
"spec":{"hostNetwork":true,"tolerations":[`+tolerations+`{}],"containers":[{"name":"c","ports":[`+strings.Repeat(`{"containerPort":1},`, 1001)+`{}]}]}}`)
	if got := uids(s.Snapshot()); !slices.Equal(got, []string{"a", "t"}) {
		t.Errorf("known pods = %v, want a and t", got)
	}
}

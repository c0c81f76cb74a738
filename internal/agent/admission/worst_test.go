package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/cri"
	"jettison/internal/agent/objects/podstore"
	"jettison/stats/read"
)

// worst returns an object with the largest allowed number of everything that a decision visits.
func worst(uid string, port int) string {
	repeat := func(n int, format string) string {
		var all []string
		for i := range n {
			all = append(all, strings.ReplaceAll(format, "#", fmt.Sprint(i)))
		}
		return strings.Join(all, ",")
	}
	resources := `"resources":{"requests":{` + repeat(45, `"example.com/r#":"1"`) + `,"cpu":"1m"}}`
	ports := repeat(1000, fmt.Sprintf(`{"containerPort":1,"hostPort":%d,"hostIP":"10.0.0.#"}`, port))
	return fmt.Sprintf(`{"metadata":{"uid":%q,"namespace":"default","name":%[1]q,"labels":{%s},"annotations":{%s}},"spec":{
		"containers":[{"name":"c","ports":[%s]},%s],"initContainers":[{"name":"s","restartPolicy":"Always",%s},%s],
		"securityContext":{"sysctls":[%s]},"tolerations":[%s],
		"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
			{"matchExpressions":[{"key":"k","operator":"NotIn","values":[%s]}]}]}}}}}`, uid,
		repeat(1000, `"l#":"v"`), repeat(1000, `"jettison/a#":"v"`), ports, repeat(99, `{"name":"c#"}`), resources, repeat(99, `{"name":"i#"}`),
		repeat(100, `{"name":"kernel.shm_rmid_forced","value":"1"}`), repeat(500, `{"key":"a#"}`), repeat(990, `"v#"`))
}

// worstGate returns a gate on a node with as many host ports as clients may claim, and a pod with
// the same ports on other addresses: each is looked up, and none is in use.
func worstGate(t testing.TB) (*Admission, *Part, *cri.PodSandbox) {
	sysctls, err := admit.NewSysctls(nil)
	if err != nil {
		t.Fatal(err)
	}
	taint := v1.Taint{Key: "x", Effect: v1.TaintEffectNoExecute}
	a, part := gate(t, list("1000", "10Gi", "2000"), Options{Node: Node{Name: "n", Sysctls: sysctls, Taints: []v1.Taint{taint}}})
	store, l := podstore.New(), cri.Listing{}
	if _, _, err := store.Put(strings.NewReader("["+worst("asks", 80)+"]"), false, podstore.ByRoot); err != nil {
		t.Fatal(err)
	}
	others := 0
	for ; ; others++ {
		text := fmt.Sprintf(`[{"metadata":{"uid":"p%d","namespace":"default","name":"p%[1]d"},"spec":{"containers":[{"name":"c","ports":[%s{"hostPort":1}]}]}}]`,
			others, strings.Repeat(`{"hostPort":80,"hostIP":"10.1.0.1"},`, 999))
		if _, _, err := store.Put(strings.NewReader(text), false, podstore.ByRoot); err != nil {
			break
		}
		l.Sandboxes = append(l.Sandboxes, *sandbox(t, "default/p%d bu cpu=1m", others))
	}
	if others < 50 {
		t.Fatalf("only %d pods fit into the store, want at least 50", others)
	}
	part.OnPods(read.NewIndex(l))
	part.OnObjects(store.Snapshot())
	part.Publish(time.Now(), nil, false)
	return a, part, sandbox(t, "default/asks bu")
}

// The largest object is rejected for its one reason well within the runtime's two-second timeout.
func TestLargestObject(t *testing.T) {
	a, _, box := worstGate(t)
	best, now := time.Hour, time.Now()
	for range 20 {
		began := time.Now()
		if why := a.Reject(now, box, ""); !strings.Contains(why, "TaintToleration") {
			t.Fatalf("refusal of the largest object = %q", why)
		}
		best = min(best, time.Since(began))
	}
	t.Logf("%v", best)
	if best > time.Second { // allows for a busy machine and the race detector: it takes a few milliseconds
		t.Errorf("fastest answer for the largest object took %v", best)
	}
}

func BenchmarkRejectTheWorst(b *testing.B) {
	a, _, box := worstGate(b)
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		a.Reject(now, box, "")
	}
}

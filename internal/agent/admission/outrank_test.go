package admission

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/cri"
	"jettison/internal/agent/objects/podstore"
	"jettison/stats"
	"jettison/stats/read"
)

// admitRecorder records the pods admitted next to reservations, and preempts none.
type admitRecorder struct {
	Preemptor
	uids []string
}

func (l *admitRecorder) OnAdmitted(p admit.PodAttributes)             { l.uids = append(l.uids, string(p.Pod.UID)) }
func (l *admitRecorder) RequestPreemption(admit.PodAttributes) string { return "" }

// gateWithReservation returns a gate on a node for one pod, with a reservation for a critical pod.
func gateWithReservation(t *testing.T) (*Admission, *Part, *admitRecorder) {
	by := &admitRecorder{}
	held := admit.Held{UID: "first", Namespace: "kube-system", Name: "first", Priority: stats.Some[int32](systemCriticalPriority), Reserved: true}
	a, part := gate(t, list("10", "10Gi", "1"), Options{
		Preemptor: by, Reservations: func(time.Time) []admit.Held { return []admit.Held{held} },
	})
	part.Publish(time.Now(), nil, false)
	return a, part, by
}

// A more critical pod gets a reservation immediately if a trusted source gives its priority. Then
// the reservation's pod has to wait.
func TestAMoreCriticalPodDoesNotWait(t *testing.T) {
	const object = `[{"metadata":{"uid":"next","namespace":"default","name":"next"},"spec":{"priority":2000000001,"containers":[{"name":"c"}]}}]`
	root, member := podstore.ByRoot, podstore.ByMember
	for what, c := range map[string]struct {
		line  string
		by    *podstore.Role // who provided an object; nil: no object
		letIn bool
	}{
		"priority from the runtime":       {line: "kube-system/next bu jettison/priority=2000000001", letIn: true},
		"equal priority":                  {line: "kube-system/next bu jettison/priority=2000000000"},
		"unknown priority":                {line: "kube-system/next bu"},
		"priority from a tenant":          {line: "default/next bu jettison/priority=2000000001"},
		"priority from root's object":     {line: "default/next bu", by: &root, letIn: true},
		"priority from a member's object": {line: "default/next bu", by: &member},
		"no UID":                          {line: "kube-system/next bu jettison/priority=2000000001 uid="},
	} {
		name, _, _ := strings.Cut(c.line, " ")
		a, part, by := gateWithReservation(t)
		if c.by != nil {
			store := podstore.New()
			if _, _, err := store.Put(strings.NewReader(object), false, *c.by); err != nil {
				t.Fatal(err)
			}
			part.OnObjects(store.Snapshot())
			part.Publish(time.Now(), nil, false)
		}
		now := time.Now()
		if c.by != nil || !strings.Contains(c.line, "jettison/") {
			checkAsk(t, a, member, name, c.letIn)
			checkAsk(t, a, root, name, true)
		}
		if why := a.Reject(now, sandbox(t, "%s", c.line), ""); (why == "") != c.letIn || len(by.uids) > 0 != c.letIn {
			t.Errorf("%s: refusal %q, admitted %v, want admitted: %v", what, why, by.uids, c.letIn)
		}
		first := a.Reject(now, sandbox(t, "kube-system/first bu jettison/priority=2000000000"), "")
		if (first == "") == c.letIn || c.letIn && !strings.Contains(first, "OutOfpods: Pod was rejected: Node didn't have enough resource: pods") {
			t.Errorf("%s: refusal of the reservation's pod afterwards = %q", what, first)
		}
	}
}

// checkAsk checks the answer to a client's request for admission of the more critical pod.
func checkAsk(t *testing.T, a *Admission, by podstore.Role, name string, want bool) {
	t.Helper()
	p := priority("next", systemCriticalPriority+1).Pod
	p.Namespace, p.Name, _ = strings.Cut(name, "/")
	if got, err := a.Ask(t.Context(), p, by); err != nil || got.Admit != want || !want && got.Reason != "OutOfpods" {
		t.Errorf("%s, asked by %v: %+v, %v, want admitted: %v", name, by, got, err, want)
	}
}

// A member gets the gate's answer: a pod gets reserved resources only if a manifest, root or the
// runtime confirms its priority.
func TestMemberGetsNoReservation(t *testing.T) {
	manifest := &v1.Pod{}
	manifest.UID, manifest.Namespace, manifest.Name = "next", "kube-system", "next"
	manifest.Spec.PriorityClassName = "system-node-critical"
	for what, c := range map[string]struct {
		runtime  string // its ended pod in the runtime; empty: none
		manifest *v1.Pod
		priority int32
		want     bool
	}{
		"no source":                            {priority: 1},
		"equal priority":                       {priority: 0, manifest: manifest},
		"manifest":                             {priority: 1000, manifest: manifest, want: true},
		"manifest with a lower priority":       {priority: 1001, manifest: manifest},
		"runtime":                              {priority: 1, runtime: "kube-system/next bu jettison/priority=2000000001 gone", want: true},
		"runtime with a lower priority":        {priority: 2, runtime: "kube-system/next bu jettison/priority=2000000001 gone"},
		"annotation in a tenant's runtime pod": {priority: 1, runtime: "default/next bu jettison/priority=2000000001 gone"},
	} {
		a, part, _ := gateWithReservation(t)
		p := priority("next", systemCriticalPriority+c.priority).Pod
		p.Namespace, p.Name = "kube-system", "next"
		if c.runtime != "" {
			p.Namespace, _, _ = strings.Cut(c.runtime, "/")
			part.OnPods(read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{*sandbox(t, "%s", c.runtime)}}))
		}
		if c.manifest != nil {
			store := podstore.New()
			store.SetManifests([]*v1.Pod{c.manifest})
			part.OnObjects(store.Snapshot())
		}
		part.Publish(time.Now(), nil, false)
		if got, err := a.Ask(t.Context(), p, podstore.ByMember); err != nil || got.Admit != c.want || !c.want && got.Reason != "OutOfpods" {
			t.Errorf("%s: decision %+v, %v, want admitted: %v", what, got, err, c.want)
		}
	}
}

// A pod admitted on its reservation is about to run: no more critical pod, and no other attempt at
// the pod, gets its resources.
func TestUsedReservationIsNotOutranked(t *testing.T) {
	for _, other := range []string{"kube-system/next bu jettison/priority=2000000001", "kube-system/first bu jettison/priority=2000000000 uid=again"} {
		a, _, _ := gateWithReservation(t)
		now := time.Now()
		if why := a.Reject(now, sandbox(t, "kube-system/first bu jettison/priority=2000000000"), ""); why != "" {
			t.Fatal(why)
		}
		if why := a.Reject(now, sandbox(t, "%s", other), ""); !strings.Contains(why, "OutOfpods") {
			t.Errorf("%s: refusal %q, want OutOfpods", other, why)
		}
		if a.SandboxRemoved("first"); a.Reject(now, sandbox(t, "%s", other), "") != "" {
			t.Errorf("%s: refused because of a pod that did not start", other)
		}
	}
}

// A client's more critical pod gets the reservation, and the loop drops the old one. For an equally
// or less critical pod it stays.
func TestReservationIsOutranked(t *testing.T) {
	for rank, want := range map[int32][]string{-1: {"x"}, 0: {"x"}, 1: {"y"}} {
		w := newWard(1)
		if got := <-w.ask(t.Context(), critical("x")); !got.result.Admit {
			t.Fatalf("answer for the first pod = %+v, want admitted", got)
		}
		got := <-w.ask(t.Context(), priority("y", systemCriticalPriority+rank))
		if got.result.Admit != (rank > 0) || !slices.Equal(w.reserved(), want) || !slices.Equal(w.published, want) {
			t.Errorf("rank %+d: answer %+v, reserved for %v, published %v, want %v", rank, got, w.reserved(), w.published, want)
		}
	}
}

// Only as many reservations are dropped as needed, the least critical first, also for a pod that
// the gate admits.
func TestOnlyOutrankedReservationsAreDropped(t *testing.T) {
	w := newWard(3)
	for i, uid := range []string{"c", "a", "b"} {
		if got := <-w.ask(t.Context(), priority(uid, systemCriticalPriority+int32(i))); !got.result.Admit {
			t.Fatalf("answer for %s = %+v, want admitted", uid, got)
		}
	}
	if got := <-w.ask(t.Context(), priority("x", systemCriticalPriority+5)); !got.result.Admit || !slices.Equal(w.reserved(), []string{"a", "b", "x"}) {
		t.Errorf("answer %+v, reserved for %v, want admitted and [a b x]", got, w.reserved())
	}
	running := priority("y", systemCriticalPriority+5)
	w.pods = append(w.pods, admit.HeldBy(running))
	w.OnAdmitted(running)
	w.OnAdmitted(ordinary("o"))
	if len(w.requests) != 1 {
		t.Fatalf("%d requests are queued, want one", len(w.requests))
	}
	if w.OnRequest(t.Context(), w.now, <-w.Requests()); !slices.Equal(w.reserved(), []string{"b", "x"}) || !slices.Equal(w.published, w.reserved()) {
		t.Errorf("reserved for %v, published %v, want [b x]", w.reserved(), w.published)
	}
	for range 2 * maxQueued { // the runtime does not wait for the loop
		w.OnAdmitted(running)
	}
}

// A more critical pod takes over a preemption in progress: it awaits the same victim, and the first
// pod is rejected.
func TestPreemptionIsOutranked(t *testing.T) {
	w := newWard(1, "a")
	first, second := w.ask(t.Context(), critical("x")), w.ask(t.Context(), priority("y", systemCriticalPriority+1))
	w.checkPending(t, first)
	w.checkPending(t, second)
	w.markDead("a")
	w.Advance(w.now)
	if got := <-first; got.result.Admit || got.result.Reason != "OutOfpods" {
		t.Errorf("answer for the outranked pod = %+v, want OutOfpods", got)
	}
	if got := <-second; !got.result.Admit || !slices.Equal(w.stopped, []string{"a"}) || !slices.Equal(w.reserved(), []string{"y"}) {
		t.Errorf("answer %+v, stopped %v, reserved for %v, want admitted, [a] and [y]", got, w.stopped, w.reserved())
	}
}

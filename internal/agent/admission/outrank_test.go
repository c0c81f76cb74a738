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

// letInBeside notes who was let in beside promises, and makes no room.
type letInBeside struct {
	Preemptor
	uids []string
}

func (l *letInBeside) LetIn(p admit.PodAttributes)     { l.uids = append(l.uids, string(p.Pod.UID)) }
func (l *letInBeside) Want(admit.PodAttributes) string { return "" }

// oneRoom is a gate of a node for one pod, whose room is kept for a critical one.
func oneRoom(t *testing.T) (*Admission, *Part, *letInBeside) {
	by := &letInBeside{}
	held := admit.Held{UID: "first", Namespace: "kube-system", Name: "first", Priority: stats.Some[int32](systemCriticalPriority), Kept: true}
	a, part := gate(t, list("10", "10Gi", "1"), Options{
		Preemptor: by, Promised: func(time.Time) []admit.Held { return []admit.Held{held} },
	})
	part.Publish(time.Now(), nil, false)
	return a, part, by
}

// Room that is kept for a critical pod is a more critical one's, if that it is one is said by who may take from others by it: it does not
// wait until the promise lapses, and the first one has to.
func TestAMoreCriticalPodDoesNotWait(t *testing.T) {
	const object = `[{"metadata":{"uid":"next","namespace":"default","name":"next"},"spec":{"priority":2000000001,"containers":[{"name":"c"}]}}]`
	root, member := podstore.ByRoot, podstore.ByMember
	for what, c := range map[string]struct {
		line  string
		by    *podstore.By // who put an object; nil: there is none
		letIn bool
	}{
		"the runtime says so":   {line: "kube-system/next bu jettison/priority=2000000001", letIn: true},
		"as critical":           {line: "kube-system/next bu jettison/priority=2000000000"},
		"not known":             {line: "kube-system/next bu"},
		"a tenant says so":      {line: "default/next bu jettison/priority=2000000001"},
		"root's object":         {line: "default/next bu", by: &root, letIn: true},
		"a member's object":     {line: "default/next bu", by: &member},
		"nobody could tell who": {line: "kube-system/next bu jettison/priority=2000000001 uid="},
	} {
		name, _, _ := strings.Cut(c.line, " ")
		a, part, by := oneRoom(t)
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
			asks(t, a, member, name, c.letIn)
			asks(t, a, root, name, true)
		}
		if why := a.Refuse(now, sandbox(t, "%s", c.line), ""); (why == "") != c.letIn || len(by.uids) > 0 != c.letIn {
			t.Errorf("%s: %q, let in %v", what, why, by.uids)
		}
		first := a.Refuse(now, sandbox(t, "kube-system/first bu jettison/priority=2000000000"), "")
		if (first == "") == c.letIn || c.letIn && !strings.Contains(first, "OutOfpods: Pod was rejected: Node didn't have enough resource: pods") {
			t.Errorf("%s: then the first: %q", what, first)
		}
	}
}

// requests whether the node takes the more critical pod, by a client's word.
func asks(t *testing.T, a *Admission, by podstore.By, name string, want bool) {
	t.Helper()
	p := priority("next", systemCriticalPriority+1).Pod
	p.Namespace, p.Name, _ = strings.Cut(name, "/")
	if got, err := a.Ask(t.Context(), p, by); err != nil || got.Admit != want || !want && got.Reason != "OutOfpods" {
		t.Errorf("%s, asked by %v: %+v, %v", name, by, got, err)
	}
}

// A member that asks is told what the gate would do: for a pod of which a manifest, root or the runtime tells that it is as critical it has
// what is kept, else not.
func TestAMembersAskTakesNothingThatIsKept(t *testing.T) {
	manifest := &v1.Pod{}
	manifest.UID, manifest.Namespace, manifest.Name = "next", "kube-system", "next"
	manifest.Spec.PriorityClassName = "system-node-critical"
	for what, c := range map[string]struct {
		runtime  string // its pod, which is gone; empty: it has none
		manifest *v1.Pod
		priority int32
		want     bool
	}{
		"nobody tells":          {priority: 1},
		"no more critical":      {priority: 0, manifest: manifest},
		"a manifest":            {priority: 1000, manifest: manifest, want: true},
		"less by the manifest":  {priority: 1001, manifest: manifest},
		"the runtime":           {priority: 1, runtime: "kube-system/next bu jettison/priority=2000000001 gone", want: true},
		"less by the runtime":   {priority: 2, runtime: "kube-system/next bu jettison/priority=2000000001 gone"},
		"a tenant's annotation": {priority: 1, runtime: "default/next bu jettison/priority=2000000001 gone"},
	} {
		a, part, _ := oneRoom(t)
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
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

// Who was let in on a promise is about to run: no other has its room, be it more critical, or another attempt at the same pod.
func TestAPromiseThatWasTakenUpIsNone(t *testing.T) {
	for _, other := range []string{"kube-system/next bu jettison/priority=2000000001", "kube-system/first bu jettison/priority=2000000000 uid=again"} {
		a, _, _ := oneRoom(t)
		now := time.Now()
		if why := a.Refuse(now, sandbox(t, "kube-system/first bu jettison/priority=2000000000"), ""); why != "" {
			t.Fatal(why)
		}
		if why := a.Refuse(now, sandbox(t, "%s", other), ""); !strings.Contains(why, "OutOfpods") {
			t.Errorf("%s: %q", other, why)
		}
		if a.Left("first"); a.Refuse(now, sandbox(t, "%s", other), "") != "" {
			t.Errorf("%s: the first did not start, and is in the way", other)
		}
	}
}

// A client of a more critical pod gets what is kept, and the loop keeps it for nobody else; for one as critical, or less, it is kept on.
func TestAPromiseIsOutranked(t *testing.T) {
	for rank, want := range map[int32][]string{-1: {"x"}, 0: {"x"}, 1: {"y"}} {
		w := newWard(1)
		if got := <-w.ask(t.Context(), critical("x")); !got.result.Admit {
			t.Fatalf("%+v", got)
		}
		got := <-w.ask(t.Context(), priority("y", systemCriticalPriority+rank))
		if got.result.Admit != (rank > 0) || !slices.Equal(w.kept(), want) || !slices.Equal(w.published, want) {
			t.Errorf("%+d: %+v, kept for %v, published %v", rank, got, w.kept(), w.published)
		}
	}
}

// Only as many promises go as have to, the least critical first; the runtime letting in a pod has them go, too.
func TestOnlyWhatIsOutrankedGoes(t *testing.T) {
	w := newWard(3)
	for i, uid := range []string{"c", "a", "b"} {
		if got := <-w.ask(t.Context(), priority(uid, systemCriticalPriority+int32(i))); !got.result.Admit {
			t.Fatalf("%+v", got)
		}
	}
	if got := <-w.ask(t.Context(), priority("x", systemCriticalPriority+5)); !got.result.Admit || !slices.Equal(w.kept(), []string{"a", "b", "x"}) {
		t.Errorf("%+v, kept for %v", got, w.kept())
	}
	running := priority("y", systemCriticalPriority+5)
	w.pods = append(w.pods, admit.HeldBy(running))
	w.LetIn(running)
	w.LetIn(ordinary("o"))
	if len(w.requests) != 1 {
		t.Fatalf("%d are told of", len(w.requests))
	}
	if w.OnRequest(t.Context(), w.now, <-w.Requests()); !slices.Equal(w.kept(), []string{"b", "x"}) || !slices.Equal(w.published, w.kept()) {
		t.Errorf("kept for %v", w.kept())
	}
	for range 2 * maxQueued { // and the runtime does not wait for the loop
		w.LetIn(running)
	}
}

// Room that is being made for one pod is a more critical one's that asks meanwhile: it awaits the same victim, and the first is refused.
func TestRoomThatIsBeingMadeIsOutranked(t *testing.T) {
	w := newWard(1, "a")
	first, second := w.ask(t.Context(), critical("x")), w.ask(t.Context(), priority("y", systemCriticalPriority+1))
	w.still(t, first)
	w.still(t, second)
	w.dead("a")
	w.Advance(w.now)
	if got := <-first; got.result.Admit || got.result.Reason != "OutOfpods" {
		t.Errorf("%+v", got)
	}
	if got := <-second; !got.result.Admit || !slices.Equal(w.stopped, []string{"a"}) || !slices.Equal(w.kept(), []string{"y"}) {
		t.Errorf("%+v, stopped %v, kept for %v", got, w.stopped, w.kept())
	}
}

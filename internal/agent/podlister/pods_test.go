package podlister

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"jettison/cri"
	"jettison/cri/nri"
	"jettison/internal/base/logthrottle"
	"jettison/stats"
	"jettison/stats/read"
	"jettison/stats/read/podindex"
)

const uid = "12345678-1234-1234-1234-123456789abc"

// listing returns a runtime's list with one pod.
func listing(name string) *cri.Listing {
	return &cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s", UID: uid, Name: name, Namespace: "default", Ready: true}}}
}

func index(name string) read.Index { return read.NewIndex(*listing(name)) }

// events returns the plugin's data on that pod.
func events(name string) nri.Pods { return nri.Pods{uid: listing(name)} }

func newPods(t *testing.T, changed func(read.Index)) (*Pods, *bytes.Buffer) {
	t.Helper()
	client, err := cri.Dial("unix:///nowhere", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	var text bytes.Buffer
	return NewPods(New(client, nil), logthrottle.New(slog.New(slog.NewTextHandler(&text, nil))), changed), &text
}

// asked reads whether a list was requested.
func asked(p *Pods) bool {
	select {
	case <-p.refresh:
		return true
	default:
		return false
	}
}

// Loss and recovery of the runtime are logged once each, and the known pods stay.
func TestRuntimeUnreachable(t *testing.T) {
	changes := 0
	p, text := newPods(t, func(read.Index) { changes++ })
	p.OnListed(Update{Pods: index("a")})
	for range 3 {
		p.OnListed(Update{Err: errors.New("down")})
	}
	if !p.Unreachable() || len(p.All()) != 1 || changes != 1 {
		t.Errorf("runtime unreachable %v, pods %v, %d changes, want one of each", p.Unreachable(), p.All(), changes)
	}
	for range 3 {
		p.OnListed(Update{})
	}
	for _, line := range []string{"runtime unreachable", "runtime reachable again"} {
		if got := strings.Count(text.String(), line); got != 1 {
			t.Errorf("%q is logged %d times, want once:\n%s", line, got, text)
		}
	}
	if p.Unreachable() || len(p.All()) != 0 {
		t.Errorf("after the recovery: unreachable %v, pods %v", p.Unreachable(), p.All())
	}
}

// A pod with a status that is too large is logged once while it exists, and counted.
func TestOversizedStatus(t *testing.T) {
	p, text := newPods(t, func(read.Index) {})
	refused := listing("a")
	refused.Containers = []cri.Container{{ID: "c", SandboxID: "s", Refused: true}}
	for i, l := range []*cri.Listing{listing("a"), refused, refused, {}, refused} {
		p.OnListed(Update{Pods: read.NewIndex(*l)})
		want := []int{0, 1, 1, 1, 2}[i]
		if got := strings.Count(text.String(), "pod status too large"); got != want || (p.Oversized() == 1) != (l == refused) {
			t.Errorf("list %d: logged %d times, want %d; %d pods counted\n%s", i, got, want, p.Oversized(), text)
		}
	}
	if !strings.Contains(text.String(), "pod=default/a") {
		t.Errorf("the log lacks the pod's name: %s", text)
	}
}

// When events stop, pods known only from them stay until the next list, which is requested.
func TestEventsThatStop(t *testing.T) {
	p, _ := newPods(t, func(read.Index) {})
	p.OnEvents(time.Now(), events("a"), true)
	if asked(p) || p.Name(stats.PodReference{UID: uid}) != "default/a" {
		t.Errorf("a list was requested, or the pod is unknown: %v", p.All())
	}
	p.OnEvents(time.Now(), nil, false)
	if !asked(p) || len(p.All()) != 1 {
		t.Errorf("no list was requested, or the pod is forgotten: %v", p.All())
	}
	if p.OnListed(Update{}); len(p.All()) != 0 {
		t.Errorf("pods after an empty list = %v, want none", p.All())
	}
}

// For a pod that only the kernel knows a limited number of lists is requested: its cgroup may be
// left over. Then it delays no kill.
func TestRequestsForALeftoverCgroupAreLimited(t *testing.T) {
	p, _ := newPods(t, func(read.Index) {})
	stranger := func(_ read.Index, visit func(string)) { visit(uid) }
	look := stats.Summary{Pods: []stats.PodStats{{PodRef: stats.PodReference{UID: uid}, Populated: stats.Some(true)}}}
	if !p.HasUnlisted(&look) {
		t.Error("HasUnlisted = false for an unlisted pod")
	}
	times := 0
	for range 3 * maxRequests {
		if p.RequestIfNeeded(time.Now(), false, stranger); asked(p) {
			times++
		}
	}
	if times != maxRequests || p.HasUnlisted(&look) {
		t.Errorf("%d lists were requested, want %d; HasUnlisted = %v", times, maxRequests, p.HasUnlisted(&look))
	}
	look.Pods[0].Announced = true
	if p.requested = map[string]int{}; p.HasUnlisted(&look) {
		t.Error("HasUnlisted = true for a listed pod")
	}
}

// With events the hierarchy is searched only once per searchInterval, but each second while memory
// may be short.
func TestSearchInterval(t *testing.T) {
	p, _ := newPods(t, func(read.Index) {})
	now, searches := time.Now(), 0
	tick := func(after time.Duration, near bool, want int) {
		t.Helper()
		p.RequestIfNeeded(now.Add(after), near, func(read.Index, func(string)) { searches++ })
		if asked(p) != near || searches != want {
			t.Errorf("after %v: %d searches, want %d; a list must be requested: %v", after, searches, want, near)
		}
	}
	tick(0, false, 1)
	tick(time.Second, false, 2)
	p.OnEvents(time.Now(), nil, true)
	tick(2*time.Second, false, 3) // a pod started or ended
	tick(3*time.Second, false, 3)
	tick(4*time.Second, true, 4)
	tick(4*time.Second+searchInterval-1, false, 4)
	tick(4*time.Second+searchInterval, false, 5)
}

// A pod that the runtime never named is displayed with its UID.
func TestNames(t *testing.T) {
	p, _ := newPods(t, func(read.Index) {})
	if got := p.Name(stats.PodReference{UID: uid}); got != "uid:"+uid {
		t.Errorf("name of an unknown pod = %s", got)
	}
	p.OnListed(Update{Pods: index("a")})
	if got := p.Name(stats.PodReference{UID: uid, Name: "known", Namespace: "before"}); got != "before/known" {
		t.Errorf("name of a named reference = %s, want before/known", got)
	}
	if got := p.Ref(stats.PodReference{UID: uid}); got.Name != "a" {
		t.Errorf("completed reference = %+v, want name a", got)
	}
}

// A sandbox that events show as stopped or removed has ended when they show none of its containers
// any more; a list is requested, because the last one still contains it. The end of events, or a
// runtime without sandbox processes, ends no sandbox.
func TestEndedSinceTheList(t *testing.T) {
	p, _ := newPods(t, func(read.Index) {})
	pod := func(ready bool, containers ...cri.Container) nri.Pods {
		l := listing("a")
		l.Sandboxes[0].Ready, l.Containers = ready, containers
		return nri.Pods{uid: l}
	}
	lives := cri.Container{ID: "c", SandboxID: "s", State: cri.Running}
	full := read.NewIndex(*pod(true, lives)[uid])
	other := &cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "other", UID: "other", Name: "a", Namespace: "default", Ready: true}}}
	for _, c := range []struct {
		what         string
		pods         nri.Pods
		all          bool
		list         read.Index
		ended, asked bool
	}{
		{"it runs", pod(true, lives), true, full, false, false},
		{"events end", nil, false, nil, false, true},
		{"events return", pod(true, lives), true, nil, false, false},
		{"the sandbox is stopped, its container dies", pod(false, lives), true, nil, false, true},
		{"the container is dead", pod(false), true, nil, true, false},
		{"an older list, then removed", nil, true, full, true, true},
		{"another pod of its name runs", nri.Pods{"other": other}, true, nil, true, false},
		{"the list lacks it", nil, true, read.NewIndex(*other), false, true},
		{"a sandbox that was never ready", pod(false), true, full, false, false},
		{"and is removed", nil, true, nil, true, true},
	} {
		if p.OnEvents(time.Now(), c.pods, c.all); c.list != nil {
			p.OnListed(Update{Pods: c.list})
		}
		if got := p.Ended(uid, "s"); got != c.ended || asked(p) != c.asked {
			t.Errorf("%s: ended %v, want %v; a list must be requested: %v", c.what, got, c.ended, c.asked)
		}
	}
	p.OnCleaned([]string{"s"})
	if !p.Ended(uid, "s") || !asked(p) {
		t.Error("a cleaned sandbox has not ended, or no list was requested")
	}
	if p.OnListed(Update{}); len(p.fromEvents.stopped) != 0 {
		t.Errorf("stopped sandboxes after an empty list = %v, want none", p.fromEvents.stopped)
	}
}

// A container that was dying when events ended holds the resources of its stopped sandbox while
// lists show it running.
func TestDyingContainerOutlivesTheEvents(t *testing.T) {
	p, _ := newPods(t, func(read.Index) {})
	pod := func(ready bool, state cri.ContainerState) *cri.Listing {
		l := listing("a")
		l.Sandboxes[0].Ready, l.Containers = ready, []cri.Container{{ID: "c", SandboxID: "s", State: state}}
		return l
	}
	events := func(l *cri.Listing, all bool) func() {
		return func() {
			if l == nil {
				p.OnEvents(time.Now(), nil, all)
			} else {
				p.OnEvents(time.Now(), nri.Pods{uid: l}, all)
			}
		}
	}
	listed := func(l *cri.Listing) func() { return func() { p.OnListed(Update{Pods: read.NewIndex(*l)}) } }
	for _, c := range []struct {
		what  string
		do    func()
		ended bool
	}{
		{"it runs", events(pod(true, cri.Running), true), false},
		{"it is listed", listed(pod(true, cri.Running)), false},
		{"stopped, its container dies", events(pod(false, cri.Running), true), false},
		{"events are lost", events(nil, false), false},
		{"a list shows it running", listed(pod(false, cri.Running)), false},
		{"a list shows it dead", listed(pod(false, cri.Exited)), true},
		{"an older list shows it running", listed(pod(false, cri.Running)), false},
		{"it is cleaned up", func() { p.OnCleaned([]string{"s"}) }, true},
		{"an older list after the clean-up", listed(pod(true, cri.Running)), true},
	} {
		if c.do(); p.Ended(uid, "s") != c.ended {
			t.Errorf("%s: ended %v, want %v", c.what, !c.ended, c.ended)
		}
	}
}

// The first container outside its pod's cgroup is logged, once. From then on events of containers
// request a list, because they do not show where a container runs. A pod that is merged with events
// keeps what the list found.
func TestContainersOutsideAreLoggedOnce(t *testing.T) {
	p, text := newPods(t, func(read.Index) {})
	split := func() read.Index {
		x := index("a")
		x[uid].Outside = []stats.OutsideContainer{{ID: "c", Process: stats.ProcessID{PID: 7}}}
		return x
	}
	grown := func(id string) nri.Pods {
		l := listing("a")
		l.Containers = []cri.Container{{ID: id, SandboxID: "s", State: cri.Running}}
		return nri.Pods{uid: l}
	}
	p.OnListed(Update{Pods: index("a")})
	p.OnEvents(time.Now(), grown("c"), true)
	if asked(p) || text.Len() > 0 {
		t.Errorf("an ordinary node: a list was requested, or logged:\n%s", text)
	}
	for range 2 {
		p.OnListed(Update{Pods: split()})
	}
	p.OnEvents(time.Now(), grown("d"), true)
	if got := strings.Count(text.String(), "containers outside their pods' cgroups"); got != 1 || !asked(p) ||
		!strings.Contains(text.String(), "process=7") {
		t.Errorf("logged %d times, want once, with process 7; a list must be requested\n%s", got, text)
	}
	if got := p.All()[uid]; len(got.Outside) != 1 || len(got.Containers) != 1 {
		t.Errorf("merged pod = %+v, want one container of the events and one outside", got)
	}
}

// A container that two lists in a row do not locate is logged once, by kind: without a process of the
// runtime, or with one elsewhere. One list alone may be late.
func TestUnlocatedContainersAreLoggedOnce(t *testing.T) {
	for cgroup, want := range map[string]string{"": "container process unknown", "kata_overhead/s": "container cannot be located"} {
		p, text := newPods(t, func(read.Index) {})
		lists := func(ids ...string) {
			for _, id := range ids {
				x := index("a")
				x[uid].Unlocated = []podindex.Unlocated{{ID: id, Cgroup: cgroup}}
				p.OnListed(Update{Pods: x})
			}
		}
		if lists("c", "d"); text.Len() > 0 {
			t.Errorf("logged after one list of each container:\n%s", text)
		}
		lists("d", "d", "e", "e")
		if got := strings.Count(text.String(), want); got != 1 || strings.Count(text.String(), "\n") != 1 ||
			!strings.Contains(text.String(), "container=d") {
			t.Errorf("logged %d times, want %q of container d once:\n%s", got, want, text)
		}
	}
}

// A sandbox may end without an event, as each one from before a restart of containerd. It is gone once
// a list lacks it that began a minute after its first event; until then the runtime may not list it yet.
func TestSandboxEndsWithoutEvent(t *testing.T) {
	p, _ := newPods(t, func(read.Index) {})
	began := time.Now()
	listed := func(after time.Duration, l *cri.Listing) {
		p.OnListed(Update{Began: began.Add(after), Pods: read.NewIndex(*l)})
	}
	again := listing("a")
	again.Sandboxes = append(again.Sandboxes, cri.PodSandbox{ID: "s2", UID: uid, Name: "a", Namespace: "default", Ready: true})
	for _, c := range []struct {
		what string
		do   func()
		want []string
	}{
		{"events begin", func() { p.OnEvents(began, events("a"), true) }, []string{"s ready=true"}},
		{"a list lacks a new sandbox", func() { listed(59*time.Second, &cri.Listing{}) }, []string{"s ready=true"}},
		{"a list lacks an old one", func() { listed(time.Minute, &cri.Listing{}) }, nil},
		{"an event of another pod", func() { p.OnEvents(began.Add(time.Minute), events("a"), true) }, nil},
		{"the pod starts again", func() { p.OnEvents(began.Add(time.Minute), nri.Pods{uid: again}, true) }, []string{"s2 ready=true"}},
		{"a list has both", func() { listed(3*time.Minute, again) }, []string{"s ready=true", "s2 ready=true"}},
		{"a list lacks the first again", func() {
			listed(4*time.Minute, &cri.Listing{Sandboxes: again.Sandboxes[1:]})
		}, []string{"s2 ready=true"}},
		{"events begin anew", func() {
			p.OnEvents(began.Add(5*time.Minute), nil, false)
			p.OnEvents(began.Add(5*time.Minute), events("a"), true)
		}, []string{"s ready=true", "s2 ready=true"}},
	} {
		if c.do(); !slices.Equal(ids(p.All())[uid], c.want) {
			t.Errorf("%s: sandboxes %v, want %v", c.what, ids(p.All())[uid], c.want)
		}
	}
}

// A sandbox that lists lack is not gone if a container starts in it. CRI-O announces a sandbox and
// lists it only when the kubelet asks again, if the kubelet's first request timed out (1.37
// server/sandbox_run_linux.go finalizeSandboxCreation).
func TestContainerStartsInUnlistedSandbox(t *testing.T) {
	p, _ := newPods(t, func(read.Index) {})
	began := time.Now()
	p.OnEvents(began, events("a"), true)
	if p.OnListed(Update{Began: began.Add(time.Minute), Pods: read.Index{}}); len(p.All()) > 0 {
		t.Fatalf("pods = %v, want none: the list lacks the sandbox", ids(p.All()))
	}
	started := listing("a")
	started.Containers = []cri.Container{{ID: "c", SandboxID: "s", State: cri.Running}}
	p.OnEvents(began.Add(2*time.Minute), nri.Pods{uid: started}, true)
	if got := ids(p.All())[uid]; !slices.Equal(got, []string{"s ready=true", "s/c running"}) {
		t.Errorf("pod = %v, want the sandbox with its container", got)
	}
}

// A list that may lack sandboxes shows the end of none.
func TestIncompleteListEndsNoSandbox(t *testing.T) {
	p, _ := newPods(t, func(read.Index) {})
	p.OnEvents(time.Now().Add(-time.Hour), events("a"), true)
	if p.OnListed(Update{Pods: read.Index{}}); len(p.All()) != 1 {
		t.Errorf("pods = %v, want the pod, which a list in parts lacks while it has no container", ids(p.All()))
	}
}

// containerd may report the start of a container after its end: the list shows that it has exited. A
// completed pod then holds nothing.
func TestStartAfterTheEnd(t *testing.T) {
	p, _ := newPods(t, func(read.Index) {})
	pod := func(state cri.ContainerState) *cri.Listing {
		l := listing("a")
		l.Sandboxes[0].Ready, l.Containers = false, []cri.Container{{ID: "c", SandboxID: "s", State: state}}
		return l
	}
	p.OnEvents(time.Now(), nri.Pods{uid: pod(cri.Running)}, true)
	p.OnListed(Update{Began: time.Now(), Pods: read.NewIndex(*pod(cri.Exited))})
	if got := p.All()[uid]; len(got.Containers) > 0 || len(got.Exited) != 1 {
		t.Errorf("containers = %+v, exited %+v, want only the exited one", got.Containers, got.Exited)
	}
}

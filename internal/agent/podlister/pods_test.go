package podlister

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"jettison/cri"
	"jettison/cri/nri"
	"jettison/internal/base/logthrottle"
	"jettison/stats"
	"jettison/stats/read"
)

const uid = "12345678-1234-1234-1234-123456789abc"

// listing is what a runtime says that has one pod.
func listing(name string) *cri.Listing {
	return &cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s", UID: uid, Name: name, Namespace: "default", Ready: true}}}
}

func index(name string) read.Index { return read.NewIndex(*listing(name)) }

// events are what it told its plugin then.
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

// asked takes whether the runtime is to be listed at once.
func asked(p *Pods) bool {
	select {
	case <-p.refresh:
		return true
	default:
		return false
	}
}

// The runtime's loss and its return are one line each, and what was known of it stays.
func TestTheLossOfTheRuntime(t *testing.T) {
	changes := 0
	p, text := newPods(t, func(read.Index) { changes++ })
	p.OnListed(Update{Pods: index("a")})
	for range 3 {
		p.OnListed(Update{Err: errors.New("down")})
	}
	if !p.Lost() || len(p.All()) != 1 || changes != 1 {
		t.Errorf("lost %v, %v, %d changes", p.Lost(), p.All(), changes)
	}
	for range 3 {
		p.OnListed(Update{})
	}
	for _, line := range []string{"lost the runtime", "the runtime is back"} {
		if got := strings.Count(text.String(), line); got != 1 {
			t.Errorf("%q is logged %d times:\n%s", line, got, text)
		}
	}
	if p.Lost() || len(p.All()) != 0 {
		t.Errorf("lost %v, %v", p.Lost(), p.All())
	}
}

// A pod whose status is too large is one line, as long as it is there, and counted.
func TestAStatusThatIsRefused(t *testing.T) {
	p, text := newPods(t, func(read.Index) {})
	refused := listing("a")
	refused.Containers = []cri.Container{{ID: "c", SandboxID: "s", Refused: true}}
	for i, l := range []*cri.Listing{listing("a"), refused, refused, {}, refused} {
		p.OnListed(Update{Pods: read.NewIndex(*l)})
		want := []int{0, 1, 1, 1, 2}[i]
		if got := strings.Count(text.String(), "larger than the agent takes"); got != want || (p.Refused() == 1) != (l == refused) {
			t.Errorf("list %d: %d lines, want %d; %d counted\n%s", i, got, want, p.Refused(), text)
		}
	}
	if !strings.Contains(text.String(), "pod=default/a") {
		t.Error(text)
	}
}

// What only events told stays known until the next list, when they stop coming; a list is asked for then.
func TestEventsThatStop(t *testing.T) {
	p, _ := newPods(t, func(read.Index) {})
	p.OnTold(events("a"), true)
	if asked(p) || p.Name(stats.PodReference{UID: uid}) != "default/a" {
		t.Errorf("asked, or not known: %v", p.All())
	}
	p.OnTold(nil, false)
	if !asked(p) || len(p.All()) != 1 {
		t.Errorf("not asked, or forgotten: %v", p.All())
	}
	if p.OnListed(Update{}); len(p.All()) != 0 {
		t.Errorf("the list has none: %v", p.All())
	}
}

// A pod that only the kernel knows is asked about a few times, not for ever: its cgroup may be left over. It holds up no kill then.
func TestALeftOverCgroupIsNotAskedAboutForEver(t *testing.T) {
	p, _ := newPods(t, func(read.Index) {})
	stranger := func(_ read.Index, visit func(string)) { visit(uid) }
	look := stats.Summary{Pods: []stats.PodStats{{PodRef: stats.PodReference{UID: uid}, Populated: stats.Some(true)}}}
	if !p.Strangers(&look) {
		t.Error("no stranger")
	}
	times := 0
	for range 3 * asks {
		if p.KeepUp(time.Now(), false, stranger); asked(p) {
			times++
		}
	}
	if times != asks || p.Strangers(&look) {
		t.Errorf("asked %d times, want %d; a stranger still: %v", times, asks, p.Strangers(&look))
	}
	look.Pods[0].Announced = true
	if p.asked = map[string]int{}; p.Strangers(&look) {
		t.Error("a pod that the runtime told of is a stranger")
	}
}

// Where the runtime tells of its pods the hierarchy is searched now and then only, but each second while memory may be short.
func TestHowOftenStrangersAreLookedFor(t *testing.T) {
	p, _ := newPods(t, func(read.Index) {})
	now, searches := time.Now(), 0
	tick := func(after time.Duration, near bool, want int) {
		t.Helper()
		p.KeepUp(now.Add(after), near, func(read.Index, func(string)) { searches++ })
		if asked(p) != near || searches != want {
			t.Errorf("after %v: %d searches, want %d", after, searches, want)
		}
	}
	tick(0, false, 1)
	tick(time.Second, false, 2)
	p.OnTold(nil, true)
	tick(2*time.Second, false, 3) // something came or went
	tick(3*time.Second, false, 3)
	tick(4*time.Second, true, 4)
	tick(4*time.Second+countTold-1, false, 4)
	tick(4*time.Second+countTold, false, 5)
}

// A pod that the runtime never named is called by its UID.
func TestNames(t *testing.T) {
	p, _ := newPods(t, func(read.Index) {})
	if got := p.Name(stats.PodReference{UID: uid}); got != "uid:"+uid {
		t.Error(got)
	}
	p.OnListed(Update{Pods: index("a")})
	if got := p.Name(stats.PodReference{UID: uid, Name: "known", Namespace: "before"}); got != "before/known" {
		t.Error(got)
	}
	if got := p.Ref(stats.PodReference{UID: uid}); got.Name != "a" {
		t.Errorf("%+v", got)
	}
}

// A sandbox that events say was stopped or removed has ended, once they tell of no container of it any more; the list, which has it still, is
// asked for. That events tell no more, or that a runtime has no process for a sandbox, ends none.
func TestWhatHasEndedSinceTheList(t *testing.T) {
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
		{"events tell no more", nil, false, nil, false, true},
		{"they do again", pod(true, lives), true, nil, false, false},
		{"it is stopped, and its container dies", pod(false, lives), true, nil, false, true},
		{"which is dead", pod(false), true, nil, true, false},
		{"an older list comes", nil, true, full, true, true}, // and it is removed
		{"another one of its name runs", nri.Pods{"other": other}, true, nil, true, false},
		{"the list has it no more", nil, true, read.NewIndex(*other), false, true},
		{"one that was never ready", pod(false), true, full, false, false},
		{"and goes", nil, true, nil, true, true},
	} {
		if p.OnTold(c.pods, c.all); c.list != nil {
			p.OnListed(Update{Pods: c.list})
		}
		if got := p.Ended(uid, "s"); got != c.ended || asked(p) != c.asked {
			t.Errorf("%s: ended %v, want %v; asked, want %v", c.what, got, c.ended, c.asked)
		}
	}
	p.Cleaned([]string{"s"})
	if !p.Ended(uid, "s") || !asked(p) {
		t.Error("what an eviction has left is taken for a pod")
	}
	if p.OnListed(Update{}); len(p.fromEvents.stopped) != 0 {
		t.Errorf("remembered for ever: %v", p.fromEvents.stopped)
	}
}

// A container that was dying when events stopped holds the room of its stopped sandbox for as long as lists have it running, and no longer.
func TestADyingContainerOutlivesTheEvents(t *testing.T) {
	p, _ := newPods(t, func(read.Index) {})
	pod := func(ready bool, state cri.ContainerState) *cri.Listing {
		l := listing("a")
		l.Sandboxes[0].Ready, l.Containers = ready, []cri.Container{{ID: "c", SandboxID: "s", State: state}}
		return l
	}
	told := func(l *cri.Listing, all bool) func() {
		return func() {
			if l == nil {
				p.OnTold(nil, all)
			} else {
				p.OnTold(nri.Pods{uid: l}, all)
			}
		}
	}
	listed := func(l *cri.Listing) func() { return func() { p.OnListed(Update{Pods: read.NewIndex(*l)}) } }
	for _, c := range []struct {
		what  string
		do    func()
		ended bool
	}{
		{"it runs", told(pod(true, cri.Running), true), false},
		{"and is listed", listed(pod(true, cri.Running)), false},
		{"stopped, its container dies", told(pod(false, cri.Running), true), false},
		{"events are lost", told(nil, false), false},
		{"a list has it alive", listed(pod(false, cri.Running)), false},
		{"and dead", listed(pod(false, cri.Exited)), true},
		{"or alive, for an older list", listed(pod(false, cri.Running)), false},
		{"it is cleaned up", func() { p.Cleaned([]string{"s"}) }, true},
		{"and an older list comes", listed(pod(true, cri.Running)), true},
	} {
		if c.do(); p.Ended(uid, "s") != c.ended {
			t.Errorf("%s: ended %v", c.what, !c.ended)
		}
	}
}

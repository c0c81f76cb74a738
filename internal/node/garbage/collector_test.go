package garbage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri/critest"
	"jettison/internal/node/config"
	"jettison/reclaim"
)

// An unnamed pod with nothing alive counts as gone after podGoneAfter. All its leftovers are
// removed, none of the other pod, and a second pass has no steps.
func TestAPodThatIsGone(t *testing.T) {
	n := newNode(t)
	n.sandbox("s-a", uidA, false, time.Hour)
	n.container("c-a", "s-a", uidA, exited, time.Hour, "sha256:x")
	n.sandbox("s-b", uidB, true, time.Hour)
	n.container("c-b", "s-b", uidB, running, time.Hour, "sha256:x")
	n.image("sha256:x", 10)
	gone := n.file("log/pods/default_a_" + uidA + "/main/0.log")
	kept := n.file("log/pods/default_b_" + uidB + "/main/0.log")
	id := strings.Repeat("a", 64)
	n.link("/log/pods/default_a_"+uidA+"/main/1.log", "var/log/containers/a_default_main-"+id+".log")
	n.link("/log/pods/default_b_"+uidB+"/main/0.log", "var/log/containers/b_default_main-"+strings.Repeat("b", 64)+".log")
	n.link("/log/pods/none", "var/log/containers/mine.log")

	if r := n.pass(Everything, reclaim.Periodic); len(r.Done) != 1 || r.Done[0].Action != reclaim.RemoveLink {
		t.Fatalf("steps before podGoneAfter = %+v, want only a link", r.Done)
	}
	if pods, at := n.Waiting(); pods != 1 || !at.Equal(n.clock.Add(5*time.Minute)) {
		t.Errorf("%d pods wait, the first until %v", pods, at)
	}
	n.sleep(5 * time.Minute)
	r := n.pass(Everything, reclaim.Periodic)
	n.want(r, "container c-a", "sandbox s-a")
	if exists(filepath.Dir(filepath.Dir(gone))) || !exists(kept) || exists(filepath.Join(n.root, "var/log/containers/a_default_main-"+id+".log")) {
		t.Error("the wrong logs or links are left")
	}
	if !exists(filepath.Join(n.root, "var/log/containers/mine.log")) {
		t.Error("a foreign link is gone")
	}
	if d := outcome(t, r, "default_a_"+uidA); d.Outcome != Removed || d.Freed.V < 4096 {
		t.Errorf("outcome of the logs = %+v, want removed with at least 4096 bytes", d)
	}
	if r := n.pass(Everything, reclaim.Periodic); len(r.Plan.Steps) > 0 || len(r.Done) > 0 {
		t.Errorf("steps of the second pass = %+v, want none", r.Plan.Steps)
	}
}

// Each step is checked again: the plan's lists may be out of date.
func TestWhatChangedSinceThePlanStays(t *testing.T) {
	for _, c := range []struct {
		name, id, why string
		change        func(n *node)
	}{
		{"a container runs", "c-a", "container is running", func(n *node) {
			n.r.ContainerStatuses["c-a"] = &runtimev1.ContainerStatus{Id: "c-a", State: running}
		}},
		{"a container was created", "c-a", "container was created recently", func(n *node) {
			n.r.ContainerStatuses["c-a"] = &runtimev1.ContainerStatus{Id: "c-a", State: created, CreatedAt: n.clock.UnixNano()}
		}},
		{"a container was created at no known time", "c-a", "container has no creation time", func(n *node) {
			n.r.ContainerStatuses["c-a"] = &runtimev1.ContainerStatus{Id: "c-a", State: created, CreatedAt: -1}
		}},
		{"a sandbox is ready", "s-b", "sandbox is ready", func(n *node) {
			n.r.SandboxStatuses["s-b"] = &runtimev1.PodSandboxStatus{Id: "s-b", State: runtimev1.PodSandboxState_SANDBOX_READY}
		}},
		{"its container could not be removed", "s-a", "sandbox has 1 containers", func(n *node) { n.r.Fail["RemoveContainer"] = errors.New("no") }},
		{"an image is pinned", "sha256:x", "image is pinned", func(n *node) {
			n.r.Answer["ImageStatus"] = func(m any) any {
				if i := m.(*runtimev1.ImageStatusResponse).Image; i != nil {
					i.Pinned = true
				}
				return m
			}
		}},
		{"an image is used", "sha256:x", "image is in use by a container", func(n *node) {
			first := true
			n.r.Answer["ListContainers"] = func(m any) any {
				if out := m.(*runtimev1.ListContainersResponse); !first {
					out.Containers = append(out.Containers, &runtimev1.Container{Id: "new", State: running, ImageId: "sha256:x"})
				}
				first = false
				return m
			}
		}},
		{"an image is a volume", "sha256:x", "image is in use by a container", func(n *node) {
			n.r.Answer["ImageFsInfo"] = func(m any) any { // the last call of the look
				n.r.Containers = append(n.r.Containers, &runtimev1.Container{Id: "new", State: running})
				n.r.ContainerStatuses["new"] = &runtimev1.ContainerStatus{Id: "new", State: running, Mounts: []*runtimev1.Mount{{Image: &runtimev1.ImageSpec{Image: "sha256:x:1"}}}}
				return m
			}
		}},
		{"a sandbox waits for its image", "sha256:x", "has no container yet", func(n *node) {
			first := true
			n.r.Answer["ListPodSandbox"] = func(m any) any {
				if out := m.(*runtimev1.ListPodSandboxResponse); !first {
					out.Items = append(out.Items, &runtimev1.PodSandbox{Id: "new", CreatedAt: n.clock.UnixNano()})
				}
				first = false
				return m
			}
		}},
		{"the pod is named", "default_a_" + uidA, "pod is now named", func(n *node) {
			n.changeKnown(Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Active}, Synced: true})
		}},
		{"the clients are unknown", "default_a_" + uidA, "list of named pods is incomplete", func(n *node) { n.changeKnown(Known{}) }},
		{"the pod is back", "default_a_" + uidA, "pod was restarted", (*node).restartPod},
		{"the pod of a container is back", "c-a", "pod was restarted", (*node).restartPod},
		{"the pod of a sandbox is back", "s-a", "pod was restarted", (*node).restartPod},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.open(func(o *Options) { o.PodGoneAfter = 0 })
			n.other = 900
			n.sandbox("s-a", uidA, false, time.Hour)
			n.container("c-a", "s-a", uidA, exited, time.Hour, "sha256:y")
			n.sandbox("s-b", uidB, false, time.Hour)
			n.image("sha256:x", 50)
			logs := n.file("log/pods/default_a_" + uidA + "/main/0.log")
			n.seen()
			c.change(n)
			r := n.pass(Everything, reclaim.Periodic)
			d := outcome(t, r, c.id)
			if d.Outcome != Skipped || !strings.Contains(d.Why, c.why) || d.Err != nil {
				t.Errorf("%v, %q, %v; want it skipped: %s", d.Outcome, d.Why, d.Err, c.why)
			}
			for _, what := range n.removed() {
				if strings.HasSuffix(what, " "+c.id) {
					t.Errorf("removed %s although it changed after the plan", what)
				}
			}
			if strings.HasPrefix(c.id, "default") && !exists(logs) {
				t.Error("the logs are gone")
			}
		})
	}
}

// The log of a dead container stays while another container of its pod uses it: without a kubelet
// all attempts may share one log.
func TestALogThatAnotherContainerHas(t *testing.T) {
	for name, c := range map[string]struct {
		others string // log of the running container
		stays  bool
	}{
		"the same":                {"0.log", true},
		"one that begins with it": {"0.log.1", true},
		"another":                 {"1.log", false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Active}, Synced: true})
			dir := "/log/pods/default_a_" + uidA + "/main/"
			log := n.file(dir + "0.log")
			n.sandbox("s", uidA, true, time.Hour)
			for i, file := range []string{"0.log", "2.log", c.others} {
				id, state := fmt.Sprint("c", i), exited
				if i == 2 {
					state = running
				}
				n.container(id, "s", uidA, state, time.Hour-time.Duration(i)*time.Minute, "")
				n.r.ContainerStatuses[id] = &runtimev1.ContainerStatus{Id: id, State: state, LogPath: dir + file}
			}
			n.want(n.pass(Containers, reclaim.Periodic), "container c0")
			if exists(log) != c.stays {
				t.Errorf("log exists = %v, want %v", !c.stays, c.stays)
			}
		})
	}
}

// A running container that does not report its log path protects the logs of its pod, but no container, and is queried once per pass.
func TestAContainerThatDoesNotTellItsLog(t *testing.T) {
	n := newNode(t)
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Active}, Synced: true})
	path := "/log/pods/default_a_" + uidA + "/main/0.log"
	log := n.file(path)
	for i := range 4 {
		id := fmt.Sprint("c", i)
		n.container(id, "s", uidA, exited, time.Hour-time.Duration(i)*time.Minute, "")
		n.r.ContainerStatuses[id] = &runtimev1.ContainerStatus{Id: id, State: exited, LogPath: strings.Replace(path, "0.log", id, 1)}
	}
	n.r.ContainerStatuses["c0"].LogPath = path
	n.container("hung", "s", uidA, running, time.Hour, "")
	asked := 0
	n.r.Answer["ContainerStatus"] = func(m any) any {
		if out := m.(*runtimev1.ContainerStatusResponse); out.Status.Id == "hung" {
			out.Status = nil
			asked++
		}
		return m
	}
	n.want(n.pass(Containers, reclaim.Periodic), "container c0", "container c1", "container c2")
	if !exists(log) || asked != 1 {
		t.Errorf("asked %d times; the log is there: %v", asked, exists(log))
	}
}

// A container without the kubelet's label belongs to the pod of its sandbox, ready or not.
func TestAPodThatIsBackWithoutALabel(t *testing.T) {
	n := newNode(t)
	n.open(func(o *Options) { o.PodGoneAfter = 0 })
	n.sandbox("s", uidA, false, time.Hour)
	log := n.file("log/pods/default_a_" + uidA + "/main/0.log")
	first := true
	n.r.Answer["ListContainers"] = func(m any) any {
		if out := m.(*runtimev1.ListContainersResponse); !first {
			out.Containers = append(out.Containers, &runtimev1.Container{Id: "new", PodSandboxId: "s", State: running})
		}
		first = false
		return m
	}
	r := n.pass(Containers, reclaim.Periodic)
	if d := outcome(t, r, "default_a_"+uidA); d.Outcome != Skipped || !exists(log) {
		t.Errorf("outcome of the logs = %+v, want skipped and the log kept", d)
	}
}

// restartPod gives pod A a ready sandbox after the plan was made.
func (n *node) restartPod() {
	first := true
	n.r.Answer["ListPodSandbox"] = func(m any) any {
		if out := m.(*runtimev1.ListPodSandboxResponse); !first {
			out.Items = append(out.Items, &runtimev1.PodSandbox{Id: "new", Metadata: &runtimev1.PodSandboxMetadata{Uid: uidA}, CreatedAt: 1})
		}
		first = false
		return m
	}
}

// changeKnown changes the known pods after the plan was made.
func (n *node) changeKnown(next Known) {
	old, first := *n.known.Load(), true
	n.o.Known = func() Known {
		if first {
			first = false
			return old
		}
		return next
	}
}

func TestAnUnknownContainerIsStoppedFirst(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *critest.Runtime)
		want   Outcome
	}{
		{"it stops", func(*critest.Runtime) {}, Removed},
		{"it cannot be stopped", func(r *critest.Runtime) { r.Fail["StopContainer"] = errors.New("no") }, Failed},
		{"it is still unknown", func(r *critest.Runtime) {
			r.ContainerStatuses["c"] = &runtimev1.ContainerStatus{Id: "c", State: unknown}
		}, Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
			n.sandbox("s", uidA, false, time.Hour)
			n.container("c", "s", uidA, unknown, time.Hour, "")
			c.change(n.r)
			r := n.pass(Containers, reclaim.Periodic)
			if d := outcome(t, r, "c"); d.Outcome != c.want || n.r.Calls("StopContainer") != 1 {
				t.Errorf("outcome = %v, %v, want %v after one StopContainer", d.Outcome, d.Err, c.want)
			}
			if slices.Contains(n.removed(), "container c") != (c.want == Removed) {
				t.Errorf("removed %v, want the container only for outcome %v", n.removed(), Removed)
			}
		})
	}
}

// The log of a container is removed with it, including its rotated files. A log path elsewhere is
// not removed.
func TestTheLogOfAContainerGoesWithIt(t *testing.T) {
	n := newNode(t)
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Active}, Synced: true})
	n.sandbox("s", uidA, true, time.Hour)
	dir := "log/pods/default_a_" + uidA + "/main/"
	var logs []string
	for i, path := range []string{"/" + dir + "0.log", "/etc/passwd", "/" + dir + "../main/2.log"} {
		id := fmt.Sprint("c", i)
		n.container(id, "s", uidA, exited, time.Hour-time.Duration(i)*time.Minute, "")
		n.r.ContainerStatuses[id] = &runtimev1.ContainerStatus{Id: id, State: exited, LogPath: path}
		logs = append(logs, n.file(fmt.Sprint(dir, i, ".log")))
	}
	n.container("newest", "s", uidA, exited, time.Minute, "")
	rotated, passwd := n.file(dir+"0.log.20260101-000000.gz"), n.file("etc/passwd")
	r := n.pass(Containers, reclaim.Periodic)
	n.want(r, "container c0", "container c1", "container c2")
	if exists(logs[0]) || exists(rotated) || !exists(logs[1]) || !exists(logs[2]) || !exists(passwd) {
		t.Error("the wrong logs are left")
	}
	if d := outcome(t, r, "c1"); d.Err == nil || d.Outcome != Removed {
		t.Errorf("a log elsewhere is no word: %+v", d)
	}
}

func TestOneFailureHoldsUpNothing(t *testing.T) {
	n := newNode(t)
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted, uidB: reclaim.Evicted}, Synced: true})
	n.sandbox("s-a", uidA, false, time.Hour)
	n.sandbox("s-b", uidB, false, time.Minute)
	n.limit = 50 * time.Millisecond
	n.r.Hang["StopPodSandbox"] = true         // the call of the first step hangs
	n.r.Answer["Version"] = func(m any) any { // called after the failure; the other calls get no limit
		n.r.Hang["StopPodSandbox"], n.limit = false, 0
		return m
	}
	r := n.pass(Containers, reclaim.Periodic)
	if d := outcome(t, r, "s-a"); d.Outcome != Failed || !errors.Is(d.Err, context.DeadlineExceeded) {
		t.Fatalf("outcome = %v, %v, want failed by a timeout", d.Outcome, d.Err)
	}
	n.want(r, "sandbox s-b")
	// The step is retried after a minute, and not before.
	if d := outcome(t, n.pass(Containers, reclaim.Periodic), "s-a"); d.Outcome != Skipped || !strings.Contains(d.Why, "failed 1 times") {
		t.Errorf("outcome = %v, %s, want skipped by the backoff", d.Outcome, d.Why)
	}
	n.sleep(backoffFirst)
	n.want(n.pass(Containers, reclaim.Periodic), "sandbox s-b", "sandbox s-a")
	if len(n.backoff) != 0 {
		t.Errorf("what worked is still remembered: %v", n.backoff)
	}
}

// Several hanging calls in a row end the pass, because each takes its whole timeout. The next pass
// begins with other steps.
func TestCallsThatAreNotAnswered(t *testing.T) {
	n := newNode(t)
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
	for i := range 5 {
		n.container(fmt.Sprint("c", i), "s", uidA, exited, time.Hour-time.Duration(i)*time.Minute, "")
	}
	n.limit, n.r.Hang["RemoveContainer"] = 20*time.Millisecond, true
	r := n.pass(Containers, reclaim.Periodic)
	if r.Err == nil || r.Count(Failed) != maxTimeouts || r.Count(Skipped) != 2 || len(n.backoff) != maxTimeouts {
		t.Errorf("error %v, steps %+v, want %d timeouts and the rest skipped", r.Err, r.Done, maxTimeouts)
	}
	n.r.Change(func() { clear(n.r.Hang) })
	n.limit = 0
	n.want(n.pass(Containers, reclaim.Periodic), "container c3", "container c4")
}

// If the runtime stops answering, the pass ends, and its steps get no backoff.
func TestTheRuntimeIsLostInTheMiddle(t *testing.T) {
	n := newNode(t)
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
	for i := range 4 {
		n.container(fmt.Sprint("c", i), "s", uidA, exited, time.Hour-time.Duration(i)*time.Minute, "")
	}
	gone := errors.New("gone")
	n.r.Answer["RemoveContainer"] = func(m any) any {
		if len(n.r.Removed) == 2 {
			n.r.Fail["ContainerStatus"], n.r.Fail["Version"] = gone, gone
		}
		return m
	}
	r := n.pass(Containers, reclaim.Periodic)
	if !errors.Is(r.Err, errLost) || r.Count(Removed) != 2 || r.Count(Failed) != 1 || r.Count(Skipped) != 1 || len(n.backoff) > 0 {
		t.Errorf("error %v, steps %+v, want errLost after two removals and no backoff", r.Err, r.Done)
	}
	n.r.Change(func() { clear(n.r.Fail); clear(n.r.Answer) })
	n.want(n.pass(Containers, reclaim.Periodic), "container c0", "container c1", "container c2", "container c3")
}

func TestTheRuntimeDoesNotAnswerAtAll(t *testing.T) {
	n := newNode(t)
	n.r.Fail["ListContainers"] = errors.New("no")
	r := n.pass(Everything, reclaim.Periodic)
	if r.Err == nil || len(r.Done) > 0 {
		t.Errorf("result without an answer = %+v, want an error and no steps", r)
	}
	n.r.Change(func() { clear(n.r.Fail); n.r.Fail["ListImages"] = errors.New("no") })
	if r := n.pass(Images, reclaim.Periodic); r.Err == nil {
		t.Error("no error without a list of images")
	}
}

// A slow runtime postpones passes, except under disk pressure.
func TestASlowRuntime(t *testing.T) {
	n := newNode(t)
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
	n.container("c", "s", uidA, exited, time.Hour, "")
	n.now = time.Now
	n.slow, n.r.Delay["ListContainers"] = 10*time.Millisecond, 30*time.Millisecond
	if r := n.pass(Containers, reclaim.Periodic); r.Postponed == "" || len(r.Done) > 0 || len(r.Plan.Steps) != 1 {
		t.Errorf("result with a slow runtime = %+v, want a postponed pass with one planned step", r)
	}
	n.want(n.pass(Containers, reclaim.DiskPressure), "container c")
}

// Waiting for the list of another caller does not count as a slow runtime: it neither postpones a
// pass nor prolongs the time for which lists stay fresh.
func TestAListOfAnotherIsNoSlowRuntime(t *testing.T) {
	const held, slow = time.Second, 400 * time.Millisecond
	for name, look := range map[string]func(n *node){
		"a pass": func(n *node) {
			n.want(n.pass(Containers, reclaim.Periodic), "container c")
		},
		"a step": func(n *node) {
			x := &run{c: n.Collector, ctx: t.Context(), r: &Result{}}
			if v, err := x.list(nil); err != nil || v.slow != "" || x.listsFor >= freshMax {
				t.Errorf("list = %+v, %v, fresh for %v, want not slow and below %v", v, err, x.listsFor, freshMax)
			}
		},
		"images": func(n *node) {
			v := &view{look: &reclaim.Look{}}
			if err := n.readImages(t.Context(), v); err != nil || v.slow != "" {
				t.Errorf("readImages = %v, slow %q, want not slow", err, v.slow)
			}
		},
	} {
		n := newNode(t)
		n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
		n.container("c", "s", uidA, exited, time.Hour, "")
		n.now, n.slow, n.r.Hang["ListImages"] = time.Now, slow, true
		ctx, end := context.WithCancel(t.Context())
		go func() { _, _ = n.o.Runtime.ListImages(ctx) }()
		for tick := time.NewTicker(time.Millisecond); n.r.Calls("ListImages") == 0; {
			<-tick.C
		}
		n.r.Change(func() { clear(n.r.Hang) })
		time.AfterFunc(held, end)
		began := time.Now()
		if look(n); time.Since(began) < held*9/10 {
			t.Errorf("%s did not wait for the list of the other caller", name)
		}
	}
}

// A runtime that stays slow postpones passes for a limited time: each kind has a pass repeatedly.
func TestARuntimeThatStaysSlow(t *testing.T) {
	n := newNode(t)
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
	n.slow = -1 // every list counts as slow
	for i := range 4 * (maxPostponed + 1) {
		before := n.r.Calls("ListContainers")
		n.container(fmt.Sprint("c", i), "s", uidA, exited, time.Hour, "")
		what, off := Containers, i%(maxPostponed+1) < maxPostponed
		if r := n.pass(Images, reclaim.Periodic); (r.Postponed != "") != off { // each kind has its own count
			t.Errorf("images, pass %d: put off %q, want %v", i, r.Postponed, off)
		}
		if r := n.pass(what, reclaim.Periodic); (r.Postponed != "") != off || (r.Count(Removed) == 0) != off {
			t.Errorf("pass %d: put off %q, want %v; %d removed", i, r.Postponed, off, r.Count(Removed))
		}
		if lists := n.r.Calls("ListContainers") - before; off && i%(maxPostponed+1) > 0 && lists > 0 {
			t.Errorf("postponed pass %d took %d lists", i, lists)
		}
	}
	if left := n.removed(); len(left) != 4*(maxPostponed+1) {
		t.Errorf("removed %v, want %d objects", left, 4*(maxPostponed+1))
	}
}

// Hanging removals delay only one pass: the next one begins with the other removals, even if these
// come later in the plan.
func TestRemovalsThatHangBlockNoRelief(t *testing.T) {
	n := newNode(t)
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
	n.limit = 20 * time.Millisecond
	for i := range 5 {
		n.container(fmt.Sprint("c", i), "s", uidA, exited, time.Hour-time.Duration(i)*time.Minute, "")
	}
	n.r.HangOn = map[string]bool{"c0": true, "c1": true, "c2": true}
	for i, want := range []string{"", "container c3 container c4", "container c3 container c4", "container c3 container c4 container c5"} {
		if i == 3 { // the backoff of the hanging removals has ended
			n.sleep(2 * time.Hour)
			n.container("c5", "s", uidA, exited, time.Minute, "")
		}
		r := n.pass(Containers, reclaim.DiskPressure)
		if got := strings.Join(n.removed(), " "); got != want {
			t.Errorf("pass %d: removed %q, want %q: %v", i, got, want, r.Problems())
		}
		n.sleep(2 * time.Minute)
	}
}

// A sandbox with too many containers for one answer does not block the removal of other sandboxes.
// Its pod counts as alive, so its own leftovers stay.
func TestASandboxWithTooManyForOneAnswer(t *testing.T) {
	for name, state := range map[string]runtimev1.ContainerState{"dead ones": exited, "ones that run": running} {
		n := newNode(t)
		n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
		n.open(func(o *Options) { o.PodGoneAfter = 0 })
		n.sandbox("s-a", uidA, false, time.Hour)
		n.container("c-a", "s-a", uidA, exited, time.Hour, "")
		n.sandbox("s-b", uidB, state == exited, time.Hour)
		for i := range 18 {
			n.container(fmt.Sprint("b", i), "s-b", uidB, state, time.Hour-time.Duration(i)*time.Minute, "")
			n.r.Containers[len(n.r.Containers)-1].Annotations = map[string]string{"io.kubernetes.container.preStopHandler": strings.Repeat("x", 1<<20)}
		}
		log := n.file("/log/pods/default_p-" + uidB + "_" + uidB + "/main/0.log")
		r := n.pass(Containers, reclaim.DiskPressure)
		n.want(r, "container c-a", "sandbox s-a")
		if !exists(log) || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "too many containers") {
			t.Errorf("%s: problems = %q, want one about too many containers", name, r.Warnings)
		}
	}
}

// Unlisted dead containers are removed with their sandbox, once the pod is gone and if none in it may run.
func TestDeadContainersThatAreNotToldGoWithTheirSandbox(t *testing.T) {
	for name, alive := range map[string]bool{"all are dead": false, "one is not": true} {
		n := newNode(t)
		n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
		n.sandbox("s", uidA, false, time.Hour)
		for i := range 18 {
			n.container(fmt.Sprint("c", i), "s", uidA, exited, time.Hour, "")
			n.r.Containers[i].Annotations = map[string]string{"io.kubernetes.container.preStopHandler": strings.Repeat("x", 1<<20)}
		}
		want := []string{"sandbox s"}
		if alive {
			n.container("young", "s", uidA, created, 0, "")
			want = nil
		}
		r := n.pass(Containers, reclaim.Periodic)
		if n.want(r, want...); t.Failed() {
			t.Fatal(name)
		}
	}
}

func TestBesideAKubelet(t *testing.T) {
	n := newNode(t)
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
	n.container("c", "s", uidA, exited, time.Hour, "")
	beside := true
	n.Collector.findKubelet = func() (bool, string) { return beside, "process 7 is a kubelet" }
	for mode, acts := range map[config.Mode]bool{"": false, "observe": false, "act": true} {
		n.o.Mode = mode
		if got := n.planOnlyReason() == ""; got != acts {
			t.Errorf("gc %q: acts = %v, want %v", mode, got, acts)
		}
	}
	n.o.Mode = ""
	if r := n.pass(Everything, reclaim.Periodic); !strings.Contains(r.PlanOnly, "process 7") || len(r.Plan.Steps) != 1 || len(r.Done) > 0 || len(n.removed()) > 0 {
		t.Errorf("result with a kubelet = %+v, want a plan of one step and the reason", r)
	}
	beside = false // each pass searches for a kubelet
	n.want(n.pass(Everything, reclaim.Periodic), "container c")
}

// During an eviction no step begins.
func TestEvictionsGoFirst(t *testing.T) {
	n := newNode(t)
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
	n.container("c0", "s", uidA, exited, time.Hour, "")
	n.container("c1", "s", uidA, exited, time.Minute, "")
	began := make(chan struct{})
	n.r.Answer["RemoveContainer"] = func(m any) any {
		if len(n.r.Removed) == 1 {
			n.Hold()
			n.Hold()
			close(began)
		}
		return m
	}
	done := make(chan Result)
	go func() { done <- n.pass(Containers, reclaim.Periodic) }()
	<-began
	n.Release()
	select {
	case r := <-done:
		t.Fatalf("it did not wait: %+v", r)
	case <-time.After(50 * time.Millisecond):
	}
	if got := n.r.Calls("ContainerStatus"); got != 1 {
		t.Errorf("%d containers were asked for", got)
	}
	n.Release()
	n.want(<-done, "container c0", "container c1")
	n.Release() // an extra Release has no effect
	n.Hold()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := n.Pass(ctx, Containers, reclaim.Periodic); !errors.Is(r.Err, context.Canceled) {
		t.Errorf("held, and told to end: %v", r.Err)
	}
}

func TestAPassEndsBetweenTwoSteps(t *testing.T) {
	n := newNode(t)
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
	for i := range 3 {
		n.container(fmt.Sprint("c", i), "s", uidA, exited, time.Hour, "")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n.r.Answer["ContainerStatus"] = func(m any) any {
		if len(n.r.Removed) == 1 {
			cancel()
		}
		return m
	}
	r := n.Pass(ctx, Containers, reclaim.Periodic)
	if !errors.Is(r.Err, context.Canceled) || r.Count(Removed) != 1 || len(r.Done) != 3 || len(n.backoff) > 0 {
		t.Errorf("error %v, steps %+v, want canceled after one removal and no backoff", r.Err, r.Done)
	}
}

package nri

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/containerd/nri/pkg/api"

	"jettison/cri"
)

// asker rejects pods by name, and records its calls.
type asker struct {
	mu      sync.Mutex
	refused map[string]bool
	why     map[string]string // a refusal in other words
	noted   []string
	heldOff []bool
}

func (a *asker) Reject(_ time.Time, p *cri.PodSandbox, container string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noted = append(a.noted, strings.TrimSpace("ask "+p.Name+" "+p.CgroupParent+" "+container))
	if why := a.why[p.Name]; why != "" {
		return why
	}
	if a.refused[p.Name] {
		return "no room for " + p.Name
	}
	return ""
}

func (a *asker) SandboxRemoved(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noted = append(a.noted, "left "+uid)
}

func (a *asker) RecordAnswer(took time.Duration, heldOff bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if took < 0 || took > patience {
		a.noted = append(a.noted, fmt.Sprint("took ", took))
	}
	a.heldOff = append(a.heldOff, heldOff)
}

func (a *asker) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	noted := a.noted
	a.noted = nil
	return noted
}

// The runtime gets the rejection as an error. Reject is called once per sandbox, before it runs. A
// sandbox older than the plugin is admitted, also if none of its containers is listed.
func TestAskerIsCalledOncePerSandbox(t *testing.T) {
	socket, ctx, a := socketIn(t), context.Background(), &asker{refused: map[string]bool{"pod-2": true, "pod-9": true}}
	dead := container(8, 1, api.ContainerState_CONTAINER_STOPPED)
	r := runtime(t, socket, []*api.PodSandbox{pod(1), pod(8), pod(9), pod(10)}, []*api.Container{
		container(1, 1, api.ContainerState_CONTAINER_RUNNING), dead,
	})
	holds := &HoldOffs{}
	p := start(t, Options{Socket: socket, Asker: a, HoldOffs: holds})
	wait(t, p, "pods", synced)
	r.BlockPluginSync().Unblock()
	run := func(n int) error { return r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod(n)}) }
	create := func(n, m int) error {
		_, err := r.CreateContainer(ctx, &api.CreateContainerRequest{Pod: pod(n), Container: container(n, m, 0)})
		return err
	}
	at := func(n int) string { return fmt.Sprintf("ask pod-%d /kubepods/burstable/poduid-%d", n, n) }
	for _, c := range []struct {
		what    string
		do      func() error
		refused string
		noted   []string
	}{
		{"a new pod", func() error { return run(3) }, "", []string{at(3)}},
		{"its containers", func() error { return create(3, 1) }, "", nil},
		{"one that is refused", func() error { return run(2) }, "no room for pod-2", []string{at(2)}},
		{"it comes again", func() error { return run(2) }, "no room for pod-2", []string{at(2)}},
		{"one that ran before", func() error { return create(1, 2) }, "", nil},
		{"one whose container has ended", func() error { return create(8, 2) }, "", nil},
		{"one whose only container is down and not listed", func() error { return create(9, 1) }, "", nil},
		{"another one", func() error { return create(10, 1) }, "", nil},
		{"its next container", func() error { return create(10, 2) }, "", nil},
		{"which starts", func() error {
			return r.PostStartContainer(ctx, &api.PostStartContainerRequest{Pod: pod(10), Container: container(10, 2, 0)})
		}, "", nil},
		{"a sandbox that stops", func() error { return r.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: pod(10)}) }, "", nil},
		{"and goes, with its containers", func() error { return r.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: pod(10)}) }, "", []string{"left uid-10"}},
	} {
		err := c.do()
		if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: error %v, want %q", c.what, err, c.refused)
		}
		// The plugin writes an answer before it applies the event. The event is applied when the next
		// one is answered.
		check(t, r.PostStartContainer(ctx, &api.PostStartContainerRequest{Pod: pod(1), Container: container(1, 1, 0)}))
		if got := a.take(); !slices.Equal(got, c.noted) {
			t.Errorf("%s: noted %q, want %q", c.what, got, c.noted)
		}
	}
	// Reject is not called for a pod in its hold-off.
	holds.Set(time.Now(), "uid-11", Hold{Until: time.Now().Add(time.Hour), Reason: "memory.available"})
	if err := run(11); err == nil || !strings.Contains(err.Error(), "memory.available") {
		t.Error(err)
	}
	check(t, run(12)) // whose answer comes after the note of the one before
	want := []bool{false, false, false, false, false, false, false, false, false, true}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.heldOff) < len(want) || !slices.Equal(a.heldOff[:len(want)], want) {
		t.Errorf("answers of holds = %v, not as expected", a.heldOff)
	}
	if !slices.Equal(a.noted, []string{at(12)}) {
		t.Errorf("calls of the Asker = %q, not as expected", a.noted)
	}
}

// A rejection text of any length and content is truncated to one message: the connection stays
// open, and the pod is rejected.
func TestRejectionTextIsTruncated(t *testing.T) {
	long := strings.Repeat("\U0001f600", 2000)
	why := map[string]string{"pod-1": "a" + long, "pod-2": long, "pod-3": strings.Repeat("x", maxText+1), "pod-4": "a\xffb"}
	socket, ctx, a := socketIn(t), context.Background(), &asker{why: why}
	r := runtime(t, socket, nil, nil)
	holds := &HoldOffs{}
	holds.Set(time.Now(), "uid-5", Hold{Until: time.Now().Add(time.Hour), Reason: long})
	p := start(t, Options{Socket: socket, Asker: a, HoldOffs: holds})
	wait(t, p, "synced", synced)
	r.BlockPluginSync().Unblock()
	for n := range 5 {
		err := r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod(n + 1)})
		if err == nil {
			t.Fatalf("pod-%d was admitted, want it rejected", n+1)
		}
		if text := err.Error(); !utf8.ValidString(text) || n < 4 && !strings.Contains(text, strings.ToValidUTF8(why[fmt.Sprintf("pod-%d", n+1)], "?")[:3]) {
			t.Errorf("rejection text of pod-%d = %.100s", n+1, text)
		}
	}
	check(t, r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod(6)}))
	wait(t, p, "the last one", func(u Update) bool {
		if !u.State.Synced {
			t.Errorf("the connection was lost: %v", u.State.Err)
		}
		return u.Pods["uid-6"] != nil
	})
	for n := range 20 { // each cut is at the end of a character
		if got := truncateText(strings.Repeat("x", n) + long); len(got) > maxText || len(got) < maxText-3 || !utf8.ValidString(got) {
			t.Errorf("text after %d truncations has %d bytes", n, len(got))
		}
	}
}

// SandboxRemoved is called when no part of a pod is alive: not while a container outlives its
// stopped sandbox, nor while another sandbox of the pod runs.
func TestPodLeavesWithItsLastContainer(t *testing.T) {
	socket, ctx, a := socketIn(t), context.Background(), &asker{}
	r := runtime(t, socket, nil, nil)
	p := start(t, Options{Socket: socket, Asker: a})
	wait(t, p, "synced", synced)
	r.BlockPluginSync().Unblock()
	again := pod(1)
	again.Id += "-again"
	check(t, r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod(1)}))
	_, err := r.CreateContainer(ctx, &api.CreateContainerRequest{Pod: pod(1), Container: container(1, 1, 0)})
	check(t, err)
	check(t, r.PostStartContainer(ctx, &api.PostStartContainerRequest{Pod: pod(1), Container: container(1, 1, 0)}))
	a.take()
	stop := func(s *api.PodSandbox) error { return r.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: s}) }
	for _, c := range []struct {
		what  string
		do    func() error
		noted []string
	}{
		{"the sandbox stops", func() error { return stop(pod(1)) }, nil},
		{"another one runs", func() error { return r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: again}) },
			[]string{"ask pod-1 /kubepods/burstable/poduid-1"}},
		{"the container ends", func() error {
			_, err := r.StopContainer(ctx, &api.StopContainerRequest{Pod: pod(1), Container: container(1, 1, 0)})
			return err
		}, nil},
		{"the first is removed", func() error { return r.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: pod(1)}) }, nil},
		{"the other one stops", func() error { return stop(again) }, []string{"left uid-1"}},
	} {
		check(t, c.do())
		// The plugin applies an event after it has answered, and before it reads the next request.
		check(t, r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod(77)}))
		got := slices.DeleteFunc(a.take(), func(s string) bool { return strings.Contains(s, "pod-77") })
		if !slices.Equal(got, c.noted) {
			t.Errorf("%s: noted %q, want %q", c.what, got, c.noted)
		}
	}
}

// CRI-O does not report the end of a container that its OCI runtime failed to create. The next one of
// its name replaces it, and none is left in a stopped sandbox.
func TestContainersThatFailToBeCreated(t *testing.T) {
	socket, ctx, a := socketIn(t), context.Background(), &asker{}
	r := runtime(t, socket, nil, nil)
	p := start(t, Options{Socket: socket, Asker: a})
	wait(t, p, "synced", synced)
	r.BlockPluginSync().Unblock()
	create := func(name, id string) *api.Container {
		c := container(1, 1, 0)
		c.Name, c.Id = name, id
		_, err := r.CreateContainer(ctx, &api.CreateContainerRequest{Pod: pod(1), Container: c})
		check(t, err)
		return c
	}
	check(t, r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod(1)}))
	runs := create("main", "main")
	check(t, r.PostStartContainer(ctx, &api.PostStartContainerRequest{Pod: pod(1), Container: runs}))
	for i := range 50 {
		create("broken", fmt.Sprint("broken", i))
	}
	create("main", "main-again") // a running container of the name stays
	u := wait(t, p, "the last container", func(u Update) bool {
		return u.Pods["uid-1"] != nil && slices.ContainsFunc(u.Pods["uid-1"].Containers, func(c cri.Container) bool { return c.ID == "main-again" })
	})
	var ids []string
	for _, c := range u.Pods["uid-1"].Containers {
		ids = append(ids, c.ID)
	}
	if want := []string{"main", "broken49", "main-again"}; !slices.Equal(ids, want) {
		t.Errorf("containers after 50 failed attempts = %d, %v, want %v", len(ids), ids[:min(5, len(ids))], want)
	}
	a.take()
	_, err := r.StopContainer(ctx, &api.StopContainerRequest{Pod: pod(1), Container: runs})
	check(t, err)
	check(t, r.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: pod(1)}))
	u = wait(t, p, "the stopped sandbox", func(u Update) bool { return !u.Pods["uid-1"].Sandboxes[0].Ready })
	if left := u.Pods["uid-1"].Containers; len(left) > 0 {
		t.Errorf("containers of the stopped sandbox = %d, want none", len(left))
	}
	check(t, r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod(77)})) // the stop is applied before it is read
	if noted := a.take(); !slices.Contains(noted, "left uid-1") {
		t.Errorf("noted %q, want that the pod has left", noted)
	}
}

// Ended containers are published before the Asker decides on the next pod: a preemption for that
// pod must know of their resources.
func TestEndsArePublishedBeforeNextDecision(t *testing.T) {
	p, err := New(Options{Socket: "/nowhere.sock"})
	check(t, err)
	p.state.Synced = true
	for i := range 2 {
		p.index.put(cri.PodSandbox{ID: fmt.Sprint("s", i), UID: fmt.Sprint("u", i), Ready: true})
	}
	p.publish()
	told := make(chan int, 1)
	p.o.Asker = refusing(func() { told <- len((<-p.Updates()).Pods) })
	mine, theirs := net.Pipe()
	defer theirs.Close()
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	w := newWire(mine)
	check(t, p.event(w, 1, eventRemovePod, event{pod: cri.PodSandbox{ID: "s0", UID: "u0"}, hasPod: true}, nil))
	check(t, p.event(w, 3, eventRunPod, event{pod: cri.PodSandbox{ID: "n", UID: "n"}, hasPod: true}, nil))
	if got := <-told; got != 1 {
		t.Errorf("pods in the update = %d, want 1", got)
	}
}

// refusing is an Asker that signals when it is called.
type refusing func()

func (r refusing) Reject(time.Time, *cri.PodSandbox, string) string { r(); return "" }
func (r refusing) SandboxRemoved(string)                            {}
func (r refusing) RecordAnswer(time.Duration, bool)                 {}

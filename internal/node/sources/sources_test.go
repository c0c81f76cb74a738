package sources

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri"
	"jettison/cri/critest"
)

// FirstAnswer tells what is wrong with a socket in words, and outlasts a runtime that answers late.
func TestFirstAnswer(t *testing.T) {
	r := critest.Start(t)
	for name, c := range map[string]struct {
		fail string
		want string
	}{
		"all is well":        {"", ""},
		"the list fails":     {"ListPodSandbox", "hangs: check the runtime"},
		"the version fails":  {"Version", "hangs: check the runtime"},
		"the list fails too": {"ListContainers", "hangs: check the runtime"},
	} {
		client, err := cri.Dial(r.Endpoint(), "")
		if err != nil {
			t.Fatal(err)
		}
		r.Change(func() { clear(r.Fail); r.Fail[c.fail] = errors.New("broken") })
		_, _, err = FirstAnswer(t.Context(), only(client), 200*time.Millisecond, func(string) {})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", name, err)
		}
		client.Close()
	}
	dead := filepath.Join(t.TempDir(), "dead.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	for path, want := range map[string]string{"/nowhere.sock": "no such socket", dead: "nothing listens"} {
		if got := Diagnose("unix://"+path, errors.New("x")); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// The agent starts on a node whose pods have more annotations than fit one answer, and an answer that is too large is not called silence.
func TestLargePodsKeepNobodyFromStarting(t *testing.T) {
	r := critest.Start(t)
	for i := range 70 {
		r.Sandboxes = append(r.Sandboxes, &runtimev1.PodSandbox{
			Id: fmt.Sprint("s", i), Metadata: &runtimev1.PodSandboxMetadata{Uid: fmt.Sprint("u", i), Name: "p", Namespace: "t"},
			Annotations: map[string]string{"x": strings.Repeat("x", 255<<10)},
		})
		r.Containers = append(r.Containers, &runtimev1.Container{
			Id: fmt.Sprint("c", i), PodSandboxId: fmt.Sprint("s", i), State: runtimev1.ContainerState_CONTAINER_RUNNING,
			Metadata: &runtimev1.ContainerMetadata{Name: "c"},
		})
	}
	client, err := cri.Dial(r.Endpoint(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, listing, err := FirstAnswer(t.Context(), only(client), 5*time.Second, func(why string) { t.Error("waits: ", why) })
	if err != nil || len(listing.Sandboxes) != 70 {
		t.Errorf("%d sandboxes, %v", len(listing.Sandboxes), err)
	}
	if why := Diagnose(r.Endpoint(), fmt.Errorf("list: %w: 18 of 16", cri.ErrTooLarge)); !strings.Contains(why, "too large: 18 of 16") {
		t.Errorf("an answer that is too large: %q", why)
	}
}

// A runtime that is not there, does not answer or hangs is said at once and not after half a minute of silence: once, and again when
// something else is wrong.
func TestAMissingRuntimeIsSaidAtOnce(t *testing.T) {
	r := critest.Start(t)
	r.Change(func() { r.Hang = map[string]bool{"Version": true} })
	for endpoint, want := range map[string]string{"unix:///nowhere.sock": "no such socket", r.Endpoint(): "or hangs"} {
		client, err := cri.Dial(endpoint, "")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		said := 0
		_, _, err = FirstAnswer(ctx, only(client), 0, func(why string) {
			if said++; !strings.Contains(why, want) || time.Since(start) > 20*soon {
				t.Errorf("%s: after %v: %s", endpoint, time.Since(start), why)
			}
			time.AfterFunc(200*time.Millisecond, cancel) // some more tries
		})
		if said != 1 || err == nil {
			t.Errorf("%s: said %d times, %v", endpoint, said, err)
		}
		cancel()
		client.Close()
	}
	client, err := cri.Dial(r.Endpoint(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, _, err := FirstAnswer(t.Context(), only(client), 10*time.Second, func(string) {
		r.Change(func() { clear(r.Hang) })
	}); err != nil {
		t.Errorf("one that answers in the end: %v", err)
	}
}

// only is a runtime that is the same at each attempt.
func only(c *cri.Client) func() (*cri.Client, *cri.Lister) {
	l := cri.NewLister(c)
	return func() (*cri.Client, *cri.Lister) { return c, l }
}

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

// FirstAnswer describes the problem of a socket, and waits for a runtime that answers late.
func TestFirstAnswer(t *testing.T) {
	r := critest.Start(t)
	for name, c := range map[string]struct {
		fail string
		want string
	}{
		"all is well":        {"", ""},
		"the list fails":     {"ListPodSandbox", "does not answer in CRI v1"},
		"the version fails":  {"Version", "does not answer in CRI v1"},
		"the list fails too": {"ListContainers", "does not answer in CRI v1"},
	} {
		client, err := cri.Dial(r.Endpoint(), "")
		if err != nil {
			t.Fatal(err)
		}
		r.Change(func() { clear(r.Fail); r.Fail[c.fail] = errors.New("broken") })
		_, _, err = FirstAnswer(t.Context(), only(client), 200*time.Millisecond, func(string) {})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("first answer of a runtime with %s = error %v, want %q", name, err, c.want)
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
			t.Errorf("diagnosis of %s = %q, want %q", path, got, want)
		}
	}
}

// The agent starts on a node with more annotations than one answer can hold, and does not report a
// too large answer as silence.
func TestFirstAnswerWithLargePods(t *testing.T) {
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
	_, listing, err := FirstAnswer(t.Context(), only(client), 5*time.Second, func(why string) { t.Error("FirstAnswer waits without need: ", why) })
	if err != nil || len(listing.Sandboxes) != 70 {
		t.Errorf("first list: %d sandboxes, error %v", len(listing.Sandboxes), err)
	}
	if why := Diagnose(r.Endpoint(), fmt.Errorf("list: %w", context.DeadlineExceeded)); !strings.Contains(why, "in CRI v1 in time") {
		t.Errorf("diagnosis of a timeout = %q", why)
	}
	if why := Diagnose(r.Endpoint(), fmt.Errorf("list: %w: 18 of 16", cri.ErrTooLarge)); !strings.Contains(why, "too large: 18 of 16") {
		t.Errorf("diagnosis of a too large answer = %q", why)
	}
}

// A runtime that is missing, silent or hanging is reported immediately: once, and again when the
// reason changes.
func TestMissingRuntimeIsReported(t *testing.T) {
	r := critest.Start(t)
	r.Change(func() { r.Hang = map[string]bool{"Version": true} })
	for endpoint, want := range map[string]string{"unix:///nowhere.sock": "no such socket", r.Endpoint(): "does not answer in CRI v1"} {
		client, err := cri.Dial(endpoint, "")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		reported := 0
		_, _, err = FirstAnswer(ctx, only(client), 0, func(why string) {
			if reported++; !strings.Contains(why, want) || time.Since(start) > 20*silenceLimit {
				t.Errorf("problem of %s reported after %v: %s", endpoint, time.Since(start), why)
			}
			time.AfterFunc(200*time.Millisecond, cancel) // some more tries
		})
		if reported != 1 || err == nil {
			t.Errorf("problem of %s reported %d times, error %v", endpoint, reported, err)
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
		t.Errorf("runtime that answers later: error %v, want none", err)
	}
}

// only returns the same client at each attempt.
func only(c *cri.Client) func() (*cri.Client, *cri.Lister) {
	l := cri.NewLister(c)
	return func() (*cri.Client, *cri.Lister) { return c, l }
}

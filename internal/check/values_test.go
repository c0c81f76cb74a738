package check

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jettison/api"
	"jettison/cri"
	"jettison/internal/config"
	"jettison/internal/observe"
	"jettison/internal/podstore"
	"jettison/internal/priorities"
	"jettison/internal/socket"
	"jettison/internal/sources"
	"jettison/stats"
	"jettison/stats/read"
)

func options() observe.Options {
	return observe.Options{Options: sources.Options{Config: &config.Loaded{Config: config.Default()}}, Watch: time.Second}
}

// Each signal has a line: its value with the threshold and its age, or that it is absent, and why.
func TestSignals(t *testing.T) {
	now := time.Unix(1700000000, 0)
	var s stats.Summary
	s.Node.Memory = stats.NodeMemoryStats{
		Time: now.Add(-time.Second), CapacityBytes: stats.Some(uint64(1000 << 20)), WorkingSetBytes: stats.Some(uint64(600 << 20)),
		KernelAvailableBytes: stats.Some(uint64(300 << 20)),
	}
	s.Node.PIDs = stats.NodePIDStats{Time: now, Max: stats.Some(uint64(100)), Current: stats.Some(uint64(25))}
	var out bytes.Buffer
	printSignals(&out, now, &s, options())
	for _, want := range []string{
		"memory.available\t300Mi\t1000Mi\t30.0%\t<100Mi\t1s\tlower: workingSet 400Mi, kernel 300Mi\n", "pid.available\t75\t100\t75.0%\t-\t0s\t\n",
		"nodefs.available\tabsent\t-\t-\t<10%\t-\t",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "\n"); n != len(stats.Signals) {
		t.Errorf("%d lines", n)
	}
}

// A share that was not watched for long enough is not one of 0.
func TestPressure(t *testing.T) {
	now := time.Unix(1700000000, 0)
	var p stats.NodePressure
	p.Memory = stats.Pressure{Time: now, Some: stats.StallShare{Over1s: stats.Some(0.25)}}
	p.Memory.Stats.OK, p.Memory.Stats.V.HasSome, p.Memory.Stats.V.Some.Avg10 = true, true, 12.5
	var out bytes.Buffer
	printPressure(&out, now, &p, options())
	for _, want := range []string{
		"memory.pressure.some\t-\t-\t-\t-\t0s\tstalled: 1s 25.00%, 10s - (watched for 1s), kernel's avg10 12.50%\n",
		"memory.pressure.full\tabsent\t", "cpu.pressure.full\tabsent\t-\t-\t-\t-\tthe kernel reports no pressure: boot it with psi=1\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestStatusRefused(t *testing.T) {
	if n := statusRefused([]stats.PodStats{{StatusRefused: true}, {}, {StatusRefused: true}}); n != 2 {
		t.Errorf("%d", n)
	}
}

// How many pods' priorities are unknown is what the agent that runs here says; without one, what annotations and manifests tell. A runtime
// that does not answer tells of none, not of 0. An annotation gives a priority only where annotations count.
func TestPriorityUnknown(t *testing.T) {
	dir, err := os.MkdirTemp("", "c") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	o := options()
	o.Config.AnnotationNamespaces, o.Config.Socket, o.HostRoot = []string{"a"}, filepath.Join(dir, "s.sock"), dir
	annotated := map[string]string{"jettison/priority": "7"}
	look := &observe.Look{Runtime: observe.Runtime{Pods: read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{
		{ID: "1", UID: "1", Ready: true, Namespace: "a", Annotations: annotated}, {ID: "2", UID: "2", Ready: true, Namespace: "b", Annotations: annotated},
		{ID: "3", UID: "3", Ready: true, Namespace: "a"}, {ID: "4", UID: "4", Ready: true, Namespace: "kube-system"},
		{ID: "5", UID: "5", Namespace: "a"}, {ID: "6", UID: "6", Ready: true, Namespace: "a", Name: "static"},
	}})}}
	say := func(want ...string) {
		t.Helper()
		var out bytes.Buffer
		if err := printUnknown(t.Context(), &out, look, "", o); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("no %q in\n%s", w, out.String())
			}
		}
	}
	say("pods of unknown priority: 4, not protected otherwise: 3 (by annotations and static manifests alone", priorities.Ways, "[kube-system]")
	manifest := `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static", "namespace": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}`
	if err := os.WriteFile(filepath.Join(dir, "static.json"), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	o.Config.StaticPodPath = "/"
	say("pods of unknown priority: 4, not protected otherwise: 2 (by")
	state := &api.State{}
	server, err := socket.Listen(socket.Options{Path: o.Config.Socket, Pods: podstore.New(), State: func() any { return state }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	say("pods of unknown priority: 4, not protected otherwise: 2 (by", "the agent has not counted yet")
	state.Pods.UnknownPriority = &api.UnknownPriority{Pods: 1}
	say("pods of unknown priority: 1, not protected otherwise: 0 (by the agent that runs here)\n")
	look.Runtime.Err = errors.New("down")
	say("pods of unknown priority: not known, for the runtime")
}

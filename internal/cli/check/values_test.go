package check

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"jettison/api"
	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/agent/serve/socket"
	"jettison/internal/node/config"
	"jettison/internal/node/observe"
	"jettison/internal/node/priorities"
	"jettison/internal/node/sources"
	"jettison/stats"
	"jettison/stats/read"
	"jettison/stats/read/podindex"
)

func options() observe.Options {
	return observe.Options{Options: sources.Options{Config: &config.Loaded{Config: config.Default()}}, Watch: time.Second}
}

// Each signal has a line with its value, threshold and age, or the reason why it is absent.
func TestSignals(t *testing.T) {
	now := time.Unix(1700000000, 0)
	var s stats.Summary
	s.Node.Memory = stats.NodeMemoryStats{
		Time: now.Add(-time.Second), CapacityBytes: stats.Some(uint64(1000 << 20)), WorkingSetBytes: stats.Some(uint64(600 << 20)),
		KernelAvailableBytes: stats.Some(uint64(300 << 20)),
	}
	s.Node.PIDs = stats.NodePIDStats{Time: now, Max: stats.Some(uint64(100)), Current: stats.Some(uint64(25))}
	var r Result
	r.addSignals(now, &s, options())
	for _, want := range []Signal{
		{"memory.available", "300Mi", "1000Mi", "30.0%", "<100Mi", "1s", "lower: workingSet 400Mi, kernel 300Mi"},
		{"pid.available", "75", "100", "75.0%", "", "0s", ""},
	} {
		if !slices.Contains(r.Signals, want) {
			t.Errorf("signals of the check lack %+v:\n%+v", want, r.Signals)
		}
	}
	if n := len(r.Signals); n != len(stats.Signals) || r.Signals[4].Available != "absent" || r.Signals[4].Threshold != "<10%" {
		t.Errorf("got %d signals, want %d with the 5th absent and threshold <10%%: %+v", n, len(stats.Signals), r.Signals)
	}
}

// A threshold that the pods' own task limit could never satisfy is noted: it ignores that limit.
func TestPodsTaskLimitBelowAThreshold(t *testing.T) {
	o := options()
	parsed, _, errs := eviction.Settings{EvictionHard: map[string]string{"pid.available": "1k", "memory.available": "20Gi"},
		EvictionSoft: map[string]string{"pid.available": "20k"}, EvictionSoftGracePeriod: map[string]string{"pid.available": "1m"}}.Parse()
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	o.Config.Thresholds = parsed
	for limit, want := range map[uint64]string{12768: "pid.available<20k", 31000: ""} {
		var r Result
		r.notePodsLimit(&stats.NodePIDStats{Max: stats.Some(uint64(32768)), PodsMax: stats.Some(limit)}, o)
		if text := strings.Join(r.Notes, "\n"); len(r.Notes) > 1 || (want != "") != strings.Contains(text, "pid.available<20k") {
			t.Errorf("notes for %d tasks of pods = %q, want one on %q", limit, text, want)
		}
	}
}

// A share that was measured for less than its window is unknown, not 0.
func TestPressure(t *testing.T) {
	now := time.Unix(1700000000, 0)
	var p stats.NodePressure
	p.Memory = stats.Pressure{Time: now, Some: stats.StallShare{Over1s: stats.Some(0.25)}}
	p.Memory.Stats.OK, p.Memory.Stats.V.HasSome, p.Memory.Stats.V.Some.Avg10 = true, true, 12.5
	var r Result
	r.addPressure(now, &p, options())
	for _, want := range []Signal{
		{Name: "memory.pressure.some", Age: "0s", Reason: "stalled: 1s 25.00%, 10s - (watched for 1s), kernel's avg10 12.50%"},
		{Name: "cpu.pressure.full", Available: "absent", Reason: "the kernel reports no pressure: boot with psi=1"},
	} {
		if !slices.Contains(r.Signals, want) {
			t.Errorf("signals of the check lack %+v:\n%+v", want, r.Signals)
		}
	}
}

func TestStatusRefused(t *testing.T) {
	if n := statusRefused([]stats.PodStats{{StatusRefused: true}, {}, {StatusRefused: true}}); n != 2 {
		t.Errorf("statusRefused counts %d pods, want 2", n)
	}
}

// The count of unknown priorities comes from the agent; without one, from annotations and manifests. If the runtime does not answer, the
// count is unknown, not 0. An annotation sets a priority only in the configured namespaces.
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
	check := func(want ...string) {
		t.Helper()
		var r Result
		r.countUnknown(t.Context(), look, "", o)
		for _, w := range want {
			if got := strings.Join(r.Notes, "\n"); !strings.Contains(got, w) {
				t.Errorf("notes of the check lack %q:\n%s", w, got)
			}
		}
	}
	check("pods of unknown priority: 4, not protected otherwise: 3 (counted from annotations and static manifests only", priorities.Advice, "[kube-system]")
	manifest := `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static", "namespace": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}`
	if err := os.WriteFile(filepath.Join(dir, "static.json"), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	o.Config.StaticPodPath = "/"
	check("pods of unknown priority: 4, not protected otherwise: 2 (counted from")
	state := &api.State{}
	server, err := socket.Listen(socket.Options{Path: o.Config.Socket, Pods: podstore.New(), State: func() any { return state }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	check("pods of unknown priority: 4, not protected otherwise: 2 (counted from", "the agent has not counted yet")
	state.Pods.UnknownPriority = &api.UnknownPriority{Pods: 1}
	check("pods of unknown priority: 1, not protected otherwise: 0 (counted by the agent)")
	look.Runtime.Err = errors.New("down")
	check("pods of unknown priority: unknown, because the runtime")
}

// Containers outside their pods' cgroups fail the check, with the cause and the remedy.
func TestContainersOutsideFailTheCheck(t *testing.T) {
	pods := read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s", UID: "u", Name: "web", Namespace: "shop"}}})
	if err := outsideError(pods, "cgroupfs"); err != nil {
		t.Errorf("error on an ordinary node = %v, want none", err)
	}
	for want, d := range map[string]struct {
		unlocated bool
		err       error
	}{
		"below their pods' cgroups":                              {},
		"unknown for 1 pod, otherwise below their pods' cgroups": {unlocated: true},
		"unknown, because the runtime does not list them":        {unlocated: true, err: errors.New("down")},
	} {
		pods["u"].Unlocated = nil
		if d.unlocated {
			pods["u"].Unlocated = []podindex.Unlocated{{ID: "c"}}
		}
		if got := insideDetail(pods, d.err); got != want {
			t.Errorf("without a container outside, unlocated %v, error %v: %q, want %q", d.unlocated, d.err, got, want)
		}
	}
	pods["u"].Outside = []stats.OutsideContainer{{ID: "c1", Cgroup: "system.slice/c1"}, {ID: "c2", Process: stats.ProcessID{PID: 7}}}
	err := outsideError(pods, "cgroupfs")
	for _, want := range []string{"2 containers", "c1 of pod shop/web in /system.slice/c1", "different cgroup drivers",
		"cgroupDriver to the runtime's (cgroupfs)"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want it to contain %q", err, want)
		}
	}
	pods["u"].Outside = pods["u"].Outside[1:]
	const moved = "1 container outside the pods' cgroups, such as container c2 of pod shop/web (process 7): something moved its process into " +
		"a cgroup with other processes, where only its memory is measured; restart the pod"
	if err := outsideError(pods, "cgroupfs"); err == nil || err.Error() != moved {
		t.Errorf("error for a process in a shared cgroup = %v, want %s", err, moved)
	}
}

// Containers that cannot be located fail the check: those with a process elsewhere, and those of a pod
// whose cgroup has no process. Without a process of the runtime (cri-dockerd) the pod's cgroup counts.
func TestUnlocatedContainersFailTheCheck(t *testing.T) {
	pods := read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s", UID: "u", Name: "web", Namespace: "shop"}}})
	there, nowhere := stats.PodStats{Cgroup: "kubepods/podu"}, stats.PodStats{}
	for _, c := range []struct {
		at   string
		seen *stats.PodStats
		want string // empty: no error
	}{
		{"", &there, ""},
		{"", nil, ""}, // the look failed
		{"", &nowhere, "1 container cannot be located, such as container c of pod shop/web: the runtime reports no process"},
		{"kata_overhead/s", &there, "1 container cannot be located, such as container c of pod shop/web in /kata_overhead/s: "},
		{"kata_overhead/s", &nowhere, "sandbox_cgroup_only = true, and restart the pods"},
	} {
		pods["u"].Unlocated = []podindex.Unlocated{{ID: "c", Cgroup: c.at}}
		var seen []stats.PodStats
		if c.seen != nil {
			c.seen.PodRef.UID = "u"
			seen = append(seen, *c.seen)
		}
		err := unlocatedError(pods, seen, "systemd")
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("process in %q, pod seen %+v: error = %v, want %q", c.at, c.seen, err, c.want)
		}
	}
}

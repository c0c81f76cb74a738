package read

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/podindex"
)

func (s *podSet) uids() (out []string) {
	for _, g := range s.order {
		out = append(out, g.UID)
	}
	return out
}

// Pods and their parents are created and removed; a root recreated under the same path is found
// again, and other directories are not taken for pods.
func TestPodSetFollowsTheTree(t *testing.T) {
	dir := t.TempDir()
	have := func(paths ...string) {
		t.Helper()
		for _, p := range paths {
			if err := os.MkdirAll(filepath.Join(dir, p), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	gone := func(path string) {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(dir, path)); err != nil {
			t.Fatal(err)
		}
	}
	fs, err := cgroup.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close()
	s := newPodSet(fs, nil, podindex.PodRoots(""))
	defer s.close()
	look := func(index podindex.Index, want ...string) {
		t.Helper()
		if err := s.discover(index); err != nil {
			t.Fatal(err)
		}
		if got := s.uids(); !slices.Equal(got, want) {
			t.Errorf("pods of the tree = %v, want %v", got, want)
		}
	}
	look(nil)
	have("kubepods/podb", "kubepods/burstable/poda", "kubepods/besteffort", "kubepods/not-a-pod", "system")
	look(nil, "a", "b")
	look(nil, "a", "b")
	gone("kubepods/podb")
	look(nil, "a")
	gone("kubepods")
	look(nil)
	have("kubepods/burstable/podc", "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice")
	look(nil, "1-2", "c")

	elsewhere := func(parent string, ready bool) podindex.Index {
		return podindex.New(cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s", UID: "e", Ready: ready, CgroupParent: parent}}})
	}
	look(elsewhere("/k8s.io", true), "1-2", "c", "e")
	if g := s.runtimeOnly["e"]; g.Path != "" {
		t.Errorf("pod has a shared cgroup: %+v, want none", g)
	}
	look(elsewhere("/other/kubepods/burstable/pode", true), "1-2", "c", "e")
	if g := s.runtimeOnly["e"]; g.Path != "other/kubepods/burstable/pode" || g.QOSClass != stats.Burstable {
		t.Errorf("pod lacks its own cgroup: %+v", g)
	}
	look(elsewhere("/other/kubepods/burstable/pode", false), "1-2", "c")
	look(elsewhere("/k8s.io", true), "1-2", "c", "e")
	have("kubepods/pode") // now it is below a root
	look(elsewhere("/kubepods/pode", true), "1-2", "c", "e")
	// Below two roots: listed twice, and once again when one is gone.
	have("kubepods/burstable/pode")
	look(elsewhere("/kubepods/pode", true), "1-2", "c", "e", "e")
	gone("kubepods/burstable/pode")
	look(elsewhere("/kubepods/pode", true), "1-2", "c", "e")
	if len(s.runtimeOnly) != 0 || s.byUID["e"].Path != "kubepods/pode" {
		t.Errorf("pod below two roots: runtime-only %+v, by UID %+v", s.runtimeOnly, s.byUID["e"])
	}
}

// The full look of a recorded node has the values of its files.
func TestFullLookOfARecordedNode(t *testing.T) {
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			c, files, dir := recordedNode(t, kernel)
			for name, text := range map[string]string{"memory.max": "209715200\n", "memory.current": "104857600\n", "memory.stat": "anon 1\nfile 2\nshmem 3\ninactive_file 4857600\n",
				"pids.max": "500\n", "pids.current": "490\n"} {
				if err := os.WriteFile(filepath.Join(dir, "cgroup/kubepods", name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			var s stats.Summary
			first := time.Unix(1000, 0)
			if err := c.Collect(first, nil, &s); err != nil {
				t.Fatal(err)
			}
			if a := s.Node.Allocatable; a.LimitBytes != stats.Some[uint64](200<<20) || a.WorkingSetBytes != stats.Some[uint64](100000000) {
				t.Errorf("allocatable memory of the node = %+v", a)
			}
			if o := s.Observe(first, stats.SignalAllocatableMemoryAvailable, ""); !o.OK || o.Value != 200<<20-100000000 {
				t.Errorf("observation of allocatable memory = %+v", o)
			}
			if o := s.Observe(first, stats.SignalPIDAvailable, ""); !o.OK || o.Value != 10 || o.Capacity != s.Node.PIDs.Max.V {
				t.Errorf("observation of tasks with 490 of 500 in pods = %+v, want 10 left of the node's %d", o, s.Node.PIDs.Max.V)
			}
			if n := s.Node; n.CPUs != 1 || n.StartTime.IsZero() || !n.PIDs.Current.OK || !n.PIDs.Max.OK || !n.CPU.Usage.OK || n.CPU.NanoCores.OK || !n.Pressure.Memory.Stats.OK {
				t.Errorf("node values of the look = %+v", n)
			}
			if p := s.Node.Pods; p.WorkingSetBytes != stats.Some[uint64](100000000) || !p.Time.Equal(first) {
				t.Errorf("total of all pods = %+v", p)
			}
			if got, want := s.Node.Memory.ShmemBytes, stats.Some(number(t, files["cgroup/memory.stat"], "shmem")); got != want {
				t.Errorf("the node's shared memory: %+v, the file has %+v", got, want)
			}
			for _, p := range s.Pods {
				at := "cgroup/" + p.Cgroup + "/"
				pick := func(file, key string) uint64 { return number(t, files[at+file], key) }
				m := p.Memory
				for what, pair := range map[string][2]uint64{
					"anon":  {m.AnonBytes.V, pick("memory.stat", "anon")},
					"shmem": {m.ShmemBytes.V, pick("memory.stat", "shmem")}, "faults": {m.PageFaults.V, pick("memory.stat", "pgfault")},
					"oom kills": {p.Events.V.OOMKill, pick("memory.events", "oom_kill")}, "threads": {p.Threads.V, pick("pids.current", "")},
					"swap": {m.SwapBytes.V, pick("memory.swap.current", "")}, "CPU": {uint64(p.CPU.Usage.V.Microseconds()), pick("cpu.stat", "usage_usec")},
					"freed for sure": {m.FreedBytes.V.Min, pick("memory.stat", "anon") + pick("memory.stat", "pagetables") + pick("memory.stat", "kernel_stack")},
					"freed at most":  {m.FreedBytes.V.Max - m.FreedBytes.V.Min, pick("memory.stat", "shmem")},
				} {
					if pair[0] != pair[1] {
						t.Errorf("%s pod: %s = %d, want %d as in the file", p.QOSClass, what, pair[0], pair[1])
					}
				}
				// The sandbox's process and the workload's, each in a separate cgroup.
				if !p.Processes.OK || p.Processes.V != 2 || len(p.Containers) != 2 || p.LocalEvents.OK == false || p.CPUPressure.OK == false || p.IOPressure.OK == false {
					t.Errorf("processes of the %s pod: %+v", p.QOSClass, p)
				}
			}
			// The same counters a second later: no CPU time was used, which is now known.
			if err := c.Collect(first.Add(time.Second), nil, &s); err != nil {
				t.Fatal(err)
			}
			if n := s.Pods[0].CPU.NanoCores; n != stats.Some[uint64](0) || s.Pods[0].Containers[0].CPU.NanoCores != n {
				t.Errorf("usage between two looks: %+v", n)
			}
			if p := s.Node.Pressure.Memory.Some.Over1s; p != stats.Some(0.0) {
				t.Errorf("pressure over a second: %+v", p)
			}
		})
	}
}

// A file that cannot be read, or too many cgroups, affects only its own figures, and is named.
func TestUnreadableFileAffectsOnlyItsFigures(t *testing.T) {
	c, _, dir := recordedNode(t, "6.12")
	pods, err := filepath.Glob(filepath.Join(dir, "cgroup/kubepods/burstable/pod*"))
	if err != nil || len(pods) != 1 {
		t.Fatal(pods, err)
	}
	if err := os.WriteFile(filepath.Join(pods[0], "io.stat"), []byte("8:0 rbytes=x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range maxCounted + 1 {
		group := filepath.Join(pods[0], "0123", strconv.Itoa(i))
		if err := os.MkdirAll(group, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(pods[0], "0123", "cgroup.procs"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var s stats.Summary
	err = c.Collect(time.Unix(1000, 0), nil, &s)
	if err == nil || !strings.Contains(err.Error(), "io.stat") || !errors.Is(err, errManyCgroups) {
		t.Errorf("error of the look = %v", err)
	}
	for _, p := range s.Pods {
		if p.QOSClass == stats.Burstable && (p.IO.OK || p.Processes.OK || !p.Memory.WorkingSetBytes.OK || !p.CPU.Usage.OK || !p.Memory.SwapBytes.OK || len(p.Containers) != 3) {
			t.Errorf("pod with an unreadable file: %+v", p)
		}
	}
}

// A controller that is off affects only its own figures.
func TestControllerThatIsOff(t *testing.T) {
	c, _, dir := recordedNode(t, "6.12")
	files, err := filepath.Glob(filepath.Join(dir, "cgroup/kubepods/burstable/pod*/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if base := filepath.Base(name); slices.Contains([]string{"pids.current", "pids.max", "io.stat", "memory.pressure", "cpu.pressure", "memory.swap.current", "memory.events.local"}, base) {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	var s stats.Summary
	if err := c.Collect(time.Unix(1000, 0), nil, &s); err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Pods {
		if p.QOSClass != stats.Burstable {
			continue
		}
		if p.Threads.OK || p.IO.OK || p.MemoryPressure.OK || p.CPUPressure.OK || p.Memory.SwapBytes.OK || p.LocalEvents.OK {
			t.Errorf("figures of missing files are present: %+v", p)
		}
		if !p.Memory.WorkingSetBytes.OK || !p.IOPressure.OK || !p.CPU.Usage.OK || !p.Events.OK {
			t.Errorf("figures of existing files are missing: %+v", p)
		}
	}
}

func TestContainerIDs(t *testing.T) {
	for name, want := range map[string]string{
		"0123abc":                      "0123abc",
		"cri-containerd-0123abc.scope": "0123abc",
		"crio-0123abc.scope":           "0123abc",
		"crio-0123abc":                 "0123abc",
		"crio-conmon-0123abc.scope":    "crio-conmon-0123abc",
	} {
		if got := containerID(name); got != want {
			t.Errorf("container ID of %s = %s, want %s", name, got, want)
		}
	}
}

// CPU usage between two looks, restarts, and the container of a cgroup: joined from the kernel
// and the runtime.
func TestFullLookJoinsTheRuntimesData(t *testing.T) {
	c, _, dir := recordedNode(t, "6.12")
	var s stats.Summary
	first := time.Unix(1000, 0)
	if err := c.Collect(first, nil, &s); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(s.Pods, func(p stats.PodStats) bool { return p.QOSClass == stats.Burstable })
	pod := s.Pods[i].Cgroup
	uid, sandbox, container := s.Pods[i].PodRef.UID, s.Pods[i].Containers[0].ID, s.Pods[i].Containers[1].ID
	used := s.Pods[i].CPU.Usage.V
	for name, text := range map[string]string{
		"cpu.stat": fmt.Sprintf("usage_usec %d\nuser_usec 1\nsystem_usec 1\n", (used + 250*time.Millisecond).Microseconds()),
	} {
		if err := os.WriteFile(filepath.Join(dir, "cgroup", pod, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	shares := uint64(512)
	index := podindex.New(cri.Listing{
		Sandboxes: []cri.PodSandbox{{ID: sandbox, UID: uid, Name: "web", Namespace: "default", Ready: true}},
		Containers: []cri.Container{
			{ID: "dead", SandboxID: sandbox, Name: "crashing", State: cri.Exited, Attempt: 7}, {ID: "older", SandboxID: sandbox, Name: "crashing", State: cri.Exited, Attempt: 6},
			{ID: container, SandboxID: sandbox, Name: "main", State: cri.Running, Attempt: 1, CPUShares: &shares},
		},
	})
	if err := c.Collect(first.Add(time.Second), index, &s); err != nil {
		t.Fatal(err)
	}
	p := s.Pods[i]
	if p.CPU.NanoCores != stats.Some[uint64](250_000_000) {
		t.Errorf("CPU usage of the pod = %+v", p.CPU)
	}
	if p.Restarts != stats.Some[uint64](8) || p.CPURequestMillis != stats.Some(stats.Range{Min: 500, Max: 500}) {
		t.Errorf("pod has restarts %+v and CPU request %+v", p.Restarts, p.CPURequestMillis)
	}
	if len(p.Containers) != 1 || p.Containers[0].Name != "main" || p.Processes != stats.Some[uint64](2) {
		t.Errorf("containers %+v, processes %+v: want the sandbox's own left out of the list and not of the count", p.Containers, p.Processes)
	}
}

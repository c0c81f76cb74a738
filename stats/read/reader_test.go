package read

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/podindex"
	"jettison/stats/read/procfs"
)

// recordedNode unpacks the recording of a real node and returns a Reader on it, and the
// archive.
func recordedNode(t *testing.T, kernel string) (*Reader, map[string]string, string) {
	t.Helper()
	archive, err := txtar.ParseFile("../../cgroup/testdata/" + kernel + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir, files := t.TempDir(), map[string]string{}
	for _, f := range archive.Files {
		files[f.Name] = string(f.Data)
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fs, err := cgroup.OpenTree(filepath.Join(dir, "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Close() })
	proc, err := procfs.Open(filepath.Join(dir, "proc"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proc.Close() })
	c, err := NewReader(fs, proc, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, files, dir
}

var kernels = []string{"6.1", "6.12"}

// number finds a key's value in a recorded file; with an empty key the file is one number.
func number(t *testing.T, text, key string) uint64 {
	t.Helper()
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if key == "" || len(words) == 2 && words[0] == key {
			v, err := strconv.ParseUint(words[len(words)-1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("key %q is not in recorded file %.40q", key, text)
	return 0
}

// Each pod of the recording is found with its class and measured, whether the runtime knows it
// or not.
func TestCollectARecordedNode(t *testing.T) {
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			c, files, _ := recordedNode(t, kernel)
			var s stats.Summary
			now := time.Unix(1000, 0)
			if err := c.Collect(now, nil, &s); err != nil {
				t.Fatal(err)
			}
			m := s.Node.Memory
			if !m.CapacityBytes.OK || m.WorkingSetBytes.V >= m.CapacityBytes.V || m.KernelAvailableBytes.V >= m.CapacityBytes.V || m.WorkingSetBytes.V == 0 {
				t.Errorf("memory of the node = %+v", m)
			}
			if want := number(t, files["cgroup/memory.stat"], "anon") + number(t, files["cgroup/memory.stat"], "file") - number(t, files["cgroup/memory.stat"], "inactive_file"); m.WorkingSetBytes.V != want {
				t.Errorf("working set of the node = %d, want %d", m.WorkingSetBytes.V, want)
			}
			classes := map[stats.QOSClass]bool{}
			for _, p := range s.Pods {
				classes[p.QOSClass] = true
				// Requests known from the kernel alone: 0 by class, or the limit of a
				// Guaranteed pod (96Mi here).
				want := map[stats.QOSClass]stats.Opt[stats.Range]{stats.BestEffort: stats.Some(stats.Range{}), stats.Guaranteed: stats.Some(stats.Range{Min: 96 << 20, Max: 96 << 20}), stats.Burstable: {}}
				if p.MemoryRequest != want[p.QOSClass] {
					t.Errorf("%s pod unknown to the runtime: request %+v", p.QOSClass, p.MemoryRequest)
				}
				dir := "cgroup/" + p.Cgroup + "/"
				memory := files[dir+"memory.stat"]
				if want := number(t, memory, "kernel") - number(t, memory, "slab_reclaimable") + number(t, memory, "sock"); p.Memory.KernelBytes != stats.Some(want) || want == 0 {
					t.Errorf("kernel memory of %s = %+v, want %d", p.Cgroup, p.Memory.KernelBytes, want)
				}
				wrote := p.IO.V.WriteBytes + number(t, memory, "file_dirty") + number(t, memory, "file_writeback")
				wantWritten := stats.WrittenStats{Bytes: stats.Opt[uint64]{V: wrote, OK: p.IO.OK}, Inodes: stats.Some(number(t, memory, "slab_reclaimable") / 1024)}
				if strings.Contains(files[dir+"io.stat"], "254:0 ") {
					wantWritten.Devices = []stats.DeviceWrites{{Device: unix.Mkdev(254, 0), Bytes: p.IO.V.WriteBytes}}
				}
				if !reflect.DeepEqual(p.Written, wantWritten) || !p.IO.OK {
					t.Errorf("written by %s = %+v, want %+v", p.Cgroup, p.Written, wantWritten)
				}
				if want := number(t, files[dir+"memory.current"], "") - number(t, files[dir+"memory.stat"], "inactive_file"); p.Memory.WorkingSetBytes.V != want {
					t.Errorf("working set of %s = %d, want %d", p.Cgroup, p.Memory.WorkingSetBytes.V, want)
				}
				if !p.Memory.WorkingSetBytes.OK || p.Memory.WorkingSetBytes.V < 4<<20 || p.Announced || !p.Populated.V {
					t.Errorf("pod with a wrong value: %+v", p)
				}
			}
			if len(s.Pods) != 3 || len(classes) != 3 {
				t.Errorf("%d pods of classes %v, want one of each", len(s.Pods), slices.Collect(maps.Keys(classes)))
			}
		})
	}
}

// The runtime's data is joined by UID: identity, annotations, requests.
func TestCollectJoinsTheRuntimesData(t *testing.T) {
	c, _, _ := recordedNode(t, "6.12")
	var s stats.Summary
	if err := c.Collect(time.Unix(1000, 0), nil, &s); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(s.Pods, func(p stats.PodStats) bool { return p.QOSClass == stats.Burstable })
	uid, score, created := s.Pods[i].PodRef.UID, int64(934), time.Unix(500, 0)
	index := podindex.New(cri.Listing{
		Sandboxes: []cri.PodSandbox{
			{ID: "old", UID: uid, Name: "web", Namespace: "default", CreatedAt: created.Add(-time.Hour)},
			{ID: "new", UID: uid, Name: "web", Namespace: "default", Attempt: 1, Ready: true, CreatedAt: created, Annotations: map[string]string{"a": "b"}},
			{ID: "byhand"}, // without metadata: no UID to join by
			{ID: "elsewhere", UID: "u2", Name: "edge", Namespace: "default", Ready: true, CgroupParent: "/none/here"},
			{ID: "byhand2", UID: "u4", Name: "shared", Namespace: "default", Ready: true, CgroupParent: "/kubepods/burstable"},
			{ID: "sly", UID: "u5", Name: "sly", Namespace: "default", Ready: true, CgroupParent: "/kubepods/burstable/pod" + uid},
			{ID: "kind", UID: "u6", Name: "kind", Namespace: "default", Ready: true, CgroupParent: "/kubelet/kubepods/burstable/podu6"},
			{ID: "dead", UID: "u3", Name: "dead", Namespace: "default"},
		},
		Containers: []cri.Container{
			{ID: "c", SandboxID: "new", State: cri.Running, Running: true, OOMScoreAdj: &score},
			{ID: "over", SandboxID: "new", State: cri.Exited}, // no longer has a request
		},
	})
	if err := c.Collect(time.Unix(1001, 0), index, &s); err != nil {
		t.Fatal(err)
	}
	byUID := map[string]stats.PodStats{}
	for _, p := range s.Pods {
		byUID[p.PodRef.UID] = p
	}
	web := byUID[uid]
	if web.PodRef.Name != "web" || !web.Announced || web.Annotations["a"] != "b" || !slices.Equal(web.SandboxIDs, []string{"new", "old"}) || !web.StartTime.Equal(created) {
		t.Errorf("pod with the runtime's data = %+v", web)
	}
	if r := web.MemoryRequest; !r.OK || r.V.Min > 64<<20 || r.V.Max < 64<<20 { // the recording's pod requests 64Mi
		t.Errorf("memory request %+v does not include 64Mi", r)
	}
	if edge, ok := byUID["u2"]; !ok || edge.Memory.WorkingSetBytes.OK || edge.Populated.OK {
		t.Errorf("pod without its cgroup = %+v, found %v, want it unmeasured", edge, ok)
	}
	// A sandbox without its own cgroup names a shared one, which must never be used as the
	// pod's.
	if shared, ok := byUID["u4"]; !ok || shared.Cgroup != "" || shared.Memory.WorkingSetBytes.OK {
		t.Errorf("pod in a shared cgroup = %+v, found %v, want no cgroup", shared, ok)
	}
	if sly := byUID["u5"]; sly.Cgroup != "" {
		t.Errorf("sandbox that names another pod's cgroup got it: %+v", sly)
	}
	if kind := byUID["u6"]; kind.Cgroup != "kubelet/kubepods/burstable/podu6" || kind.QOSClass != stats.Burstable {
		t.Errorf("pod below a root that is not configured = %+v", kind)
	}
	if _, ok := byUID["u3"]; ok {
		t.Error("a pod without a ready sandbox and without a cgroup is listed")
	}
}

// A source that cannot be read affects only its own values.
func TestOneBrokenSourceBlindsOnlyItself(t *testing.T) {
	for _, c := range []struct {
		file       string
		workingSet bool
		kernel     bool
	}{
		{"cgroup/memory.stat", false, true},
		{"proc/meminfo", true, false},
	} {
		collector, _, dir := recordedNode(t, "6.12")
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte("MemTotal: what\nanon what\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		var node stats.NodeStats
		err := collector.Node(time.Unix(1000, 0), &node)
		if err == nil || !strings.Contains(err.Error(), filepath.Base(c.file)) {
			t.Errorf("%s: error %v does not name it", c.file, err)
		}
		if node.Memory.WorkingSetBytes.OK != c.workingSet || node.Memory.KernelAvailableBytes.OK != c.kernel {
			t.Errorf("node memory with unreadable %s = %+v", c.file, node.Memory)
		}
	}
}

// A pod that vanishes between two looks, or during one, is gone without an error.
func TestPodsVanish(t *testing.T) {
	c, _, dir := recordedNode(t, "6.12")
	var s stats.Summary
	if err := c.Collect(time.Unix(1000, 0), nil, &s); err != nil {
		t.Fatal(err)
	}
	gone := s.Pods[0]
	if err := os.RemoveAll(filepath.Join(dir, "cgroup", gone.Cgroup)); err != nil {
		t.Fatal(err)
	}
	// A recorded tree is no kernfs: a kept descriptor would stay readable. A new Reader has
	// none.
	other, err := NewReader(c.fs, c.proc, "")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	k := &podGroup{PodCgroup: stats.PodCgroup{Path: gone.Cgroup, UID: gone.PodRef.UID, QOSClass: gone.QOSClass}}
	other.pods.order, other.pods.all = append(other.pods.order, k), append(other.pods.all, k)
	if err := other.readPod(time.Unix(1000, 0), k, &gone, full); !errors.Is(err, cgroup.ErrVanished) || gone.Memory.WorkingSetBytes.OK || gone.Populated.OK {
		t.Errorf("memory of a removed pod = %+v, error %v", gone.Memory, err)
	}
	if err := c.Collect(time.Unix(1001, 0), nil, &s); err != nil || len(s.Pods) != 2 {
		t.Errorf("look after the removal found %d pods, error %v", len(s.Pods), err)
	}
	if len(c.pods.order) != 2 || len(c.pods.byUID) != 2 {
		t.Errorf("%d groups are kept for 2 pods", len(c.pods.order))
	}
}

func TestTheCheapLookDoesNotAllocate(t *testing.T) {
	c, _, _ := recordedNode(t, "6.12")
	var node stats.NodeStats
	if n := testing.AllocsPerRun(100, func() { _ = c.Node(time.Unix(1000, 0), &node) }); n != 0 {
		t.Errorf("cheap look made %v allocations, want 0", n)
	}
}

func TestAvailable(t *testing.T) {
	all := stats.NodeMemoryStats{CapacityBytes: stats.Some[uint64](100), WorkingSetBytes: stats.Some[uint64](30), KernelAvailableBytes: stats.Some[uint64](60)}
	noKernel, noWorkingSet, over, perCPU := all, all, all, all
	perCPU.PerCPUFreeBytes = stats.Some[uint64](5)
	noKernel.KernelAvailableBytes = stats.Opt[uint64]{}
	noWorkingSet.WorkingSetBytes = stats.Opt[uint64]{}
	over.WorkingSetBytes = stats.Some[uint64](200)
	for _, c := range []struct {
		name string
		m    stats.NodeMemoryStats
		by   stats.MemoryAvailable
		want uint64
		ok   bool
	}{
		{"the kubelet's formula", all, stats.MemoryAvailableWorkingSet, 70, true},
		{"the kernel's estimate", all, stats.MemoryAvailableKernel, 60, true},
		{"the lower", all, stats.MemoryAvailableLower, 60, true},
		{"the kernel's estimate and the per-CPU lists", perCPU, stats.MemoryAvailableKernel, 65, true},
		{"the lower, with the per-CPU lists", perCPU, stats.MemoryAvailableLower, 65, true},
		{"the lower, one absent", noKernel, stats.MemoryAvailableLower, 70, true},
		{"the lower, the other absent", noWorkingSet, stats.MemoryAvailableLower, 60, true},
		{"absent", noWorkingSet, stats.MemoryAvailableWorkingSet, 0, false},
		{"absent", noKernel, stats.MemoryAvailableKernel, 0, false},
		{"a working set above the capacity", over, stats.MemoryAvailableWorkingSet, 0, true},
		{"nothing", stats.NodeMemoryStats{}, stats.MemoryAvailableLower, 0, false},
	} {
		if got := c.m.Available(c.by); got.OK != c.ok || got.OK && got.Value != c.want {
			t.Errorf("available memory with case %s = %+v", c.name, got)
		}
	}
}

func TestStrangersAndSettling(t *testing.T) {
	c, _, _ := recordedNode(t, "6.12")
	var s stats.Summary
	if err := c.Collect(time.Unix(1000, 0), nil, &s); err != nil {
		t.Fatal(err)
	}
	strangers := func(pods podindex.Index) (n int) {
		c.UnannouncedPods(pods, func(string) { n++ })
		return n
	}
	if n := strangers(nil); n != 3 {
		t.Errorf("%d strangers, want the three unannounced pods", n)
	}
	var l cri.Listing
	created := time.Unix(900, 0)
	for _, p := range s.Pods {
		id := "s-" + p.PodRef.UID
		l.Sandboxes = append(l.Sandboxes, cri.PodSandbox{ID: id, UID: p.PodRef.UID, Ready: true, CreatedAt: created})
		l.Containers = append(l.Containers, cri.Container{SandboxID: id, Running: true})
	}
	if index := podindex.New(l); strangers(index) != 0 || !index.Settled(created) {
		t.Error("Settled is false with all pods running")
	}
	l.Containers[0].Running = false
	if index := podindex.New(l); index.Settled(created.Add(time.Second)) || !index.Settled(created.Add(time.Minute)) {
		t.Error("a young pod without a running container is about to change, an old one is not")
	}
	if index := podindex.New(l); !index.Settled(created.Add(-5 * time.Hour)) {
		t.Error("a clock set back by five hours keeps the pod unsettled")
	}
}

// A node-critical pod is recognized by its processes while the runtime reports no scores of its
// containers: before the pod is announced, and between the sandbox and the first container.
func TestCriticalPodIsRecognizedByItsProcesses(t *testing.T) {
	c, _, dir := recordedNode(t, "6.12")
	var s stats.Summary
	if err := c.Collect(time.Unix(1000, 0), nil, &s); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(s.Pods, func(p stats.PodStats) bool { return p.QOSClass == stats.Burstable })
	uid := s.Pods[i].PodRef.UID
	for name, text := range map[string]string{"cgroup/" + s.Pods[i].Cgroup + "/c/cgroup.procs": "4241\n4242\n", "proc/4241/oom_score_adj": "-998\n", "proc/4242/oom_score_adj": "-997\n"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sandbox := cri.PodSandbox{ID: "s", UID: uid, Ready: true}
	critical, ordinary := int64(-997), int64(900)
	for _, c2 := range []struct {
		name string
		l    cri.Listing
		want bool
	}{
		{"not announced", cri.Listing{}, true},
		{"a sandbox only", cri.Listing{Sandboxes: []cri.PodSandbox{sandbox}}, true},
		{"a container of which nothing is known", cri.Listing{Sandboxes: []cri.PodSandbox{sandbox}, Containers: []cri.Container{{SandboxID: "s"}}}, true},
		{"a critical container", cri.Listing{Sandboxes: []cri.PodSandbox{sandbox}, Containers: []cri.Container{{SandboxID: "s", OOMScoreAdj: &critical}}}, true},
		{"an ordinary container", cri.Listing{Sandboxes: []cri.PodSandbox{sandbox}, Containers: []cri.Container{{SandboxID: "s", OOMScoreAdj: &ordinary}}}, false},
	} {
		if err := c.Collect(time.Unix(1001, 0), podindex.New(c2.l), &s); err != nil {
			t.Fatal(err)
		}
		for _, p := range s.Pods {
			if p.NodeCritical != (c2.want && p.PodRef.UID == uid) {
				t.Errorf("with %s, the %s pod is critical: %v", c2.name, p.QOSClass, p.NodeCritical)
			}
		}
	}
}

// A quick look has all pods, with upper bounds of their usage; a pod read afterwards equals
// that of the whole look.
func TestQuickLookIsCompletedPodByPod(t *testing.T) {
	for _, kernel := range kernels {
		c, _, _ := recordedNode(t, kernel)
		now := time.Unix(1000, 0)
		var whole, part stats.Summary
		if err := c.Memory(now, nil, &whole); err != nil {
			t.Fatal(err)
		}
		pods := knownPods(whole.Pods)
		if err := errors.Join(c.Memory(now, pods, &whole), c.Quick(now, pods, &part)); err != nil {
			t.Fatal(err)
		}
		for i := range part.Pods {
			p, w := part.Pods[i], &whole.Pods[i]
			if m := p.Memory; !m.Quick || m.WorkingSetBytes != w.Memory.UsageBytes || m.AnonBytes.OK || m.LimitBytes != w.Memory.LimitBytes {
				t.Errorf("quick look: memory of %s = %+v", p.Cgroup, m)
			}
			if p.Populated != w.Populated || p.Threads != w.Threads || p.MemoryRequest != w.MemoryRequest || p.CgroupID != w.CgroupID || p.PodRef != w.PodRef {
				t.Errorf("completed pod %s = %+v, want %+v", p.Cgroup, p, *w)
			}
			if err := c.QuickPod(now, pods, &part, i); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(whole.Pods, part.Pods); diff != "" {
			t.Errorf("pods read individually differ (-whole +got):\n%s", diff)
		}
		if err := c.QuickPod(now, pods, &part, len(part.Pods)); err == nil {
			t.Error("QuickPod read a pod that does not exist")
		}
	}
}

package limits

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/cri/critest"
	"jettison/internal/base/filetest"
	"jettison/stats"
	"jettison/stats/read"
)

// node is a hierarchy of files with working notes.
type node struct {
	testing.TB
	dir     string
	fs      *cgroup.FS
	initial map[string]string // initial values that are no defaults, by path
}

// files are those of a cgroup with default values.
var files = map[string]string{
	"cgroup.procs": "", "memory.current": "1048576", "memory.min": "0", "memory.low": "0", "memory.high": "max", "memory.max": "max",
	"pids.max": "max", "cpu.weight": "100",
}

func newNode(t testing.TB, groups ...string) *node {
	t.Helper()
	n := &node{TB: t, dir: t.TempDir(), initial: map[string]string{}}
	n.write("cgroup.procs", "")
	n.add(groups...)
	var err error
	if n.fs, err = cgroup.OpenTree(n.dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.fs.Close() }) // a Part closes it
	g, err := n.fs.Group("")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := g.SetNote(cgroup.Trusted+"try", ""); err != nil {
		t.Skip("no extended attributes here: ", err)
	}
	return n
}

// add creates cgroups with their parents.
func (n *node) add(groups ...string) {
	for _, path := range groups {
		for _, path := range append(above(path), path) {
			if _, err := os.Stat(filepath.Join(n.dir, path, "cgroup.procs")); err == nil {
				continue
			}
			for name, text := range files {
				n.write(path+"/"+name, text+"\n")
			}
		}
	}
}

// start sets the initial value of a file.
func (n *node) start(name, text string) {
	n.Helper()
	n.write(name, text+"\n")
	n.initial[name] = text
}

func (n *node) write(name, text string) {
	n.Helper()
	filetest.Write(n, filepath.Join(n.dir, name), text)
}

// differs returns the values that differ from the initial ones, by "cgroup file", including those
// that a test wrote.
func (n *node) differs() map[string]string {
	n.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(n.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name := strings.TrimPrefix(path, n.dir+"/")
		initial, own := n.initial[name]
		if got := strings.TrimSpace(string(text)); own && got != initial || !own && got != files[d.Name()] {
			out[filepath.Dir(name)+" "+d.Name()] = got
		}
		return err
	})
	if err != nil {
		n.Fatal(err)
	}
	return out
}

// notes returns the files with a note.
func (n *node) notes() (out []string) {
	err := filepath.WalkDir(n.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() || path == n.dir {
			return err
		}
		g, err := n.fs.Group(strings.TrimPrefix(path, n.dir+"/"))
		if err != nil {
			return err
		}
		defer g.Close()
		for name := range files {
			if _, noted, err := g.Note(cgroup.Trusted + "before." + name); err != nil || noted {
				out = append(out, strings.TrimPrefix(path, n.dir+"/")+" "+name)
			}
		}
		return nil
	})
	if err != nil {
		n.Fatal(err)
	}
	return out
}

// object returns a pod object of containers "name request limit"; an empty figure is absent.
func object(uid string, containers ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: uid, Namespace: "default"}}
	for _, c := range containers {
		f := strings.Split(c, " ")
		list := func(text string) v1.ResourceList {
			if text == "" {
				return nil
			}
			return v1.ResourceList{v1.ResourceMemory: resource.MustParse(text)}
		}
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: f[0], Resources: v1.ResourceRequirements{Requests: list(f[1]), Limits: list(f[2])}})
	}
	return p
}

// runs returns the runtime's data of pods "uid": container names, with IDs "uid-name".
func runs(pods map[string][]string) read.Index {
	var l cri.Listing
	for uid, containers := range pods {
		l.Sandboxes = append(l.Sandboxes, cri.PodSandbox{ID: "s-" + uid, UID: uid, Name: uid, Namespace: "default", Ready: true})
		for _, name := range containers {
			l.Containers = append(l.Containers, cri.Container{ID: uid + "-" + name, SandboxID: "s-" + uid, Name: name, State: cri.Running, Running: true})
		}
	}
	return read.NewIndex(l)
}

// Requests and limits come from the object, and cgroups from the hierarchy.
func TestGather(t *testing.T) {
	n := newNode(t,
		"kubepods/poda/a-c", "kubepods/poda/a-side", "kubepods/poda/s-a", "kubepods/burstable/podb/crio-b-c.scope", "kubepods/burstable/podb/crio-conmon-b-c.scope",
		"kubepods/besteffort/podd/d-c", "kubepods/burstable/podnone", "kubepods/burstable/podself/own", "kubepods/other")
	n.start("kubepods/poda/a-c/memory.max", fmt.Sprint(100*mib))
	n.start("kubepods/poda/a-side/memory.max", fmt.Sprint(50*mib))
	objects := []*v1.Pod{object("a", "c 100Mi 100Mi", "side  50Mi"), object("b", "c 10Mi "), object("gone", "c 1Gi 1Gi"), object("self", "c 1Gi 1Gi")}
	before := objects[0].DeepCopy()
	pods, paths, err := gather(n.fs, "", Known{
		Objects: objects, Runtime: runs(map[string][]string{"a": {"c", "side", "unlisted"}, "b": {"c"}, "d": {"c"}}), Self: "kubepods/burstable/podself/own",
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(pods, func(x, y Pod) int { return strings.Compare(x.Cgroup, y.Cgroup) })
	want := []Pod{
		{Cgroup: "kubepods/besteffort/podd", QOSClass: stats.BestEffort, Containers: []Container{{Cgroup: "kubepods/besteffort/podd/d-c", Request: some(0), Limit: some(0)}}},
		{Cgroup: "kubepods/burstable/podb", QOSClass: stats.Burstable, Request: some(10 * mib), Containers: []Container{
			{Cgroup: "kubepods/burstable/podb/crio-b-c.scope", Request: some(10 * mib), Limit: some(0)},
		}},
		{Cgroup: "kubepods/burstable/podnone", QOSClass: stats.Burstable},
		{Cgroup: "kubepods/poda", QOSClass: stats.Guaranteed, Request: some(150 * mib), Containers: []Container{
			{Cgroup: "kubepods/poda/a-c", Request: some(100 * mib), Limit: some(100 * mib)},
			{Cgroup: "kubepods/poda/a-side", Request: some(50 * mib), Limit: some(50 * mib)},
		}},
	}
	if diff := cmp.Diff(want, pods); diff != "" {
		t.Errorf("gathered pods differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, objects[0]); diff != "" {
		t.Errorf("pod object was modified:\n%s", diff)
	}
	for _, path := range []string{"kubepods", "kubepods/burstable", "kubepods/poda/s-a", "kubepods/burstable/podb/crio-conmon-b-c.scope"} {
		if !slices.Contains(paths, path) {
			t.Errorf("paths lack the cgroup %s", path)
		}
	}
	if slices.Contains(paths, "kubepods/other") || slices.Contains(paths, "kubepods/burstable/podself") || slices.Contains(paths, "") {
		t.Errorf("paths contain cgroups of no pod, or the agent's: %v", paths)
	}
}

// Without an object the runtime's minimum request is protected, and no container is throttled. An
// unknown request is not 0.
func TestGatherWithoutObjects(t *testing.T) {
	n := newNode(t, "kubepods/poda/a-c", "kubepods/burstable/podb/b-c", "kubepods/burstable/podmute/mute-c")
	index := runs(map[string][]string{"a": {"c"}, "b": {"c"}, "mute": {"c"}})
	limit, guaranteed, adj := uint64(100*mib), int64(-997), int64(1000-125) // an eighth of 8 GiB
	index["a"].Containers[0].MemoryLimit, index["a"].Containers[0].OOMScoreAdj = &limit, &guaranteed
	index["b"].Containers[0].OOMScoreAdj = &adj
	pods, _, err := gather(n.fs, "", Known{Runtime: index, Capacity: some(8 << 30)})
	if err != nil || len(pods) != 3 {
		t.Fatalf("gather without objects: pods %v, error %v", pods, err)
	}
	for _, p := range pods {
		request, c := p.Request, p.Containers[0]
		switch p.Cgroup {
		case "kubepods/poda":
			if request != some(limit) || c.Request != some(limit) || c.Limit.OK {
				t.Errorf("Guaranteed pod without object = %+v", p)
			}
		case "kubepods/burstable/podb":
			if !request.OK || request.V > 1<<30 || request.V < 1<<30-16*mib || c.Request != request || c.Limit.OK {
				t.Errorf("Burstable pod without object = %+v", p)
			}
		default:
			if request.OK || c.Request.OK {
				t.Errorf("pod without any data = %+v", p)
			}
		}
	}
}

// A tenant with a delegated cgroup may create any number below it; gather reads a limited number.
func TestGatherIsBounded(t *testing.T) {
	n := newNode(t, "kubepods/poda")
	for i := range maxContainers + 50 {
		n.write(fmt.Sprintf("kubepods/poda/%d/cgroup.procs", i), "")
	}
	_, paths, err := gather(n.fs, "", Known{})
	if err != nil || len(paths) > maxContainers+20 {
		t.Errorf("gathered %d cgroups, error %v, want the limit", len(paths), err)
	}
}

func TestIsOf(t *testing.T) {
	for path, want := range map[string]bool{
		"p/abc": true, "p/cri-containerd-abc.scope": true, "p/crio-abc.scope": true, "p/crio-abc": true, "abc": true,
		"p/crio-conmon-abc.scope": false, "p/xabc": false, "p/abc-1": false, "p/abcd": false, "p/": false,
	} {
		if isOf(path, "abc") != want {
			t.Errorf("isOf reports %v for container abc and cgroup %s", !want, path)
		}
	}
	if isOf("p/", "") || isOf("p/x-", "") {
		t.Error("a container without an ID matches a cgroup")
	}
}

func TestMemoryOfALargeList(t *testing.T) {
	for text, want := range map[string]uint64{"1Gi": 1 << 30, "1.5": 2, "100E": 1<<63 - 1, "-1": 0} {
		if got := memory(v1.ResourceList{v1.ResourceMemory: resource.MustParse(text)}); got != want {
			t.Errorf("memory of a list with %s = %d bytes", text, got)
		}
	}
	if memory(nil) != 0 {
		t.Error("memory of an empty list is not 0")
	}
}

// Of the cgroups of a real CRI-O, one is a container's: not its monitor's.
func TestCgroupOfAContainerOfARecordedCRIO(t *testing.T) {
	for _, name := range []string{critest.CRIOSystemd, critest.CRIOCgroupfs} {
		files := critest.Recorded(t, name)
		running := 0
		for call := range files {
			id, ok := strings.CutPrefix(call, "ContainerStatus/")
			if !ok || !strings.Contains(files[call], `"CONTAINER_RUNNING"`) {
				continue
			}
			running++
			of := []string{}
			for line := range strings.Lines(files["cgroups"]) {
				if path, processes, _ := strings.Cut(strings.TrimSpace(line), " "); isOf(path, id) {
					of = append(of, path+" "+processes)
				}
			}
			if len(of) != 1 || strings.Contains(of[0], "conmon") || strings.HasSuffix(of[0], " ") {
				t.Errorf("%s: cgroups of container %s = %q, want one with a process", name, id, of)
			}
		}
		if running != 3 {
			t.Errorf("%s: %d running containers, want 3", name, running)
		}
	}
}

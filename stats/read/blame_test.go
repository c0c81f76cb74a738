package read

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/podindex"
)

// blamed is a pod of a recorded node; the test writes its containers' memory files.
type blamed struct {
	t      *testing.T
	c      *Reader
	dir    string // its cgroup
	uid    string
	groups []string // of containers; the first is the sandbox's
	index  podindex.Index
	s      stats.Summary
}

func newBlamed(t *testing.T, more int) *blamed {
	t.Helper()
	c, _, dir := recordedNode(t, "6.12")
	pods, err := filepath.Glob(filepath.Join(dir, "cgroup/kubepods/burstable/pod*"))
	if err != nil || len(pods) != 1 {
		t.Fatal(pods, err)
	}
	c.blame = time.Hour
	b := &blamed{t: t, c: c, dir: pods[0], uid: strings.TrimPrefix(filepath.Base(pods[0]), "pod")}
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			b.groups = append(b.groups, e.Name())
		}
	}
	for i := range more {
		name := fmt.Sprint("more", i)
		if err := os.CopyFS(filepath.Join(b.dir, name), os.DirFS(filepath.Join(b.dir, b.groups[0]))); err != nil {
			t.Fatal(err)
		}
		b.groups = append(b.groups, name)
	}
	sandbox := cri.PodSandbox{ID: b.groups[0], UID: b.uid, Name: "p", Namespace: "n", Ready: true}
	listing := cri.Listing{Sandboxes: []cri.PodSandbox{sandbox}}
	for i, id := range b.groups[1:] {
		listing.Containers = append(listing.Containers, cri.Container{ID: id, Name: fmt.Sprint("c", i), SandboxID: sandbox.ID, State: cri.Running, Running: true})
	}
	b.index = podindex.New(listing)
	return b
}

// uses writes the memory use of the pod and its containers, in MiB; the sandbox always uses 1.
func (b *blamed) uses(pod int, containers ...int) {
	b.t.Helper()
	write := func(dir string, mib int) {
		if err := os.WriteFile(filepath.Join(dir, "memory.current"), fmt.Appendf(nil, "%d\n", mib<<20), 0o644); err != nil {
			b.t.Fatal(err)
		}
		text := fmt.Sprintf("anon %d\nfile 0\nshmem 0\ninactive_file 0\n", mib<<20)
		if err := os.WriteFile(filepath.Join(dir, "memory.stat"), []byte(text), 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	write(b.dir, pod)
	write(filepath.Join(b.dir, b.groups[0]), 1)
	for i, mib := range containers {
		write(filepath.Join(b.dir, b.groups[i+1]), mib)
	}
}

func (b *blamed) full() {
	b.t.Helper()
	if err := b.c.Collect(time.Unix(1000, 0), b.index, &b.s); err != nil {
		b.t.Fatal(err)
	}
}

// short takes the look that an eviction for memory is based on.
func (b *blamed) short() *stats.PodStats {
	b.t.Helper()
	if err := b.c.Quick(time.Unix(1001, 0), b.index, &b.s); err != nil {
		b.t.Fatal(err)
	}
	i := slices.IndexFunc(b.s.Pods, func(p stats.PodStats) bool { return p.PodRef.UID == b.uid })
	if err := b.c.QuickPod(time.Unix(1001, 0), b.index, &b.s, i); err != nil {
		b.t.Fatal(err)
	}
	if p := &b.s.Pods[i]; len(p.Containers) > 0 {
		b.t.Fatalf("the look has containers, so Blame has nothing to add: %+v", p.Containers)
	}
	return &b.s.Pods[i]
}

// blame returns the use of each container in MiB.
func (b *blamed) blame(p *stats.PodStats) string {
	b.c.Blame(b.index, p)
	var out []string
	for _, c := range p.Containers {
		used := "?"
		if m := c.Memory.WorkingSetBytes; m.OK {
			used = fmt.Sprint(m.V >> 20)
		}
		out = append(out, c.Name+"="+used)
	}
	return strings.Join(out, " ")
}

// After a kill, Blame finds the memory use of the pod's containers from remaining cgroups and
// the last full look.
func TestBlame(t *testing.T) {
	for _, c := range []struct {
		name       string
		containers int
		full       []int // the pod and its containers at the last full look; nil: the pod is newer
		short      int   // the pod at the choice
		after      []int // the pod and its containers after the kill; nil: their cgroups are gone
		want       string
	}{
		{"the only one has grown since, and is dying", 1, []int{60, 50}, 500, []int{90, 80}, "c0=490"},
		{"the only one, of which nothing is left", 1, []int{60, 50}, 500, nil, "c0=490"},
		{"the only one of a young pod", 1, nil, 500, []int{500, 400}, "c0=499"},
		{"one of two has grown since", 2, []int{60, 30, 20}, 500, []int{400, 30, 360}, "c0=30 c1=360"},
		{"of two nothing is left", 2, []int{60, 30, 20}, 500, []int{0, 0, 0}, "c0=30 c1=20"},
		{"of two the cgroups are gone", 2, []int{60, 30, 20}, 500, nil, "c0=30 c1=20"},
		{"two of a young pod", 2, nil, 500, []int{400, 30, 360}, "c0=30 c1=360"},
		{"young, and gone", 2, nil, 500, nil, ""},
		{"none used more than the pod", 2, []int{900, 400, 300}, 200, []int{100, 50, 50}, "c0=200 c1=200"},
	} {
		b := newBlamed(t, c.containers-1)
		if c.full != nil {
			b.uses(c.full[0], c.full[1:]...)
			b.full()
		}
		b.uses(c.short, make([]int, c.containers)...)
		p := b.short()
		if c.after != nil {
			b.uses(c.after[0], c.after[1:]...)
		} else if err := os.RemoveAll(b.dir); err != nil {
			t.Fatal(err)
		}
		if got := b.blame(p); got != c.want {
			t.Errorf("blamed containers with %s = %s, want %s", c.name, got, c.want)
		}
	}
}

// A container that the runtime has not reported has no name. A container that ended before the
// kill is left out. Containers of a full look stay unchanged.
func TestContainersLeftOutOfBlame(t *testing.T) {
	b := newBlamed(t, 1)
	b.uses(60, 30, 20)
	b.full()
	b.uses(500, 400, 20)
	known := b.index
	b.index = nil
	if got := b.blame(b.short()); strings.Count(got, "=") != 3 || !strings.Contains(got, "c0=400") { // named as in the last look
		t.Errorf("containers of a pod unknown to the runtime = %s", got)
	}
	b.index = known
	p := b.short()
	if err := os.RemoveAll(filepath.Join(b.dir, b.groups[2])); err != nil {
		t.Fatal(err)
	}
	if got := b.blame(p); got != "c0=490" { // 10 of 60 MiB belong to no container
		t.Errorf("containers with one that has ended = %s", got)
	}
	b.full()
	i := slices.IndexFunc(b.s.Pods, func(p stats.PodStats) bool { return p.PodRef.UID == b.uid })
	if got := b.blame(&b.s.Pods[i]); got != "c0=400" {
		t.Errorf("containers after a full look = %s", got)
	}
}

// While the kernel blocks the lister, the loop must not look up names in a pod's directory: its lock may be held.
func TestBlameReadsNothingWhileTheListerIsBlocked(t *testing.T) {
	b := newBlamed(t, 0)
	b.uses(60, 50)
	b.full()
	b.uses(500, 400)
	p := b.short()
	b.c.pods.client.inFlight = true
	defer func() { b.c.pods.client.inFlight = false }()
	file := filepath.Join(b.dir, b.groups[1], "memory.current")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(file, 0o600); err != nil { // opening it blocks
		t.Fatal(err)
	}
	done := make(chan string, 1)
	go func() { done <- b.blame(p) }()
	select {
	case got := <-done:
		if got != "c0=490" {
			t.Errorf("containers while the lister is blocked = %s, want c0=490, from the last full look", got)
		}
	case <-time.After(10 * time.Second):
		t.Error("Blame waits for the pod's directory")
		if w, err := os.OpenFile(file, os.O_RDWR, 0); err == nil {
			defer w.Close()
		}
		<-done
	}
}

// A container may create cgroups next to its own if the pod's cgroup is delegated; they cost a
// bounded number of reads.
func TestBlameIsBounded(t *testing.T) {
	b := newBlamed(t, 3*maxContainers)
	b.uses(500, 400)
	p := b.short()
	b.blame(p)
	if read := len(slices.DeleteFunc(slices.Clone(p.Containers), func(c stats.ContainerStats) bool { return !c.Memory.WorkingSetBytes.OK })); read > maxContainers {
		t.Errorf("Blame read %d containers, want a bounded number", read)
	}
	b.c.blame = 0
	if got := b.blame(b.short()); strings.Count(got, "=?") != 3*maxContainers+1 {
		t.Errorf("containers with a limit of no time = %s", got)
	}
	b.c.Blame(b.index, &stats.PodStats{PodRef: stats.PodReference{UID: "of no pod"}, Cgroup: "kubepods/podx"})
	b.c.Blame(b.index, &stats.PodStats{PodRef: stats.PodReference{UID: b.uid}})
}

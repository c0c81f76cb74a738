package read

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/podindex"
	"jettison/stats/read/procfs"
)

// splitNode is a node in files, on which containers may run outside their pods' cgroups.
type splitNode struct {
	t       *testing.T
	dir     string
	listing cri.Listing
	reader  *Reader
	runtime int
}

const (
	uidA = "aaaaaaaa-1234-1234-1234-123456789abc"
	uidB = "bbbbbbbb-1234-1234-1234-123456789abc"
	// the agent's cgroup and PID, and the runtime's
	agentCgroup, runtimeCgroup = "system.slice/jettison.service", "system.slice/containerd.service"
	runtimePID                 = 4_000_001
)

// started is the creation and start of each container, five minutes after the boot.
var (
	boot    = time.Unix(1_700_000_000, 0)
	started = boot.Add(5 * time.Minute)
)

// hexID returns a container's ID.
func hexID(c string) string { return strings.Repeat(c, 64) }

func newSplitNode(t *testing.T) *splitNode {
	t.Helper()
	n := &splitNode{t: t, dir: t.TempDir(), runtime: runtimePID}
	n.write("proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n")
	n.write("proc/stat", fmt.Sprintf("cpu0 1 2 3\nbtime %d\n", boot.Unix()))
	n.write("proc/loadavg", "0.20 0.18 0.12 1/80 11206\n")
	n.write("proc/self/cgroup", "0::/"+agentCgroup+"\n")
	n.link("proc/self/ns/mnt", "mnt:[1]")
	n.process(1, "init.scope", "mnt:[1]", 0)
	n.process(runtimePID, runtimeCgroup, "mnt:[1]", time.Minute)
	n.write("cgroup/memory.stat", "anon 0\nfile 0\nshmem 0\ninactive_file 0\n")
	fs, err := cgroup.OpenTree(filepath.Join(n.dir, "cgroup"))
	n.must(err)
	proc, err := procfs.Open(filepath.Join(n.dir, "proc"))
	n.must(err)
	n.reader, err = NewReader(fs, proc, "")
	n.must(err)
	t.Cleanup(func() { n.reader.Close(); proc.Close(); fs.Close() })
	return n
}

func (n *splitNode) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *splitNode) write(name, text string) {
	n.t.Helper()
	path := filepath.Join(n.dir, name)
	n.must(os.MkdirAll(filepath.Dir(path), 0o755))
	n.must(os.WriteFile(path, []byte(text), 0o644))
}

func (n *splitNode) link(name, target string) {
	n.t.Helper()
	path := filepath.Join(n.dir, name)
	n.must(os.MkdirAll(filepath.Dir(path), 0o755))
	n.must(os.Symlink(target, path))
}

// process adds a process that started some time after the boot.
func (n *splitNode) process(pid int, at, mounts string, after time.Duration) {
	n.t.Helper()
	dir := fmt.Sprintf("proc/%d/", pid)
	n.write(dir+"cgroup", "0::/"+at+"\n")
	n.write(dir+"stat", fmt.Sprintf("%d (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %d 0\n",
		pid, after/(10*time.Millisecond)))
	n.link(dir+"ns/mnt", mounts)
}

// group adds a cgroup with this use of memory in MiB; 0: empty, without a process.
func (n *splitNode) group(at string, mib int) {
	n.t.Helper()
	at = "cgroup/" + at + "/"
	n.write(at+"cgroup.procs", "")
	n.write(at+"cgroup.events", fmt.Sprintf("populated %d\nfrozen 0\n", min(mib, 1)))
	n.write(at+"memory.current", fmt.Sprintln(mib<<20))
	n.write(at+"memory.stat", fmt.Sprintf("anon %d\nfile 0\nshmem 0\ninactive_file 0\n", mib<<20))
	n.write(at+"pids.current", fmt.Sprintln(min(mib, 1)))
}

func (n *splitNode) pod(uid, parent string) {
	n.listing.Sandboxes = append(n.listing.Sandboxes, cri.PodSandbox{ID: "s" + uid, UID: uid,
		Name: uid[:1], Namespace: "default", Ready: true, CgroupParent: parent})
}

// runs adds a running container of a pod, with a process.
func (n *splitNode) runs(uid, id string, pid int) {
	n.listing.Containers = append(n.listing.Containers, cri.Container{ID: id, SandboxID: "s" + uid,
		Name: "c" + id[:1], State: cri.Running, Running: true, PID: pid, CreatedAt: started,
		StartedAt: started})
}

// looks lists the pods and makes each kind of look. It returns the first pod of the full one.
func (n *splitNode) looks() stats.PodStats {
	n.t.Helper()
	pods := podindex.New(n.listing)
	NewOutsideFinder(filepath.Join(n.dir, "proc"), "", func() int { return n.runtime }).Find(pods)
	var quick, s stats.Summary
	_ = n.reader.Quick(started, pods, &quick)
	_ = n.reader.Collect(started, pods, &s) // the node lacks files that do not matter here
	if len(s.Pods) == 0 || len(s.Pods) != len(quick.Pods) {
		n.t.Fatalf("looks found %d and %d pods, want the same and at least one", len(quick.Pods), len(s.Pods))
	}
	for i := range s.Pods {
		q, p := &quick.Pods[i], &s.Pods[i]
		if q.Populated != p.Populated || q.Memory.UsageBytes != p.Memory.UsageBytes ||
			len(q.Outside) != len(p.Outside) || q.Cgroup != p.Cgroup {
			n.t.Errorf("quick look of pod %s = %+v, full look %+v", p.PodRef.UID, q, p)
		}
	}
	return s.Pods[0]
}

// A pod is measured where its containers run, once each, and counts as alive there.
func TestContainersOutsideTheirPods(t *testing.T) {
	const slice = "kubepods.slice/kubepods-besteffort.slice"
	unit := "kubepods-besteffort-pod" + strings.ReplaceAll(uidA, "-", "_") + ".slice"
	below := "kubepods/besteffort/pod" + uidA
	a, b := hexID("a"), hexID("b")
	for _, c := range []struct {
		what   string
		parent string
		groups map[string]int // MiB, 0: empty
		at     map[string]string
		mib    int
		cgroup string // of the pod; empty: none
		out    int
	}{
		{"below the pod", "/" + below, map[string]int{below: 40, below + "/" + a: 30},
			map[string]string{a: below + "/" + a}, 40, below, 0},
		{"kubelet with systemd, runtime with cgroupfs (kubernetes#106514)", unit,
			map[string]int{slice + "/" + unit: 0, runtimeCgroup + "/" + unit + ":cri-containerd:" + a: 30},
			map[string]string{a: runtimeCgroup + "/" + unit + ":cri-containerd:" + a}, 30, slice + "/" + unit, 1},
		{"the slice at the top", unit,
			map[string]int{slice + "/" + unit: 0, unit + "/" + a: 30, unit + "/" + b: 12},
			map[string]string{a: unit + "/" + a, b: unit + "/" + b}, 42, slice + "/" + unit, 2},
		{"cgroupsPerQOS: false", "", map[string]int{"system.slice/cri-containerd-" + a + ".scope": 30},
			map[string]string{a: "system.slice/cri-containerd-" + a + ".scope"}, 30, "", 1},
		{"a shared parent", "/k8s.io", map[string]int{"k8s.io/" + a: 30, "k8s.io/" + b: 5},
			map[string]string{a: "k8s.io/" + a, b: "k8s.io/" + b}, 35, "", 2},
		{"the pod's directory is missing", "/" + below, map[string]int{"docker/docker-" + a + ".scope": 30},
			map[string]string{a: "docker/docker-" + a + ".scope"}, 30, "", 1},
		{"half outside", "/" + below, map[string]int{below: 40, "k8s.io/" + b: 5},
			map[string]string{a: below + "/" + a, b: "k8s.io/" + b}, 45, below, 1},
		{"a process deeper in its container", "", map[string]int{"x/crio-" + a + ".scope": 30},
			map[string]string{a: "x/crio-" + a + ".scope/container"}, 30, "", 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			n := newSplitNode(t)
			n.pod(uidA, c.parent)
			for at, mib := range c.groups {
				n.group(at, mib)
			}
			pid := 4_000_100
			for id, at := range c.at {
				pid++
				n.process(pid, at, "mnt:[9]", 5*time.Minute)
				n.runs(uidA, id, pid)
			}
			for range 2 { // a list may be repeated
				p := n.looks()
				if p.Populated != stats.Some(true) || p.Memory.WorkingSetBytes != stats.Some(uint64(c.mib)<<20) ||
					p.Cgroup != c.cgroup || len(p.Outside) != c.out {
					t.Errorf("populated %v, working set %d MiB (%v), cgroup %q, outside %+v, want true, %d MiB, %q, %d",
						p.Populated, p.Memory.WorkingSetBytes.V>>20, p.Memory.WorkingSetBytes.OK, p.Cgroup,
						p.Outside, c.mib, c.cgroup, c.out)
				}
				for i := range p.Outside {
					if o := &p.Outside[i]; o.Cgroup == "" || o.CgroupID == (stats.CgroupID{}) {
						t.Errorf("container outside has no cgroup of its own: %+v", o)
					}
				}
			}
			// The containers exit, and the runtime does not say so yet.
			for at := range c.groups {
				n.group(at, 0)
			}
			if p := n.looks(); p.Populated != stats.Some(false) {
				t.Errorf("after the exit: populated %v, want false", p.Populated)
			}
			n.listing = cri.Listing{}
			if c.cgroup != "" {
				if p := n.looks(); p.Populated != stats.Some(false) {
					t.Errorf("without a container: populated %v, want false", p.Populated)
				}
			}
		})
	}
}

// A process in a cgroup with others keeps its pod alive. The pod uses the memory of the process and
// its descendants, not that of the others. Unreadable memory is unknown, not 0.
func TestProcessInASharedCgroup(t *testing.T) {
	n := newSplitNode(t)
	own := "kubepods/besteffort/pod" + uidA
	n.group(own, 0)
	n.group(runtimeCgroup, 300)
	n.pod(uidA, "/"+own)
	child := exec.Command("sleep", "60")
	n.must(child.Start())
	n.process(child.Process.Pid, runtimeCgroup, "mnt:[9]", 5*time.Minute)
	n.runs(uidA, hexID("a"), child.Process.Pid)
	p := n.looks()
	want := []stats.OutsideContainer{{ID: hexID("a"), Process: stats.ProcessID{PID: child.Process.Pid, Start: 30000}}}
	if p.Populated != stats.Some(true) || p.Memory.UsageBytes.OK || p.Cgroup != own ||
		len(p.Outside) != 1 || p.Outside[0] != want[0] {
		t.Errorf("populated %v, usage %v, cgroup %q, outside %+v, want true, unknown, %q, %+v", p.Populated,
			p.Memory.UsageBytes, p.Cgroup, p.Outside, own, want)
	}
	n.must(child.Process.Kill())
	_ = child.Wait()
	if p := n.looks(); p.Populated != stats.Some(false) || len(p.Outside) != 0 {
		t.Errorf("after its end: populated %v, outside %+v, want false and none", p.Populated, p.Outside)
	}
}

// A process that got a container's PID after the container's end is not the container's: its memory
// does not count, and the pod does not run.
func TestReusedPIDInASharedCgroup(t *testing.T) {
	for _, async := range []bool{false, true} {
		n := newSplitNode(t)
		own := "kubepods/besteffort/pod" + uidA
		n.group(own, 0)
		n.group(runtimeCgroup, 300)
		n.pod(uidA, "/"+own)
		pid := os.Getppid()
		n.process(pid, runtimeCgroup, "mnt:[9]", 5*time.Minute)
		n.memory(pid, 100, 0, "")
		n.runs(uidA, hexID("a"), pid)
		if p := n.looks(); p.Populated != stats.Some(true) || p.Memory.UsageBytes != stats.Some(uint64(100)<<20) {
			t.Fatalf("populated %v, usage %v, want true and 100 MiB", p.Populated, p.Memory.UsageBytes)
		}
		pods := podindex.New(n.listing)
		NewOutsideFinder(filepath.Join(n.dir, "proc"), "", func() int { return n.runtime }).Find(pods)
		n.memory(pid, 700, 0, "")
		stat := filepath.Join(n.dir, "proc", fmt.Sprint(pid), "stat")
		text, err := os.ReadFile(stat)
		n.must(err)
		n.must(os.WriteFile(stat, bytes.Replace(text, []byte(" 30000 "), []byte(" 30001 "), 1), 0o600))
		n.reader.processes.async = async
		var s stats.Summary
		for end := time.Now().Add(20 * time.Second); ; { // a reading may take longer than a look waits
			_ = n.reader.Quick(started, pods, &s)
			if p := &s.Pods[0]; p.Populated == stats.Some(false) || time.Now().After(end) {
				break
			}
		}
		if p := &s.Pods[0]; p.Populated != stats.Some(false) || p.Memory.UsageBytes.V >= 700<<20 || len(p.Outside) > 0 {
			t.Errorf("async %v: populated %v, usage %v, outside %v, want false and nothing of the other process", async,
				p.Populated, p.Memory.UsageBytes, p.Outside)
		}
	}
}

// memory sets the memory of a process in MiB, and its children.
func (n *splitNode) memory(pid, anon, shmem int, children string) {
	n.t.Helper()
	dir := fmt.Sprintf("proc/%d/", pid)
	n.write(dir+"status", fmt.Sprintf("Name:\ta\nVmRSS:\t  999999 kB\nRssAnon:\t  %d kB\nRssFile:\t    4000 kB\nRssShmem:\t  %d kB\n",
		anon<<10, shmem<<10))
	n.write(fmt.Sprintf("%stask/%d/children", dir, pid), children)
}

// A pod whose process was moved into a shared cgroup uses at least the memory of the process and its
// descendants: it must not hide behind its sandbox's few pages. What its own cgroup still has charged
// does not count twice.
func TestMemoryOfAProcessInASharedCgroup(t *testing.T) {
	for _, c := range []struct {
		what           string
		own, mib, anon int // MiB
	}{{"only its sandbox in its cgroup", 1, 320, 300}, {"no process in its cgroup", 0, 320, 300},
		{"charged before the move", 500, 500, 500}} {
		t.Run(c.what, func(t *testing.T) {
			n := newSplitNode(t)
			own := "kubepods/besteffort/pod" + uidA
			n.group(own, c.own)
			n.group(runtimeCgroup, 900)
			n.pod(uidA, "/"+own)
			child := exec.Command("sleep", "60")
			n.must(child.Start())
			t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
			pid := child.Process.Pid
			n.process(pid, runtimeCgroup, "mnt:[9]", 5*time.Minute)
			n.memory(pid, 100, 20, "4000201 4000202")
			n.memory(4_000_201, 200, 20, "")
			n.runs(uidA, hexID("a"), pid)
			p := n.looks()
			if p.Populated != stats.Some(true) || p.Memory.WorkingSetBytes != stats.Some(uint64(c.mib)<<20) ||
				p.Memory.AnonBytes != stats.Some(uint64(c.anon)<<20) {
				t.Errorf("populated %v, working set %v, anonymous %v, want true, %d MiB, %d MiB", p.Populated,
					p.Memory.WorkingSetBytes, p.Memory.AnonBytes, c.mib, c.anon)
			}
		})
	}
}

// Whatever PID and ID the runtime reports, no process of another owner counts as the pod's: the pod
// is alive by the runtime's word, unmeasured, and without a place to kill.
func TestWrongProcessesOfTheRuntime(t *testing.T) {
	other := "kubepods/besteffort/pod" + uidB
	a, b := hexID("a"), hexID("b")
	for _, c := range []struct {
		what, id, at, mounts string
		pid                  int
		after                time.Duration
	}{
		{"process 1", a, "init.scope", "mnt:[9]", 1, 5 * time.Minute},
		{"the agent", a, agentCgroup, "mnt:[9]", os.Getpid(), 5 * time.Minute},
		{"the runtime", a, runtimeCgroup, "mnt:[9]", runtimePID, 5 * time.Minute},
		{"a process of the node", a, "system.slice/sshd.service", "mnt:[1]", 4_000_100, 5 * time.Minute},
		{"a reused PID", a, "system.slice/x.service", "mnt:[9]", 4_000_100, 6 * time.Minute},
		{"an older process", a, "system.slice/x.service", "mnt:[9]", 4_000_100, time.Minute},
		{"another pod's process", a, other, "mnt:[9]", 4_000_100, 5 * time.Minute},
		{"the ID below another pod", a, other + "/" + a, "mnt:[9]", 4_000_100, 5 * time.Minute},
		{"another container's process", a, "k8s.io/" + b, "mnt:[9]", 4_000_100, 5 * time.Minute},
		{"within another container", a, "k8s.io/" + b + "/" + a, "mnt:[9]", 4_000_100, 5 * time.Minute},
		{"conmon", a, "crio-conmon-" + a + ".scope", "mnt:[1]", 4_000_100, 5 * time.Minute},
		{"a short ID", "system", "system.slice", "mnt:[1]", 4_000_100, 5 * time.Minute},
		{"a hidden path", a, "../../x", "mnt:[9]", 4_000_100, 5 * time.Minute},
		{"no PID", a, "", "mnt:[9]", 0, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			n := newSplitNode(t)
			own := "kubepods/besteffort/pod" + uidA
			n.group(own, 0)
			for _, at := range []string{"init.scope", agentCgroup, runtimeCgroup, other, "k8s.io/" + b} {
				n.group(at, 100)
			}
			n.pod(uidA, "/"+own)
			if c.pid > 0 {
				n.must(os.RemoveAll(filepath.Join(n.dir, "proc", fmt.Sprint(c.pid))))
				n.process(c.pid, c.at, c.mounts, c.after)
			}
			n.runs(uidA, c.id, c.pid)
			p := n.looks()
			if len(p.Outside) > 0 || p.Located() || p.Memory.UsageBytes.OK || p.Populated != stats.Some(true) {
				t.Errorf("pod is measured, can be killed by the kernel, or does not run: %+v", p)
			}
			if p.Self != (c.what == "the agent") {
				t.Errorf("self = %v, want it only for the agent's pod", p.Self)
			}
		})
	}
}

// A directory with the container's name that has processes of others in it is not the container's own.
func TestOwnDirectoryWithOthers(t *testing.T) {
	a, b := hexID("a"), hexID("b")
	for what, setUp := range map[string]func(n *splitNode){
		"the agent": func(n *splitNode) {
			n.write("proc/self/cgroup", "0::/x/"+a+"/agent\n")
		},
		"the runtime": func(n *splitNode) {
			n.write("proc/4000001/cgroup", "0::/x/"+a+"/containerd\n")
		},
		"another pod": func(n *splitNode) {
			n.pod(uidB, "")
			n.process(4_000_101, "x/"+a+"/b", "mnt:[8]", time.Minute)
			n.runs(uidB, b, 4_000_101)
		},
	} {
		t.Run(what, func(t *testing.T) {
			n := newSplitNode(t)
			n.group("x/"+a, 30)
			n.pod(uidA, "")
			n.process(4_000_100, "x/"+a, "mnt:[9]", time.Minute)
			n.runs(uidA, a, 4_000_100)
			setUp(n)
			p := n.looks()
			if len(p.Outside) > 0 || p.Memory.UsageBytes.OK || p.Self != (what == "the agent") {
				t.Errorf("usage %v, outside %+v, self %v, want neither usage nor a place", p.Memory.UsageBytes,
					p.Outside, p.Self)
			}
		})
	}
}

// A tenant that may create cgroups below its container's names them like its own or other containers,
// and moves its first process there. The container stays the outermost cgroup with its ID.
func TestForgedNamesBelowAContainer(t *testing.T) {
	a, b := hexID("a"), hexID("b")
	for what, below := range map[string]string{
		"its own ID": "/x/" + a, "another ID": "/" + b, "its own ID below another": "/" + b + "/" + a,
		"a unit's name": "/cri-containerd-" + a + ".scope",
	} {
		t.Run(what, func(t *testing.T) {
			n := newSplitNode(t)
			own := "k8s.io/" + a
			n.group(own, 300)
			n.group(own+below, 1)
			n.pod(uidA, "")
			n.process(4_000_100, own+below, "mnt:[9]", 5*time.Minute)
			n.runs(uidA, a, 4_000_100)
			p := n.looks()
			if len(p.Outside) != 1 || p.Outside[0].Cgroup != own || p.Memory.UsageBytes != stats.Some(uint64(300)<<20) {
				t.Errorf("outside %+v, usage %v, want %s with 300 MiB", p.Outside, p.Memory.UsageBytes, own)
			}
		})
	}
}

// A file that cannot be read leaves only its own values absent, as in a pod's own cgroup.
func TestOutsideWithAMalformedFile(t *testing.T) {
	own, at := "kubepods/besteffort/pod"+uidA, "k8s.io/"+hexID("a")
	for _, broken := range []string{own, at} {
		n := newSplitNode(t)
		n.group(own, 40)
		n.group(at, 30)
		n.write("cgroup/"+broken+"/cpu.stat", "usage_usec x\n")
		n.pod(uidA, "/"+own)
		n.process(4_000_100, at, "mnt:[9]", 5*time.Minute)
		n.runs(uidA, hexID("a"), 4_000_100)
		p := n.looks()
		if p.Memory.UsageBytes != stats.Some(uint64(70)<<20) || p.CPU.Usage.OK || len(p.Outside) != 1 {
			t.Errorf("cpu.stat of %s: usage %v, CPU %v, outside %+v, want 70 MiB, unknown, one", broken,
				p.Memory.UsageBytes, p.CPU.Usage, p.Outside)
		}
	}
}

// A container without a known process takes its pod's cgroup away only if that cgroup is missing: while
// the kernel blocks its opening, the kernel can still kill the pod.
func TestUnlocatedBeforeTheCgroupIsOpen(t *testing.T) {
	n := newSplitNode(t)
	own := "kubepods/besteffort/pod" + uidA
	n.group(own, 40)
	n.pod(uidA, "/"+own)
	n.runs(uidA, hexID("a"), 0)
	n.looks()
	k := n.reader.pods.byUID[uidA]
	var p stats.PodStats
	for _, err := range []error{errNotOpen, cgroup.ErrVanished} {
		k.reset(&p)
		_ = n.reader.addOutside(started, k, &p, quick, err)
		if want := err == errNotOpen; p.Located() != want {
			t.Errorf("after %v: cgroup %q, want the pod's: %v", err, p.Cgroup, want)
		}
		if want := err != errNotOpen; p.Populated != (stats.Opt[bool]{V: want, OK: want}) {
			t.Errorf("after %v: populated %v, want the runtime's word: %v", err, p.Populated, want)
		}
	}
}

// An eviction message attributes memory to the container that uses it, also outside the pod's cgroup.
func TestBlameOfASplitPod(t *testing.T) {
	own, at := "kubepods/besteffort/pod"+uidA, "k8s.io/"+hexID("b")
	for _, parent := range []string{"/" + own, ""} {
		n := newSplitNode(t)
		if n.group(at, 500); parent != "" {
			n.group(own, 40)
			n.group(own+"/"+hexID("a"), 30)
		}
		n.pod(uidA, parent)
		if parent != "" {
			n.process(4_000_100, own+"/"+hexID("a"), "mnt:[9]", 5*time.Minute)
			n.runs(uidA, hexID("a"), 4_000_100)
		}
		n.process(4_000_101, at, "mnt:[8]", 5*time.Minute)
		n.runs(uidA, hexID("b"), 4_000_101)
		n.looks()
		pods := podindex.New(n.listing)
		NewOutsideFinder(filepath.Join(n.dir, "proc"), "", func() int { return n.runtime }).Find(pods)
		var s stats.Summary
		_ = n.reader.Memory(started, pods, &s)
		n.reader.Blame(pods, &s.Pods[0])
		got := map[string]uint64{}
		for _, c := range s.Pods[0].Containers {
			got[c.Name] = c.Memory.WorkingSetBytes.V >> 20
		}
		if got["cb"] != 500 || parent != "" && got["ca"] != 30 {
			t.Errorf("parent %q: MiB by container = %v, want 500 for cb and 30 for ca below the pod's cgroup", parent, got)
		}
	}
}

// Close closes the cgroups of containers outside.
func TestCloseClosesOutside(t *testing.T) {
	n := newSplitNode(t)
	at := "k8s.io/" + hexID("a")
	n.group(at, 30)
	n.pod(uidA, "")
	n.process(4_000_100, at, "mnt:[9]", 5*time.Minute)
	n.runs(uidA, hexID("a"), 4_000_100)
	n.looks()
	open := n.reader.pods.all[len(n.reader.pods.all)-1]
	if n.reader.Close(); open.container == "" || open.group != nil {
		t.Errorf("container %q is open after Close: %v", open.container, open.group != nil)
	}
}

// A list of 10,000 containers outside takes no time that grows with their square.
func TestManyContainersOutside(t *testing.T) {
	n := newSplitNode(t)
	var all []place
	pods := podindex.Index{}
	for i := range 10_000 {
		uid := fmt.Sprintf("%08d-1234-1234-1234-123456789abc", i/3)
		if pods[uid] == nil {
			pods[uid] = &podindex.Pod{PodRef: stats.PodReference{UID: uid}}
		}
		id := fmt.Sprintf("%064x", i+1)
		all = append(all, place{pods[uid], &cri.Container{ID: id}, "system.slice/cri-containerd-" + id + ".scope"})
	}
	f := NewOutsideFinder(filepath.Join(n.dir, "proc"), "", func() int { return n.runtime })
	began := time.Now()
	f.locate(all)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("10,000 containers took %v, want at most 3 s", took)
	}
	for uid, p := range pods {
		if len(p.Unlocated) > 0 {
			t.Fatalf("pod %s has a container that was not found", uid)
		}
	}
}

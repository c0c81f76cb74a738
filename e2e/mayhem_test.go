package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/vm"
)

// tmpfs is a volume in memory.
var tmpfs = v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}

// mayhem has the worst loads. A node of 1 GiB has about 600 MiB for pods, and 7000 tasks.
var mayhem = []*hardship{
	harmless,
	{what: "a leak at once, huge pages", culprits: one("leaker", "burst -size 4Gi")},
	{what: "a fork bomb, memory short", culprits: one("bomb", "bomb -generations 13")},
	{what: "a fork bomb, tasks short", culprits: one("bomb", "bomb -generations 11"), prepare: lowerPidMax},
	// /dev/shm has 64 MiB. It is filled slowly, so that the runtime has finished the pod's start
	// when the threshold is crossed. If 64 MiB do not suffice for that, a little anonymous memory
	// is added.
	{what: "a tmpfs filler, shared memory", prepare: ballast(45 * mib), culprits: one("filler", "fill -rate 20Mi -size 60Mi /dev/shm/file + alloc -rate 1Mi -size 4Gi")},
	{what: "a tmpfs filler, emptyDir", prepare: ballast(300 * mib), culprits: func() []*v1.Pod {
		return []*v1.Pod{withEmptyDir(vm.NewPod("filler", "", "", "fill -size 4Gi /memory/file"), "memory", tmpfs)}
	}},
	{what: "a page-cache thrasher", culprits: one("thrasher", "thrash -size 700Mi /file"), lasts: 30 * time.Second, proof: hasThrashed},
	{what: "a pod with 500 processes", culprits: one("herd", "herd -count 500 -each 4Mi")},
	{what: "3 leakers at once", provoke: signalAll, culprits: func() (pods []*v1.Pod) {
		for i := range 3 {
			pods = append(pods, vm.NewPod("leaker"+strconv.Itoa(i), "", "", "burst -on-usr1 -size 4Gi"))
		}
		return pods
	}},
	{what: "a leaker two seconds old", culprits: one("leaker", "burst -after 1500ms -size 4Gi")},
}

// one returns a BestEffort pod with a behaviour.
func one(name, behaviour string) func() []*v1.Pod {
	return func() []*v1.Pod { return []*v1.Pod{vm.NewPod(name, "", "", behaviour)} }
}

// ballast leaves so much above the threshold. It is an innocent pod like the others.
func ballast(headroom int64) func(*arena) func() {
	return func(a *arena) func() {
		a.bystanders = append(a.bystanders, a.fillTo(headroom))
		return func() {
			last := len(a.bystanders) - 1
			if err := a.bystanders[last].Remove(a.ctx); err != nil {
				a.t.Fatal(err)
			}
			a.bystanders = a.bystanders[:last]
		}
	}
}

// lowerPidMax makes tasks the first resource to be short.
func lowerPidMax(a *arena) (undo func()) {
	const file = "/proc/sys/kernel/pid_max"
	before := strings.TrimSpace(a.shell("cat " + file))
	a.shell("echo 2200 > " + file)
	return func() { a.shell("echo " + before + " > " + file) }
}

// signalAll signals all pods to begin, with one shell line.
func signalAll(a *arena, pods []*vm.Pod) {
	line := "kill -USR1"
	for _, p := range pods {
		if err := p.Check(a.ctx); err != nil { // it handles signals from now on
			a.t.Fatal(err)
		}
		line += " " + a.mainProcess(p)
	}
	a.shell(line)
}

// hasThrashed returns nil if a pod has refaulted many pages.
func hasThrashed(a *arena, p *vm.Pod) error {
	const enough = 50_000 // pages: 200 MiB
	if pages := a.number("sed -n 's/^workingset_refault_file //p' /sys/fs/cgroup/" + p.Cgroup + "/memory.stat"); pages < enough {
		return fmt.Errorf("%s has refaulted only %d pages: too few to prove anything", p, pages)
	}
	return nil
}

// BenchmarkMayhem runs all the worst loads of pods on the node, three times each. It reports the
// dead pods, the kernel's OOM kills, and the longest pause of an innocent pod. To run one load:
// -bench Mayhem/fork.
func BenchmarkMayhem(b *testing.B) {
	a := startArena(b, config(`evictionHard: {memory.available: 100Mi, pid.available: "25%%"}`))
	t := questions("mayhem, memory.available<100Mi and pid.available<25%, kernel " + a.Kernel)
	for _, h := range mayhem {
		b.Run(h.what, func(sub *testing.B) {
			a.t = sub // a failure ends only this part
			answer(t, h, a.repeat(h, trials(3)))
			reportOnce(sub)
		})
	}
	a.t = b
	t.print()
}

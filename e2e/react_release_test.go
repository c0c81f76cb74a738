package e2e

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/guestapi"
	"jettison/e2e/vm"
)

// holdingPod returns a BestEffort pod of so many containers that together allocate so much.
func holdingPod(containers int, size int64) *v1.Pod {
	pod := vm.NewPod("holder", "", "", fmt.Sprintf("alloc -size %dKi", size>>10/int64(containers)))
	for i := 1; i < containers; i++ {
		c := *pod.Spec.Containers[0].DeepCopy()
		c.Name = fmt.Sprintf("more%d", i)
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

// release is a row of BenchmarkReactRelease.
type release struct {
	name string
	load load
}

// releases returns the rows. Each differs in one thing from the first, 256 MiB.
func (r *reactor) releases() (rows []release) {
	add := func(name string, pod *v1.Pod, size, back int64, starve func(*vm.Pod), feed func()) {
		rows = append(rows, release{name, load{name: name, pod: pod, holds: size, headroom: 12 * mib, back: back, starve: starve, feed: feed}})
	}
	for _, size := range []int64{64 * mib, 128 * mib, 256 * mib, 512 * mib} {
		add(fmt.Sprintf("1 container, %d MiB", size/mib), holdingPod(1, size), size, size, nil, nil)
	}
	for _, size := range []int64{64 * mib, 256 * mib, 512 * mib} {
		add(fmt.Sprintf("3 containers, %d MiB", size/mib), holdingPod(3, size), size, size, nil, nil)
	}
	const half = 128 * mib
	// /dev/shm has 64 MiB. Four fifths exceed the rest, so they are back only after a part of
	// /dev/shm is freed.
	shm := vm.NewPod("holder", "", "", "alloc -size 128Mi + fill -size 60Mi /dev/shm/file")
	add("1 container, 128 MiB and 60 in /dev/shm", shm, 188*mib, 188*mib, nil, nil)
	tmpfs := withEmptyDir(vm.NewPod("holder", "", "", "alloc -size 128Mi + fill -size 128Mi /memory/file"), "memory", v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory})
	add("1 container, 128 MiB and 128 in an emptyDir", tmpfs, 2*half, half, nil, nil)
	return append(rows, r.starved()...)
}

// starved returns the rows with a victim that gets almost no CPU.
func (r *reactor) starved() (rows []release) {
	for _, containers := range []int{1, 3} {
		pod, size := holdingPod(containers, 256*mib), int64(256*mib)
		name := fmt.Sprintf("%d container", containers)
		if containers > 1 {
			name += "s"
		}
		l := load{pod: pod, holds: size, headroom: 12 * mib, back: size}
		l.name, l.starve, l.feed = name+", 256 MiB, cpu.weight 1 beside a spinner", func(*vm.Pod) { r.spin(true) }, func() { r.spin(false) }
		rows = append(rows, release{l.name, l})
		l.name, l.starve, l.feed = name+", 256 MiB, cpu.max 1 ms of 100", func(victim *vm.Pod) {
			r.shell("echo '1000 100000' > /sys/fs/cgroup/" + victim.Cgroup + "/cpu.max")
		}, nil
		rows = append(rows, release{l.name, l})
	}
	return rows
}

// startSpinner runs a pod with its own CPU that spins, and freezes it.
func (r *reactor) startSpinner() {
	r.t.Helper()
	object := vm.NewPod("spinner", "32Mi", "", "spin -threads 2")
	spinner := r.run(object)
	spinner.Expected = vm.Any // no heartbeat while frozen
	r.spinner = spinner
	r.spin(false)
}

// spin lets the spinner run, or freezes it.
func (r *reactor) spin(on bool) {
	r.t.Helper()
	value := "1"
	if on {
		value = "0"
	}
	r.shell("echo " + value + " > /sys/fs/cgroup/" + r.spinner.Cgroup + "/cgroup.freeze")
}

// BenchmarkReactRelease measures, by the guest's sampler, the times from the agent's kill until the
// victim's cgroup is empty, until the node is above the threshold again, and until four fifths of
// the victim's memory are back. It uses the default kill ladder first, then each setting of it with
// the victims that differ.
func BenchmarkReactRelease(b *testing.B) {
	r := newReactor(b, vm.Options{MiB: 1536})
	r.startSpinner()
	t := &releases{r: r, limits: map[int64]string{}, sampledTable: newSampledTable(fmt.Sprintf("kernel %s, from the agent's kill, ms", r.Kernel),
		"victim", "empty p50", "p90", "max", "above the threshold p50", "p90", "max", "all back p50", "p90", "p99", "max", "count", "limit", "wrong")}
	r.part(b, "victims", func() {
		k := r.startReacting("")
		for _, row := range r.releases() {
			t.add(row.name, k, row.load, trials(5))
		}
		k.stop()
	})
	r.part(b, "ladder", func() {
		if !r.hasLadder() {
			t.note("this agent's kill ladder cannot be set: one setting only")
			return
		}
		for _, ladder := range ladders[1:] {
			k := r.startReacting(ladder)
			base := load{name: ladder, pod: holdingPod(1, 256*mib), holds: 256 * mib, headroom: 12 * mib, back: 256 * mib}
			three := base
			three.pod = holdingPod(3, 256*mib)
			for _, row := range append([]release{{"1 container, 256 MiB", base}, {"3 containers, 256 MiB", three}}, r.starved()[:2]...) {
				t.add(ladder+": "+row.name, k, row.load, trials(5))
			}
			k.stop()
		}
	})
	t.note("limit: what munmap of as much takes in a process that has the CPU to itself, median of 5")
	t.note("all back: four fifths of what the victim held and its death gives back")
	t.print()
}

// releases is the table of BenchmarkReactRelease.
type releases struct {
	r *reactor
	sampledTable
	limits map[int64]string // measured, by bytes
}

func (t *releases) add(name string, k killer, l load, count int) {
	var empty, above, whole []time.Duration
	wrong := faults{}
	for range count {
		o := t.r.try(k, l)
		t.sampled(o.Sample)
		wrong.add(o.faults)
		since := func(times []time.Duration, at int64) []time.Duration {
			if o.killed != 0 && at != 0 {
				times = append(times, time.Duration(max(at-o.killed, 0)))
			}
			return times
		}
		empty, above, whole = since(empty, o.Empty), since(above, o.Back), since(whole, o.Whole)
	}
	e, a, w := spread(empty), spread(above), spread(whole)
	t.row(name, e[0], e[1], e[3], a[0], a[1], a[3], w[0], w[1], w[2], w[3], count, t.limit(l.back), wrong)
	fmt.Printf("-- %s: empty %v, above the threshold %v, all back %v, wrong: %v\n", name, e, a, w, wrong)
}

// limit returns the milliseconds that the kernel needs to free so much, measured once.
func (t *releases) limit(size int64) string {
	t.r.t.Helper()
	if t.limits[size] == "" {
		t.r.level(math.MaxInt64, guestapi.Lower) // no ballast
		out := strings.TrimSpace(t.r.shell(fmt.Sprintf("/proc/1/exe unmap %d", size)))
		ns, err := strconv.ParseInt(out, 10, 64)
		if err != nil {
			t.r.t.Fatal(err)
		}
		t.limits[size] = ms(ns)
	}
	return t.limits[size]
}

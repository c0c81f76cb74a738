package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/guestapi"
	"jettison/e2e/vm"
)

// reactor is a node for a series of trials. Each brings the node just above the threshold, crosses
// it, and observes the victim independently of the killer.
type reactor struct {
	*node
	others  []*vm.Pod // other pods than the victim, which must live
	spinner *vm.Pod   // frozen except while it starves a victim; nil: none
}

// room is left above the threshold while a pod starts: the runtime needs about 30 MiB for it.
const room = 120 * mib

// newReactor boots a node for trials.
func newReactor(b *testing.B, o vm.Options) *reactor {
	b.Helper()
	if _, ok := os.LookupEnv(trialsVariable); !ok {
		b.Skip("takes long: run make bench-react")
	}
	r := &reactor{node: startNodeWith(b, o)}
	// A trial with a kernel kill is counted, and shown in the table.
	r.oomMeant = true
	r.traceSignals()
	r.startOthers()
	return r
}

// startOthers runs pods that use their requests, so that each ranks after the victim in every
// order.
func (r *reactor) startOthers() {
	r.others = []*vm.Pod{
		r.holding(vm.NewPod("guaranteed", "96Mi", "96Mi", "alloc -size 32Mi"), 32*mib),
		r.holding(vm.NewPod("burstable", "64Mi", "", "alloc -size 32Mi"), 32*mib),
	}
}

// trialsVariable is set by make bench-react: the number of trials of each row of a table; empty:
// each row's default.
const trialsVariable = "JETTISON_TRIALS"

// trials returns the number of trials of a row with a default.
func trials(usual int) int {
	if n, err := strconv.Atoi(os.Getenv(trialsVariable)); err == nil && n > 0 {
		return n
	}
	return usual
}

// part runs a part of a benchmark as its own sub-benchmark, to be selected by name. It is skipped
// after a failed part: the node is in an unknown state.
func (r *reactor) part(b *testing.B, name string, run func()) {
	if b.Failed() {
		b.Logf("%s is skipped: an earlier part failed", name)
		return
	}
	b.Run(name, func(b *testing.B) {
		outer := r.t
		r.t = b
		defer func() { r.t = outer }()
		began := time.Now()
		run()
		fmt.Printf("== %s took %.0f s\n", b.Name(), time.Since(began).Seconds())
	})
}

// load describes a trial: the victim, and how the threshold is crossed.
type load struct {
	name     string
	pod      *v1.Pod
	holds    int64  // bytes that the victim has before the crossing
	headroom int64  // bytes above the threshold at the start
	rate     string // its leak per second; empty: memory outside of all pods crosses the threshold
	back     int64  // bytes that its death frees; 0: not watched
	starve   func(victim *vm.Pod)
	feed     func() // reverts starve; nil: nothing
}

// push is how far below the threshold memory outside of all pods goes.
const push = 4 * mib

// killer is a program that reacts to a met threshold.
type killer interface {
	// signal is the figure that it compares with the threshold, as in guestapi.Lower.
	signal() string
	// cgroup returns the victim's cgroup that is empty after the kill.
	cgroup(victim *vm.Pod) string
	// arm is called with the node just above the threshold.
	arm()
	// disarm is called when the trial is over.
	disarm()
	// wait returns when the killer has reacted, with the time of its kill, or with the reason why
	// it did not.
	wait(victim *vm.Pod) (killed int64, fault string)
}

// outcome is the outcome of a trial. Stamps are CLOCK_MONOTONIC of the guest.
type outcome struct {
	guestapi.Sample
	killed    int64 // as the killer reports, else as the kernel does; 0: it did not react
	signalled int64 // SIGKILL to the victim, as the kernel traced it; 0: none
	faults    []string
}

// early bounds the retries of a trial with the threshold crossed before it began: this near to it,
// the runtime's work after a pod's start can suffice.
const early = 5

// try runs one trial, with retries.
func (r *reactor) try(k killer, l load) outcome {
	r.t.Helper()
	for range early {
		if o, ok := r.attempt(k, l); ok {
			if slices.Contains(o.faults, innocent) {
				r.revive()
			}
			return o
		}
	}
	return outcome{faults: []string{"killed before it began"}}
}

// attempt runs one trial. It returns false if the victim was gone before the start.
func (r *reactor) attempt(k killer, l load) (o outcome, ok bool) {
	r.t.Helper()
	r.level(defaultThreshold+room+l.holds, k.signal())
	victim := r.run(l.pod)
	fifo := "/run/beats/" + string(victim.Object.UID) + "/go"
	if l.rate != "" {
		r.until("the victim listens", func() error { _, err := r.Shell(r.ctx, "test -p "+fifo); return err })
	}
	if l.holds > 0 {
		r.awaitSettled(victim, l.holds)
	}
	defer r.bury(victim, k, l)
	before := r.level(defaultThreshold+l.headroom, k.signal())
	if l.starve != nil {
		l.starve(victim)
	}
	k.arm()
	pids, others := r.processes(victim), r.processes(r.others...)
	if len(pids) == 0 {
		r.t.Logf("%s: killed before the trial began, tried again", l.name)
		return o, false
	}
	request := guestapi.SampleRequest{Threshold: defaultThreshold, By: k.signal(), Cgroup: k.cgroup(victim)}
	if l.back > 0 {
		request.Whole = defaultThreshold - push + l.back*4/5 // the rest is noise: the runtime cleans up at the same time
	}
	r.shell("echo > /sys/kernel/tracing/trace")
	stop, err := r.Sample(r.ctx, request)
	if err != nil {
		r.t.Logf("%s: killed before the trial began (%v), tried again", l.name, err)
		return o, false
	}
	if err := r.cross(l, fifo, k.signal()); err != nil {
		r.t.Logf("%s: killed before its leak began (%v), tried again", l.name, err)
		_, _ = stop()
		return o, false
	}
	fault := ""
	o.killed, fault = k.wait(victim)
	if request.Whole > 0 && fault == "" {
		r.awaitLevel(request.Whole, k.signal())
	}
	if o.Sample, err = stop(); err != nil {
		r.t.Fatal(err)
	}
	o.fault(fault)
	r.examine(&o, pids, others, before)
	if len(o.faults) > 0 {
		r.t.Logf("%s: %v: %+v", l.name, o.faults, o)
	}
	return o, true
}

// settled is the largest change of a settled cgroup's memory within a tenth of a second.
const settled = 64 << 10

// awaitSettled waits until a pod has so much memory and its memory is stable: later growth could cross
// the threshold.
func (r *reactor) awaitSettled(p *vm.Pod, size int64) {
	r.t.Helper()
	last := int64(0)
	r.until("the victim has its memory", func() error {
		text, err := r.ReadFile(r.ctx, "/sys/fs/cgroup/"+p.Cgroup+"/memory.current", 0)
		if err != nil {
			return err
		}
		current, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return err
		}
		change := current - last
		if last = current; current < size || max(change, -change) > settled {
			return fmt.Errorf("memory is %d KiB, %d more than a moment before", current>>10, change>>10)
		}
		return nil
	})
}

// bury reverts the effects of a trial on the node.
func (r *reactor) bury(victim *vm.Pod, k killer, l load) {
	r.t.Helper()
	if l.feed != nil {
		l.feed()
	}
	k.disarm()
	r.level(defaultThreshold+room, k.signal())
	if err := victim.Remove(r.ctx); err != nil {
		r.t.Fatal(err)
	}
	victim.Expected = vm.Any // the audit skips the hundreds of victims
}

// cross makes the threshold be crossed.
func (r *reactor) cross(l load, fifo, signal string) error {
	if l.rate != "" {
		return r.WriteFile(r.ctx, fifo, []byte(l.rate+"\n"))
	}
	_, err := r.Ballast(r.ctx, guestapi.BallastRequest{Available: defaultThreshold - push, By: signal, Once: true})
	return err
}

// level adjusts memory outside of all pods until so much is available.
func (r *reactor) level(available int64, signal string) guestapi.Memory {
	r.t.Helper()
	m, err := r.Ballast(r.ctx, guestapi.BallastRequest{Available: available, By: signal})
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// wholeLimit is how long the victim's memory may take to come back after its death is known.
const wholeLimit = 10 * time.Second

// awaitLevel waits until so much is available, or a timeout. The guest answers without starting a
// process.
func (r *reactor) awaitLevel(available int64, signal string) {
	_ = r.Eventually(r.ctx, wholeLimit, "the memory is back", r.isAvailable(available, signal))
}

// innocent is the fault of a killer that kills a pod other than the victim.
const innocent = "innocent killed"

// examine finds forbidden events: a kernel OOM kill, a signal to another pod's process, a missing
// process. A victim that does not die immediately gets more signals, then also in tasks that it did
// not have before.
func (r *reactor) examine(o *outcome, pids, others map[int]bool, before guestapi.Memory) {
	r.t.Helper()
	after, err := r.Memory(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	if after.OOMKills > before.OOMKills {
		o.fault("kernel OOM kill")
	}
	for _, s := range r.signals() {
		switch {
		case s.comm != "workload" || s.from == "workload": // a pid namespace ends with its first process (zap_pid_ns_processes)
		case others[s.pid]:
			o.fault(innocent)
			r.t.Logf("%+v is one of %v", s, others)
		case pids[s.pid] && o.signalled == 0:
			o.signalled = s.at
		}
	}
	if now := r.processes(r.others...); !maps.Equal(now, others) {
		o.fault(innocent)
		r.t.Logf("the other pods have the processes %v, and had %v", now, others)
	}
	if o.killed == 0 {
		o.killed = o.signalled
	}
	if o.killed < o.signalled {
		o.fault("stamped before the kernel's signal")
	}
	if o.killed != 0 && o.Empty != 0 && o.Empty < o.killed {
		o.fault("empty before the stamp")
	}
	if o.killed != 0 && o.Crossed == 0 {
		o.fault("crossing not sampled")
	}
}

func (o *outcome) fault(text string) {
	if text != "" && !strings.Contains(strings.Join(o.faults, ","), text) {
		o.faults = append(o.faults, text)
	}
}

// processes returns the processes of pods, as the guest's root namespace numbers them; none: they
// are dead.
func (r *reactor) processes(pods ...*vm.Pod) map[int]bool {
	r.t.Helper()
	pids := map[int]bool{}
	command := "true"
	for _, p := range pods {
		command = "cat /sys/fs/cgroup/" + p.Cgroup + "/*/cgroup.procs 2> /dev/null; " + command
	}
	for word := range strings.FieldsSeq(r.shell(command)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			r.t.Fatal(err)
		}
		pids[pid] = true
	}
	return pids
}

// revive replaces the innocent pods that were killed and counted.
func (r *reactor) revive() {
	r.t.Helper()
	for _, p := range r.others {
		if err := p.Remove(r.ctx); err != nil {
			r.t.Fatal(err)
		}
		p.Expected = vm.Any
	}
	r.startOthers()
}

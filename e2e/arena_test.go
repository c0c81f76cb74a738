package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/e2e/vm"
)

// arena is a node with innocent pods on which culprits misbehave repeatedly. Failures are counted
// and do not fail the benchmark.
type arena struct {
	*node
	config     string
	bystanders []*vm.Pod
	heart      *heart
	logged     int   // lines of the agent's log that earlier trials read
	oomLines   int   // lines of the kernel's log about OOM kills, from earlier trials
	free       int64 // bytes available at rest
	began      time.Time
}

// startArena boots a node with the agent, a heart and a pod of each QoS class.
func startArena(b *testing.B, config string) *arena {
	if _, ok := os.LookupEnv(trialsVariable); !ok {
		b.Skip("takes long: run make bench-react")
	}
	a := &arena{node: startNode(b), config: config, began: time.Now()}
	a.oomMeant = true // OOM kills are counted
	a.startAgent(config)
	a.bystanders = append(a.bystanders,
		a.holding(vm.NewPod("guaranteed", "96Mi", "96Mi", "alloc -size 32Mi"), 32*mib),
		a.holding(vm.NewPod("burstable", "64Mi", "", "alloc -size 32Mi"), 32*mib),
		a.holding(vm.NewPod("besteffort", "", "", "alloc -size 8Mi"), 8*mib),
	)
	a.heart = a.startHeart()
	a.logged = len(a.agentLog())
	m, err := a.Memory(a.ctx)
	if err != nil {
		b.Fatal(err)
	}
	a.free = m.Available()
	return a
}

// hardship describes the load of a trial.
type hardship struct {
	what     string
	culprits func() []*v1.Pod
	prepare  func(*arena) (undo func())  // before they are started; nil: nothing
	provoke  func(*arena, []*vm.Pod)     // once they all run; nil: nothing
	proof    func(*arena, *vm.Pod) error // an error if a living culprit did not do its work; nil: not checked
	// lasts is the duration of the load if no pod is expected to die; 0: until every culprit is
	// dead.
	lasts time.Duration
}

// toll has the results of a trial.
type toll struct {
	culprits, died, byAgent   int
	innocents                 []string // that died
	oomKills                  int64    // by the kernel, in total
	gap                       time.Duration
	ages                      []time.Duration // of culprits when the agent killed them, since they were about to be created
	crossedToKill, killToBack []time.Duration // as the agent reports them
	notes                     []string        // other anomalies
	log                       []vm.LogLine    // the agent's
	took                      time.Duration
}

// hasForbiddenResult reports whether the trial has a forbidden result.
func (o *toll) hasForbiddenResult(h *hardship) bool {
	return len(o.innocents) > 0 || o.oomKills > 0 || h.lasts == 0 && o.died < o.culprits
}

func (o *toll) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(o.notes, text) {
		o.notes = append(o.notes, text)
	}
}

// trialLimit is the time in which the culprits of a trial must die.
const trialLimit = time.Minute

// trial runs one trial and restores the node.
func (a *arena) trial(h *hardship) (o toll) {
	a.t.Helper()
	began := time.Now()
	before, err := a.Memory(a.ctx)
	if err != nil {
		a.t.Fatal(err)
	}
	from := before.MonotonicNS
	undo := func() {}
	if h.prepare != nil {
		undo = h.prepare(a)
		from = a.monotonic() // preparation is not charged to the culprits
	}
	var culprits []*vm.Pod
	created := map[string]int64{} // by UID
	for _, object := range h.culprits() {
		o.culprits++
		object.UID = types.UID(uuid.NewString())
		created[string(object.UID)] = a.monotonic()
		p, err := a.Run(a.ctx, object)
		if err != nil { // it may have been killed before the runtime reported it as started
			o.note("%v", err)
			continue
		}
		p.Expected = vm.Any
		culprits = append(culprits, p)
	}
	if h.provoke != nil {
		h.provoke(a, culprits)
	}
	a.awaitResult(h, culprits, before.OOMKills, &o)
	for _, p := range culprits {
		if a.empty(p) {
			o.died++
			if err := p.WaitDead(a.ctx); err != nil {
				o.note("%v", err)
			}
		}
	}
	to := a.monotonic()
	for _, p := range culprits {
		if h.proof != nil && !a.empty(p) {
			if err := h.proof(a, p); err != nil {
				o.note("%v", err)
			}
		}
	}
	for _, p := range culprits { // immediately: a kubelet removes a dead pod's volumes, including those in memory
		if err := p.Remove(a.ctx); err != nil {
			o.note("%v", err)
		}
	}
	if !a.empty(a.heart.pod) {
		o.gap = a.longestGap(a.heart, from, to)
	}
	a.askTheAgent(created, &o)
	a.askTheKernel(before.OOMKills, &o)
	a.askTheBystanders(&o)
	undo()
	a.rest(&o)
	o.took = time.Since(began)
	return o
}

// awaitResult waits until the culprits are dead, the kernel has killed a process, or the time is up.
func (a *arena) awaitResult(h *hardship, culprits []*vm.Pod, oomKills int64, o *toll) {
	limit := trialLimit
	if h.lasts > 0 {
		limit = h.lasts
	}
	err := a.Eventually(a.ctx, limit, "it is over", func(ctx context.Context) error {
		alive := slices.IndexFunc(culprits, func(p *vm.Pod) bool { return !a.empty(p) })
		if alive < 0 {
			return nil
		}
		if m, err := a.Memory(ctx); err == nil && m.OOMKills > oomKills {
			return nil
		}
		return fmt.Errorf("culprit %s still lives", culprits[alive])
	})
	if err != nil && h.lasts == 0 {
		o.note("%v", err)
	}
}

// empty reads from the kernel whether a pod has no process left, without starting one.
func (a *arena) empty(p *vm.Pod) bool {
	text, err := a.ReadFile(a.ctx, "/sys/fs/cgroup/"+p.Cgroup+"/cgroup.events", 0)
	if err != nil {
		return strings.Contains(err.Error(), "no such file or directory")
	}
	return !strings.Contains(string(text), "populated 1")
}

// askTheAgent reads the agent's evictions, which it logs when their effect is known. created has
// the culprits' creation times by UID.
func (a *arena) askTheAgent(created map[string]int64, o *toll) {
	var lines []vm.LogLine
	_ = a.Eventually(a.ctx, 10*time.Second, "the agent has said all", func(context.Context) error {
		evicted := 0
		lines = a.agentLog()
		for _, l := range lines[min(a.logged, len(lines)):] {
			if l.Msg == "evicted" {
				evicted++
			}
		}
		if evicted < o.died {
			return errors.New("eviction not logged yet")
		}
		return nil
	})
	fresh := lines[min(a.logged, len(lines)):]
	a.logged = len(lines)
	o.log = fresh
	for _, l := range fresh {
		switch level := l.Fields["level"]; {
		case l.Msg == "evicted":
			victim, _ := l.Fields["victim"].(string)
			uid, _ := l.Fields["uid"].(string)
			at, isCulprit := created[uid]
			if !isCulprit {
				o.innocents = append(o.innocents, victim)
				o.note("the agent says: %v", l.Fields)
				continue
			}
			o.byAgent++
			if killed := l.Duration("killedAtMonotonic"); killed > 0 {
				o.ages = append(o.ages, elapsed(at, int64(killed)))
			}
			o.crossedToKill = append(o.crossedToKill, l.Duration("crossedToKill"))
			if back := l.Duration("killToMemoryBack"); back > 0 {
				o.killToBack = append(o.killToBack, back)
			} else if l.Fields["signal"] == "memory.available" {
				o.note("memory of %s did not come back in time, by the agent's word", victim)
			}
		case level == "WARN" || level == "ERROR":
			o.note("the agent says %v: %s: %v", level, l.Msg, l.Fields["error"])
		}
	}
}

var oomVictim = regexp.MustCompile(`task_memcg=([^,]*),task=([^,]*)|Killed process \d+ \([^)]*\)`)

// askTheKernel counts the kernel's OOM kills.
func (a *arena) askTheKernel(before int64, o *toll) {
	m, err := a.Memory(a.ctx)
	if err != nil {
		a.t.Fatal(err)
	}
	o.oomKills = m.OOMKills - before
	lines, err := a.OOMKills(a.ctx)
	if err != nil {
		a.t.Fatal(err)
	}
	for _, line := range lines[min(a.oomLines, len(lines)):] {
		o.note("the kernel says: %s", oomVictim.FindString(line))
	}
	a.oomLines = len(lines)
	if o.oomKills > 0 && len(o.notes) == 0 {
		o.note("/proc/vmstat: oom_kill rose by %d", o.oomKills)
	}
}

// askTheBystanders checks that the bystanders live, and replaces dead ones.
func (a *arena) askTheBystanders(o *toll) {
	mourn := func(p *vm.Pod) bool {
		err := p.Check(a.ctx)
		if err == nil {
			return false
		}
		o.note("%v", err)
		if !slices.Contains(o.innocents, p.String()) {
			o.innocents = append(o.innocents, p.String())
		}
		if err := p.Remove(a.ctx); err != nil {
			a.t.Fatal(err)
		}
		return true
	}
	for i, p := range a.bystanders {
		if mourn(p) {
			again := p.Object.DeepCopy()
			again.UID = "" // a new pod, which was never evicted
			a.bystanders[i] = a.run(again)
		}
	}
	if mourn(a.heart.pod) {
		a.heart = a.startHeart()
	}
	if mourn(a.agent.Pod) {
		a.startAgent(a.config)
		a.logged = 0
	}
}

// rest waits until the agent has cleared the node's conditions, because it rejects pods meanwhile,
// and until the node has as much available memory as at the start, except for the kernel's file caches.
func (a *arena) rest(o *toll) {
	if err := a.Eventually(a.ctx, trialLimit, "the agent has cleared the node's conditions", func(context.Context) error {
		raised := map[any]any{}
		for _, l := range a.agentLog() {
			if l.Msg == "condition changed" {
				raised[l.Fields["condition"]] = l.Fields["status"]
			}
		}
		for condition, status := range raised {
			if status == true {
				return fmt.Errorf("%v holds", condition)
			}
		}
		return nil
	}); err != nil {
		o.note("%v", err)
	}
	want := a.free - a.free/4
	if err := a.Eventually(a.ctx, trialLimit, "the node has its memory back", func(ctx context.Context) error {
		m, err := a.Memory(ctx)
		if err == nil && m.Available() < want {
			err = fmt.Errorf("%d MiB of %d", m.Available()/mib, a.free/mib)
		}
		return err
	}); err != nil {
		o.note("%v", err)
	}
}

// repeat runs trials and prints the result of each.
func (a *arena) repeat(h *hardship, runs int) (all []toll) {
	for i := range runs {
		o := a.trial(h)
		all = append(all, o)
		verdict := "right"
		if o.hasForbiddenResult(h) {
			verdict = "WRONG"
		}
		fmt.Printf("%6.1f s  %s, run %d, %.1f s: %s: %d of %d culprits dead, %d by the agent; innocents dead %v; kernel OOM kills %d; longest pause of the heart %.0f ms\n",
			time.Since(a.began).Seconds(), h.what, i+1, o.took.Seconds(), verdict, o.died, o.culprits, o.byAgent, o.innocents, o.oomKills, float64(o.gap)/1e6)
		for _, text := range o.notes {
			fmt.Printf("            %s\n", text)
		}
		if o.hasForbiddenResult(h) {
			for _, l := range o.log {
				fmt.Printf("            agent: %.2000s\n", fmt.Sprint(l.Fields))
			}
		}
	}
	return all
}

// questions returns the table of tolls.
func questions(title string) *table {
	t := newTable(title,
		"what", "trials", "wrong", "culprits dead", "by the agent", "innocents dead", "kernel OOM kills",
		"heart stood still ms, p50", "max", "age at kill s", "crossed to kill ms, p50", "max", "kill to memory back ms, p50", "max",
	)
	t.note("innocents: a pod of each QoS class, ballast, the heart, which writes the time each 10 ms, and the agent")
	t.note("the last four columns are the agent's word: crossed is its own first look below the threshold")
	return t
}

// answer adds a row.
func answer(t *table, h *hardship, all []toll) {
	var sum toll
	var gaps []time.Duration
	wrong := 0
	for i := range all {
		o := &all[i]
		if o.hasForbiddenResult(h) {
			wrong++
		}
		sum.culprits += o.culprits
		sum.died += o.died
		sum.byAgent += o.byAgent
		sum.innocents = append(sum.innocents, o.innocents...)
		sum.oomKills += o.oomKills
		sum.ages = append(sum.ages, o.ages...)
		sum.crossedToKill = append(sum.crossedToKill, o.crossedToKill...)
		sum.killToBack = append(sum.killToBack, o.killToBack...)
		gaps = append(gaps, o.gap)
	}
	age := "-"
	if len(sum.ages) > 0 {
		age = fmt.Sprintf("%.1f", slices.Sorted(slices.Values(sum.ages))[rank(0.5, len(sum.ages))].Seconds())
	}
	row := []any{h.what, len(all), wrong, fmt.Sprintf("%d of %d", sum.died, sum.culprits), sum.byAgent, len(sum.innocents), sum.oomKills}
	row = append(append(row, medianAndMax(gaps)...), age)
	t.row(append(append(row, medianAndMax(sum.crossedToKill)...), medianAndMax(sum.killToBack)...)...)
}

// medianAndMax returns p50 and max of the spread.
func medianAndMax(times []time.Duration) []any {
	cells := spread(times)
	return []any{cells[0], cells[3]}
}

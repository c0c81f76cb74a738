package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"jettison/admit"
	"jettison/api"
	"jettison/eviction"
	"jettison/internal/base/logthrottle"
	"jettison/stats"
	"jettison/stats/read"
)

// Bounds of Preempting.
const (
	maxMaking = 16          // critical pods for which room is made at the same time
	maxAsks   = 16          // that wait for the loop
	maxNotes  = 64          // pods that the runtime is told of what became of their preemption
	noteFor   = time.Minute // for so long: a caller's retry comes well before
	// a pod that the runtime was refused longer ago has been asked about again, or is not wanted any
	// more
	askFor = 5 * time.Second
)

// Errors of Preempt: there is no answer.
var (
	ErrClosed = errors.New("the agent is being stopped")
	ErrBusy   = fmt.Errorf("room is being made for %d pods already", maxMaking)
)

// errAnother: the pod was made anew under another UID while room was made for it.
var errAnother = errors.New("another attempt at this pod has asked for room since")

// errKubelet is why nobody goes beside a kubelet.
var errKubelet = errors.New("a kubelet is on this node, and makes room for the pods that it takes")

// PreemptOptions of NewPreempting. All functions are called by the loop's goroutine.
type PreemptOptions struct {
	// pods that the runtime is refused have others stopped, too
	Wanted bool
	State  func(now time.Time) (admit.NodeState, error) // of the node as it is now
	// has what is kept count for who asks from now on
	Publish func(now time.Time)
	Kubelet func() bool // one is on this node
	CatchUp func()      // takes what the runtime has told by now
	// Stop has pods stopped, all or none; reason says for whom. The lives are in the order of the
	// UIDs.
	Stop func(ctx context.Context, now time.Time, uids []string, reason string) ([]*eviction.Life,
		error)
	Life func(uid string) *eviction.Life // that is not over; nil: none
	Why  func(*eviction.Life) string     // why a victim is not dead
	// Ended are sandboxes that have ended since the runtime listed them; nil: none has.
	Ended func(uid, sandbox string) bool
	Name  func(stats.PodReference) string // for people
	Log   *logthrottle.Logger
}

// Preempting makes room for critical pods, and keeps it until they run. It is the Preemptor: the
// runtime's plugin and clients hand over to the loop, to which all else belongs. That decides anew
// on each pod by the node as it is then.
type Preempting struct {
	o     PreemptOptions
	asks  chan ask
	done  chan struct{} // closed: the loop has ended
	notes notes

	making   []*making // in the order in which they were begun
	promises admit.Promises
	promised int // how many there were at the last Advance
	changed  bool

	made, failed uint64 // for so many pods room was made, or could not be
}

// ask is a critical pod that asks for room.
type ask struct {
	pod   admit.PodAttributes
	reply chan answer     // one slot; nil: who asked does not wait
	at    time.Time       // when, where it does not wait
	gone  <-chan struct{} // closed: it does not wait any more; nil: it does
	letIn bool            // it asks for nothing: the runtime was let run it
}

// stale: who asked has no use for an answer any more.
func (a *ask) stale(now time.Time) bool {
	select {
	case <-a.gone:
		return true
	default:
		return !a.at.IsZero() && now.Sub(a.at) > askFor
	}
}

type answer struct {
	result admit.Result
	err    error
}

// making is room that is being made.
type making struct {
	began   time.Time
	message string // why it was refused when it asked
	pod     admit.PodAttributes
	held    admit.Held
	plan    admit.Plan
	victims []*eviction.Life // as the plan's
	awaited []*eviction.Life
	waiting []chan answer
	made    bool // its room is there
}

// NewPreempting makes one for which nobody has asked. Close it when the loop ends.
func NewPreempting(o PreemptOptions) *Preempting {
	return &Preempting{o: o, asks: make(chan ask, maxAsks), done: make(chan struct{})}
}

// Close answers all who wait that the agent is being stopped. What was begun goes on.
func (p *Preempting) Close() { close(p.done) }

// Asks are for OnAsk.
func (p *Preempting) Asks() <-chan ask { return p.asks }

// Want implements Preemptor.
func (p *Preempting) Want(pod admit.PodAttributes) (note string) {
	held := admit.HeldBy(pod)
	if !p.o.Wanted || held.UID == "" || !held.Critical() {
		return ""
	}
	select {
	case p.asks <- ask{pod: pod, at: time.Now()}:
	default: // it will be asked for again
	}
	if text := p.notes.of(time.Now(), held.UID); text != "" {
		return "; no room could be made: " + text
	}
	return "; room is made for it, if others may go: ask again"
}

// LetIn implements Preemptor. Where too many ask nothing comes of it, and what is kept for those
// that it outranks lapses by itself.
func (p *Preempting) LetIn(pod admit.PodAttributes) {
	if held := admit.HeldBy(pod); pod.Doubted || !held.Critical() {
		return
	}
	select {
	case p.asks <- ask{pod: pod, letIn: true}:
	default:
	}
}

// Preempt implements Preemptor. Room that is there is kept for the pod for admit.PromisedFor, as it
// is for one that the runtime was refused and for which there is room by the time that the loop
// looks.
func (p *Preempting) Preempt(ctx context.Context, pod admit.PodAttributes) (admit.Result, error) {
	reply := make(chan answer, 1)
	select {
	case p.asks <- ask{pod: pod, reply: reply, gone: ctx.Done()}:
	case <-ctx.Done():
		return admit.Result{}, ctx.Err()
	case <-p.done:
		return admit.Result{}, ErrClosed
	}
	select {
	case a := <-reply:
		return a.result, a.err
	case <-ctx.Done():
		return admit.Result{}, ctx.Err()
	case <-p.done:
		return admit.Result{}, ErrClosed
	}
}

// OnAsk begins to make room for a pod, unless that is under way, or nobody waits for it any more.
// What the runtime has told by now counts.
func (p *Preempting) OnAsk(ctx context.Context, now time.Time, a ask) {
	if a.stale(now) {
		return
	}
	p.o.CatchUp()
	held := admit.HeldBy(a.pod)
	if a.letIn {
		p.anew(now, &a, &held)
		p.outrank(now, a.pod)
		return
	}
	if m := p.under(now, &a, &held); m != nil {
		if a.reply != nil {
			m.waiting = append(m.waiting, a.reply)
		}
		return
	}
	result, err, waits := p.begin(ctx, now, &a)
	if waits {
		return
	}
	if err == nil && result.Admit {
		p.keep(now, held)
		p.outrank(now, a.pod)
	}
	if a.reply != nil {
		a.reply <- answer{result, err}
	}
}

// under is the room that is being made for a pod; nil: none. An earlier attempt at a critical pod,
// under another UID, hands its room over: else each attempt would cost another victim.
func (p *Preempting) under(now time.Time, a *ask, held *admit.Held) *making {
	for _, m := range p.making {
		switch {
		case m.held.UID == held.UID:
			return m
		case held.UID != "" && held.Name != "" && held.Critical() && m.held.Name == held.Name &&
			m.held.Namespace == held.Namespace:
			for _, reply := range m.waiting {
				reply <- answer{err: errAnother}
			}
			m.pod, m.held, m.waiting = a.pod, *held, nil
			p.keep(now, *held)
			return m
		}
	}
	return nil
}

// anew has a pod that is let in take over the room that is kept, or made, for an earlier attempt at
// it: else it would be taken twice.
func (p *Preempting) anew(now time.Time, a *ask, held *admit.Held) {
	if p.under(now, a, held) != nil {
		return
	}
	if slices.ContainsFunc(p.promises.Held(now), func(h admit.Held) bool {
		return h.UID != held.UID && h.Name != "" && h.Name == held.Name && h.Namespace == held.Namespace
	}) {
		p.keep(now, *held)
	}
}

// begin decides, and has victims stopped. waits: the answer comes once they are gone.
func (p *Preempting) begin(ctx context.Context, now time.Time, a *ask) (result admit.Result,
	err error, waits bool) {
	state, err := p.o.State(now)
	if err != nil {
		return result, err, false
	}
	plan, result := admit.Preempt(a.pod, state)
	switch {
	case plan.Empty():
		return result, nil, false
	case p.o.Kubelet():
		return plan.Failed(errKubelet), nil, false
	case len(p.making) >= maxMaking:
		return result, ErrBusy, false
	}
	m := &making{began: now, message: result.Message, pod: a.pod, held: admit.HeldBy(a.pod),
		plan: plan}
	name := p.name(&m.held)
	var uids, victims []string
	for i := range plan.Victims {
		v := &plan.Victims[i]
		uids, victims = append(uids, string(v.UID)), append(victims, p.name(v))
	}
	if m.victims, err = p.o.Stop(ctx, now, uids, "room for pod "+name+": "+
		result.Message); err != nil {
		p.o.Log.Warn("no room could be made for a critical pod", api.EventGate.Attr(), "pod", name, "uid",
			m.held.UID,
			"victims", victims, "error", err)
		p.notes.set(now, m.held.UID, err.Error())
		p.failed++
		return plan.Failed(err), nil, false
	}
	for i := range plan.Awaited {
		if l := p.o.Life(string(plan.Awaited[i].UID)); l != nil {
			m.awaited = append(m.awaited, l)
		}
	}
	if a.reply != nil {
		m.waiting = append(m.waiting, a.reply)
	}
	p.notes.set(now, m.held.UID, "")
	p.making = append(p.making, m)
	p.keep(now, m.held) // from now on: others would take what the first victims leave
	p.o.Log.Info("making room for a critical pod", api.EventGate.Attr(), "pod", name, "uid",
		m.held.UID,
		"message", result.Message, "victims", victims,
		"awaited", len(plan.Awaited))
	return result, nil, true
}

// keep keeps room for a pod, so that nobody else has it by the time that who asked is answered.
func (p *Preempting) keep(now time.Time, pod admit.Held) {
	if p.promises.Keep(now, pod) {
		p.changed = true
		p.o.Publish(now)
	}
}

// outrank keeps no room any more for pods that a more critical one has been given the room of. For
// whom room is being made that is found out when it is there.
func (p *Preempting) outrank(now time.Time, pod admit.PodAttributes) {
	state, err := p.o.State(now)
	if err != nil {
		return
	}
	// The victims still have what is being made.
	state.Promised = slices.DeleteFunc(slices.Clone(state.Promised),
		func(h admit.Held) bool { return p.makes(h.UID) })
	dropped := false
	for _, h := range admit.Outranked(pod, state) {
		dropped = true
		p.promises.Drop(h.UID)
		p.o.Log.Info("room is not kept any more: a more critical pod has it", "pod", p.name(&h),
			"uid", h.UID,
			"for", p.o.Name(stats.PodReference{UID: string(pod.Pod.UID), Namespace: pod.Pod.Namespace,
				Name: pod.Pod.Name}))
	}
	if dropped {
		p.changed = true
		p.o.Publish(now)
	}
}

// Advance answers those whose victims are gone, or do not go. changed: what Promised says is
// something else now.
func (p *Preempting) Advance(now time.Time) (changed bool) {
	var left []*making
	for i, m := range p.making {
		m.follow(now, p.o.Life)
		if m.over(now) && p.finish(now, m, p.making[i+1:]) {
			continue
		}
		left = append(left, m)
		p.promises.Keep(now, m.held)
	}
	p.making = left
	n := len(p.promises.Held(now))
	changed = p.changed || n != p.promised
	p.promised, p.changed = n, false
	return changed
}

// OnPods takes the runtime's pods: those that hold their room themselves have none kept any more.
func (p *Preempting) OnPods(pods read.Index) {
	for _, uid := range p.promises.UIDs() {
		pod := pods[string(uid)]
		if pod != nil && holds(pod, p.o.Ended) && !p.makes(uid) {
			p.promises.Drop(uid)
			p.changed = true
		}
	}
}

// makes: room is being made for a pod.
func (p *Preempting) makes(uid types.UID) bool {
	return slices.ContainsFunc(p.making, func(m *making) bool { return m.held.UID == uid && !m.made })
}

// Promised is the room that is kept for pods that do not run yet.
func (p *Preempting) Promised(now time.Time) []admit.Held { return p.promises.Held(now) }

// follow has a later attempt at the same pod count in the place of one that was given up for it:
// where a hard threshold would not wait for the end of a grace period, and the kernel refused to
// cut it short.
func (m *making) follow(now time.Time, life func(uid string) *eviction.Life) {
	for _, lives := range [][]*eviction.Life{m.victims, m.awaited} {
		for i, l := range lives {
			if back, over := l.Room(now); back || !over {
				continue
			}
			if later := life(l.Eviction().Pod.PodRef.UID); later != nil {
				lives[i] = later
			}
		}
	}
}

// over: there is nothing to wait for any more.
func (m *making) over(now time.Time) bool {
	waits := func(l *eviction.Life) bool { _, over := l.Room(now); return !over }
	return !slices.ContainsFunc(m.victims, waits) && !slices.ContainsFunc(m.awaited, waits)
}

// finish decides on a pod by the node as it is now. A victim that is not dead has its room still.
// later are those who asked after it: they wait for its victims, too, and what is kept for them is
// not there yet; but one that outranks it comes first. false: the node is not known, so that it has
// to be tried again.
func (p *Preempting) finish(now time.Time, m *making, later []*making) bool {
	state, err := p.o.State(now)
	if err != nil {
		return false
	}
	state.Promised = slices.DeleteFunc(slices.Clone(state.Promised), func(h admit.Held) bool {
		return slices.ContainsFunc(later, func(l *making) bool {
			return l.held.UID == h.UID && !l.held.Outranks(&m.held)
		})
	})
	var kills []admit.Kill
	for i, l := range m.victims {
		k := admit.Kill{UID: m.plan.Victims[i].UID}
		if back, _ := l.Room(now); !back {
			k.Error = cmp.Or(p.o.Why(l), "it did not die")
		}
		kills = append(kills, k)
	}
	result := m.plan.Outcome(m.pod, state, kills)
	name := p.name(&m.held)
	if result.Admit {
		p.made++
		m.made = true
		p.keep(now, m.held)
		p.outrank(now, m.pod)
		p.o.Log.Info("there is room for a critical pod", api.EventGate.Attr(), "pod", name, "uid",
			m.held.UID,
			"victims", len(kills), "keptFor", admit.PromisedFor)
	} else {
		p.failed++
		p.promises.Drop(m.held.UID)
		p.notes.set(now, m.held.UID, result.Message)
		p.changed = true
		p.o.Log.Warn("no room could be made for a critical pod", api.EventGate.Attr(), "pod", name, "uid",
			m.held.UID,
			"reason", result.Reason,
			"message", result.Message)
	}
	for _, reply := range m.waiting {
		reply <- answer{result: result}
	}
	return true
}

// name of a pod, for people.
func (p *Preempting) name(h *admit.Held) string {
	return p.o.Name(reference(h))
}

// Fill says for which pods room is being made and kept.
func (p *Preempting) Fill(now time.Time, out *api.GateState) {
	out.RoomMade, out.RoomFailed = p.made, p.failed
	for _, m := range p.making {
		s := api.MakingState{Pod: reference(&m.held), Began: m.began, Victims: []stats.PodReference{},
			Message: m.message}
		for i := range m.plan.Victims {
			s.Victims = append(s.Victims, reference(&m.plan.Victims[i]))
		}
		out.Making = append(out.Making, s)
	}
	for _, h := range p.promises.Held(now) {
		if !p.makes(h.UID) {
			out.Kept = append(out.Kept, api.KeptState{Pod: reference(&h), Until: p.promises.Until(h.UID)})
		}
	}
}

func reference(h *admit.Held) stats.PodReference {
	return stats.PodReference{UID: string(h.UID), Namespace: h.Namespace, Name: h.Name}
}

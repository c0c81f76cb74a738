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

// Limits of Preempting.
const (
	maxPreemptions = 16          // preemptions in progress
	maxQueued      = 16          // requests queued for the loop
	maxNotes       = 64          // pods with a note on their failed preemption
	noteLifetime   = time.Minute // lifetime of a note: callers retry well before its end
	// lifetime of a request from the gate: after that the runtime has retried the pod or dropped it
	requestLifetime = 5 * time.Second
)

// Errors of Preempt that carry no decision.
var (
	ErrClosed = errors.New("the agent is shutting down")
	ErrBusy   = fmt.Errorf("%d preemptions are already in progress", maxPreemptions)
)

// errSuperseded reports that the pod was created again under another UID during its preemption.
var errSuperseded = errors.New("superseded by a newer attempt to start this pod")

// errSibling reports that another client waits for the preemption for a pod of the same controller.
var errSibling = errors.New("the agent is freeing resources for another pod of the same controller: retry")

// errKubelet reports that the agent does not preempt next to a kubelet.
var errKubelet = errors.New("the kubelet on this node preempts pods itself")

// PreemptOptions configures NewPreempting. The loop's goroutine calls all functions.
type PreemptOptions struct {
	// Enabled allows preemption for pods that the gate refused.
	Enabled bool
	State   func(now time.Time) (admit.NodeState, error) // returns the node's current state
	// Publish makes the current reservations count in decisions from now on.
	Publish        func(now time.Time)
	Kubelet        func() bool // a kubelet runs on this node
	ProcessPending func()      // processes the pending events of the runtime
	// Stop begins to stop pods, all or none; reason names the pod that needs the resources. The
	// returned lives follow the order of the UIDs.
	Stop func(ctx context.Context, now time.Time, uids []string, reason string) ([]*eviction.Life,
		error)
	Life     func(uid string) *eviction.Life // eviction in progress; nil: none
	WhyAlive func(*eviction.Life) string     // why a victim is not dead
	// Ended reports sandboxes that ended after the runtime listed them. nil: none did.
	Ended func(uid, sandbox string) bool
	Name  func(stats.PodReference) string // display name of a pod
	Log   *logthrottle.Logger
}

// Preempting stops pods for critical ones and reserves the freed resources until these run. It
// implements Preemptor: the gate and clients send requests to the loop, which owns everything else
// and decides on each pod by the node's current state.
type Preempting struct {
	o        PreemptOptions
	requests chan preemptRequest
	done     chan struct{} // closed when the loop ends
	notes    notes

	inProgress   []*preemption // in the order of their start
	promises     admit.Reservations
	promiseCount int // number of promises at the last Advance
	changed      bool

	succeeded, failed uint64 // number of preemptions that succeeded and failed
}

// preemptRequest is a request to free resources for a critical pod, or the report of an admitted
// one.
type preemptRequest struct {
	pod      admit.PodAttributes
	reply    chan answer     // one slot; nil: the caller does not wait
	at       time.Time       // time of the request if the caller does not wait
	gone     <-chan struct{} // closed when the caller stops waiting; nil: never
	admitted bool            // the gate admitted the pod: only reservations may change
}

// stale reports whether the caller has no more use for an answer.
func (a *preemptRequest) stale(now time.Time) bool {
	select {
	case <-a.gone:
		return true
	default:
		return !a.at.IsZero() && now.Sub(a.at) > requestLifetime
	}
}

type answer struct {
	result admit.Result
	err    error
}

// preemption is a preemption in progress.
type preemption struct {
	began     time.Time
	message   string // why the pod was rejected at first
	pod       admit.PodAttributes
	held      admit.Held
	plan      admit.Plan
	victims   []*eviction.Life // in the order of plan.Victims
	awaited   []*eviction.Life
	waiting   []preemptRequest // of clients
	succeeded bool             // the resources are free
	repeated  bool             // its pod was requested again
}

// NewPreempting creates a Preempting without requests. Close it when the loop ends.
func NewPreempting(o PreemptOptions) *Preempting {
	return &Preempting{o: o, requests: make(chan preemptRequest, maxQueued), done: make(chan struct{})}
}

// Close answers all waiting callers with ErrClosed. Preemptions in progress continue.
func (p *Preempting) Close() { close(p.done) }

// Requests returns the requests for OnRequest.
func (p *Preempting) Requests() <-chan preemptRequest { return p.requests }

// RequestPreemption implements Preemptor.
func (p *Preempting) RequestPreemption(pod admit.PodAttributes) (note string) {
	held := admit.HeldBy(pod)
	if !p.o.Enabled || held.UID == "" || !held.Critical() {
		return ""
	}
	select {
	case p.requests <- preemptRequest{pod: pod, at: time.Now()}:
	default: // the runtime will retry the pod
	}
	if text := p.notes.get(time.Now(), noteKey(&held)); text != "" {
		return "; preemption failed: " + text
	}
	return "; preemption may free resources for it: retry"
}

// OnAdmitted implements Preemptor. It drops the report if the queue is full: the reservations that
// the pod outranks expire on their own.
func (p *Preempting) OnAdmitted(pod admit.PodAttributes) {
	if held := admit.HeldBy(pod); pod.UntrustedPriority || !held.Critical() {
		return
	}
	select {
	case p.requests <- preemptRequest{pod: pod, admitted: true}:
	default:
	}
}

// Preempt implements Preemptor. If the pod fits, its resources are reserved for
// admit.ReservationPeriod. So are those of a pod that the gate refused and that fits when the loop
// handles its request.
func (p *Preempting) Preempt(ctx context.Context, pod admit.PodAttributes) (admit.Result, error) {
	reply := make(chan answer, 1)
	select {
	case p.requests <- preemptRequest{pod: pod, reply: reply, gone: ctx.Done()}:
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

// OnRequest starts a preemption for a pod, unless one is in progress or no caller waits any more.
// It first processes the pending events of the runtime.
func (p *Preempting) OnRequest(ctx context.Context, now time.Time, a preemptRequest) {
	if a.stale(now) {
		return
	}
	p.o.ProcessPending()
	held := admit.HeldBy(a.pod)
	if a.pod.UntrustedPriority { // its source could name any controller
		held.Controller = ""
	}
	if a.admitted {
		p.takeOverReservation(now, &a, &held)
		p.dropOutranked(now, a.pod)
		return
	}
	if m := p.findPreemption(now, &a, &held); m != nil {
		switch {
		case a.reply == nil:
		case m.held.UID != held.UID:
			a.reply <- answer{err: errSibling}
		default:
			m.waiting = append(m.waiting, a)
		}
		return
	}
	result, err, waits := p.begin(ctx, now, &a, &held)
	if waits {
		return
	}
	if err == nil && result.Admit {
		held.Promised = a.reply != nil
		p.reserve(now, held)
		p.dropOutranked(now, a.pod)
	}
	if a.reply != nil {
		a.reply <- answer{result, err}
	}
}

// findPreemption returns the preemption in progress for a pod; nil without one. An earlier attempt at a
// critical pod passes its preemption on: otherwise each attempt would cost another victim. If a client
// waits for a pod of the same controller, that pod, which may be another replica, keeps its preemption.
// A pod that was requested again also keeps it when a sibling is admitted. If it was not, the sibling is
// its next attempt.
func (p *Preempting) findPreemption(now time.Time, a *preemptRequest,
	held *admit.Held) *preemption {
	for _, m := range p.inProgress {
		switch {
		case m.held.UID == held.UID:
			m.repeated = true
			return m
		case held.UID != "" && held.Critical() && m.held.PassesTo(held):
			if m.held.Name != held.Name && (a.admitted && m.repeated || m.awaitedByClient(now)) {
				return m
			}
			m.answer(answer{err: errSuperseded})
			m.pod, m.held, m.waiting, m.repeated = a.pod, *held, nil, false
			p.reserve(now, *held)
			return m
		}
	}
	return nil
}

// takeOverReservation passes the reservation, or preemption, of an earlier attempt to the admitted
// pod. Otherwise the pod would count twice.
func (p *Preempting) takeOverReservation(now time.Time, a *preemptRequest, held *admit.Held) {
	if p.findPreemption(now, a, held) != nil {
		return
	}
	if slices.ContainsFunc(p.promises.Held(now), func(h admit.Held) bool {
		return h.UID != held.UID && h.PassesTo(held)
	}) {
		p.reserve(now, *held)
	}
}

// awaitedByClient reports whether a client still waits for the preemption.
func (m *preemption) awaitedByClient(now time.Time) bool {
	return slices.ContainsFunc(m.waiting, func(a preemptRequest) bool { return !a.stale(now) })
}

// answer answers the waiting clients. Each reply has a free slot.
func (m *preemption) answer(to answer) {
	for i := range m.waiting {
		m.waiting[i].reply <- to
	}
}

// begin decides on a pod and begins to stop its victims. pending: the caller gets the answer when
// the victims are gone.
func (p *Preempting) begin(ctx context.Context, now time.Time, a *preemptRequest,
	held *admit.Held) (result admit.Result, err error, pending bool) {
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
	case len(p.inProgress) >= maxPreemptions:
		return result, ErrBusy, false
	}
	m := &preemption{began: now, message: result.Message, pod: a.pod, held: *held, plan: plan}
	name := p.name(&m.held)
	var uids, victims []string
	for i := range plan.Victims {
		v := &plan.Victims[i]
		uids, victims = append(uids, string(v.UID)), append(victims, p.name(v))
	}
	if m.victims, err = p.o.Stop(ctx, now, uids, "preempted for pod "+name+": "+
		result.Message); err != nil {
		//log: The agent could not free resources for a critical pod, so the pod stays rejected. The agent
		//  retries when the pod is created again.
		//do: See the keys error and message, and the log of the container runtime if victims did not die.
		p.o.Log.Warn("preemption failed", api.EventGate.Attr(), "pod", name, "uid",
			m.held.UID,
			"victims", victims, "error", err)
		p.notes.set(now, noteKey(&m.held), err.Error())
		p.failed++
		return plan.Failed(err), nil, false
	}
	for i := range plan.Awaited {
		if l := p.o.Life(string(plan.Awaited[i].UID)); l != nil {
			m.awaited = append(m.awaited, l)
		}
	}
	if a.reply != nil {
		m.waiting = append(m.waiting, *a)
	}
	p.notes.set(now, noteKey(&m.held), "")
	p.inProgress = append(p.inProgress, m)
	p.reserve(now, m.held) // before the first victim dies, so that no other pod claims its resources
	//log: A critical pod does not fit, and the agent stops the pods named as victims for it.
	p.o.Log.Info("preemption started", api.EventGate.Attr(), "pod", name, "uid",
		m.held.UID,
		"message", result.Message, "victims", victims,
		"awaited", len(plan.Awaited))
	return result, nil, true
}

// reserve reserves resources for a pod, and publishes the reservation before the caller gets its
// answer.
func (p *Preempting) reserve(now time.Time, pod admit.Held) {
	if p.promises.Reserve(now, pod) {
		p.changed = true
		p.o.Publish(now)
	}
}

// dropOutranked drops the reservations that a more critical pod outranks. finish decides on those
// of preemptions in progress.
func (p *Preempting) dropOutranked(now time.Time, pod admit.PodAttributes) {
	state, err := p.o.State(now)
	if err != nil {
		return
	}
	// The victims still hold the resources of a preemption in progress.
	state.Reservations = slices.DeleteFunc(slices.Clone(state.Reservations),
		func(h admit.Held) bool { return p.preempting(h.UID) })
	dropped := false
	for _, h := range admit.Outranked(pod, state) {
		dropped = true
		p.promises.Drop(h.UID)
		//log: The agent drops the reservation of a pod that does not run yet, because a more critical pod
		//  uses the resources.
		p.o.Log.Info("reservation dropped for more critical pod", "pod", p.name(&h),
			"uid", h.UID,
			"for", p.o.Name(stats.PodReference{UID: string(pod.Pod.UID), Namespace: pod.Pod.Namespace,
				Name: pod.Pod.Name}))
	}
	if dropped {
		p.changed = true
		p.o.Publish(now)
	}
}

// Advance finishes each preemption that has no victim left to wait for, and answers its callers.
// changed: the result of Reservations has changed.
func (p *Preempting) Advance(now time.Time) (changed bool) {
	var left []*preemption
	for i, m := range p.inProgress {
		m.followRetries(now, p.o.Life)
		if m.settled(now) && p.finish(now, m, p.inProgress[i+1:]) {
			continue
		}
		left = append(left, m)
		p.promises.Reserve(now, m.held)
	}
	p.inProgress = left
	n := len(p.promises.Held(now))
	changed = p.changed || n != p.promiseCount
	p.promiseCount, p.changed = n, false
	return changed
}

// OnPods receives the runtime's pods, and drops reservations of pods that now hold their resources.
func (p *Preempting) OnPods(pods read.Index) {
	for _, uid := range p.promises.UIDs() {
		pod := pods[string(uid)]
		if pod != nil && holdsResources(pod, p.o.Ended) && !p.preempting(uid) {
			p.promises.Drop(uid)
			p.changed = true
		}
	}
}

// preempting reports whether a preemption for a pod is in progress.
func (p *Preempting) preempting(uid types.UID) bool {
	return slices.ContainsFunc(p.inProgress, func(m *preemption) bool {
		return m.held.UID == uid && !m.succeeded
	})
}

// Reservations returns the resources reserved for pods that do not run yet.
func (p *Preempting) Reservations(now time.Time) []admit.Held {
	all := p.promises.Held(now)
	for i := range all {
		all[i].Pending = p.preempting(all[i].UID)
	}
	return all
}

// followRetries replaces an abandoned eviction by a later one of the same pod. An eviction is
// abandoned when a hard threshold cannot wait for its grace period and the kernel rejects the kill.
func (m *preemption) followRetries(now time.Time, life func(uid string) *eviction.Life) {
	for _, lives := range [][]*eviction.Life{m.victims, m.awaited} {
		for i, l := range lives {
			if back, over := l.RoomState(now); back || !over {
				continue
			}
			if later := life(l.Eviction().Pod.PodRef.UID); later != nil {
				lives[i] = later
			}
		}
	}
}

// settled reports whether no victim is left to wait for.
func (m *preemption) settled(now time.Time) bool {
	waits := func(l *eviction.Life) bool { _, over := l.RoomState(now); return !over }
	return !slices.ContainsFunc(m.victims, waits) && !slices.ContainsFunc(m.awaited, waits)
}

// finish decides on the pod of a preemption by the node's current state. A victim that is not dead
// still holds its resources. later contains the preemptions that began after m. Their victims still
// run, so their reservations count only for pods that outrank the pod of m. finish returns false if
// the node's state is unknown and the caller must retry.
func (p *Preempting) finish(now time.Time, m *preemption, later []*preemption) bool {
	state, err := p.o.State(now)
	if err != nil {
		return false
	}
	state.Reservations = slices.DeleteFunc(slices.Clone(state.Reservations), func(h admit.Held) bool {
		return slices.ContainsFunc(later, func(l *preemption) bool {
			return l.held.UID == h.UID && !l.held.Outranks(&m.held)
		})
	})
	var kills []admit.Kill
	for i, l := range m.victims {
		k := admit.Kill{UID: m.plan.Victims[i].UID}
		if back, _ := l.RoomState(now); !back {
			k.Error = cmp.Or(p.o.WhyAlive(l), "the pod did not die")
		}
		kills = append(kills, k)
	}
	result := m.plan.Outcome(m.pod, state, kills)
	name := p.name(&m.held)
	if result.Admit {
		p.succeeded++
		m.succeeded = true
		m.held.Promised = m.awaitedByClient(now)
		p.reserve(now, m.held)
		p.dropOutranked(now, m.pod)
		//log: The victims are gone and the critical pod fits. Its resources are reserved until it runs,
		//  at most for reservedFor.
		p.o.Log.Info("preemption succeeded", api.EventGate.Attr(), "pod", name, "uid",
			m.held.UID,
			"victims", len(kills), "reservedFor", admit.ReservationPeriod)
	} else {
		p.failed++
		p.promises.Drop(m.held.UID)
		p.notes.set(now, noteKey(&m.held), result.Message)
		p.changed = true
		p.o.Log.Warn("preemption failed", api.EventGate.Attr(), "pod", name, "uid",
			m.held.UID,
			"reason", result.Reason,
			"message", result.Message)
	}
	m.answer(answer{result: result})
	return true
}

// name returns the display name of a pod.
func (p *Preempting) name(h *admit.Held) string {
	return p.o.Name(reference(h))
}

// Fill writes the preemptions in progress and the reservations to out.
func (p *Preempting) Fill(now time.Time, out *api.GateState) {
	out.Preempted, out.PreemptFailed = p.succeeded, p.failed
	for _, m := range p.inProgress {
		s := api.PreemptionState{Pod: reference(&m.held), Began: m.began, Victims: []stats.PodReference{},
			Message: m.message}
		for i := range m.plan.Victims {
			s.Victims = append(s.Victims, reference(&m.plan.Victims[i]))
		}
		out.Preempting = append(out.Preempting, s)
	}
	for _, h := range p.promises.Held(now) {
		if !p.preempting(h.UID) {
			out.Reserved = append(out.Reserved, api.ReservationState{Pod: reference(&h), Until: p.promises.Until(h.UID)})
		}
	}
}

func reference(h *admit.Held) stats.PodReference {
	return stats.PodReference{UID: string(h.UID), Namespace: h.Namespace, Name: h.Name}
}

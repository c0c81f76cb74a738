// Package admission decides from memory whether the node admits a pod. The loop publishes its
// state as a Snapshot. The gate, while the runtime waits, and clients on the socket read that
// snapshot and decide by the rules of package admit. They never call the runtime or the loop.
//
//	admission.go     Admission: Reject, for the gate
//	clients.go       Ask and Preempt, for clients
//	snapshot.go      Snapshot, and Part, with which the loop publishes it
//	podresources.go  the resources that the runtime's pods hold
//	incoming.go      the pod to decide on: its object, its manifest, or the runtime's data
//	preempt.go       Preempting: preemption and reservations for critical pods
//	notes.go         why preemption failed, for the next refusal of the same pod
//	admitted.go      admitted pods that the snapshot does not contain yet
//	node.go          node data that only the configuration changes: name, labels, taints
//	count.go         counts and latency of the gate's answers
//
// Without a kubelet the gate refuses to start a rejected pod. With a kubelet, or in a dry run, it
// only counts and logs the rejection: the kubelet has admitted the pod and would retry forever. An
// unknown fact never rejects a pod. While the snapshot is stale, because the loop hangs, the gate
// admits every pod.
package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/cri"
	"jettison/eviction"
	"jettison/stats"
)

// staleAfter is the time without a Publish after which the snapshot is stale. The loop publishes at
// least once a second; after a longer delay the snapshot no longer describes the node.
const staleAfter = 10 * time.Second

// ErrUnknown reports that no snapshot was published yet, or none for staleAfter.
var ErrUnknown = errors.New("node state unknown: the agent has not read the node for 10s")

// Preemptor frees resources for critical pods by stopping other pods. Its methods are safe for
// concurrent use.
type Preemptor interface {
	// OnAdmitted reports a pod that the gate admitted while resources are reserved for other pods.
	// A critical pod may outrank some of these. OnAdmitted must not block.
	OnAdmitted(p admit.PodAttributes)
	// RequestPreemption requests preemption for a pod, critical or not, that the gate refused only for
	// short resources. The pod's priority is known. It must not block, because the runtime waits. The
	// note is appended to the refusal.
	RequestPreemption(p admit.PodAttributes) (note string)
	// Preempt decides on a pod, and preempts others where only resources are short. It returns when
	// the resources are free, or the reason why they will not be. A preemption that has begun
	// continues after ctx ends.
	Preempt(ctx context.Context, p admit.PodAttributes) (admit.Result, error)
}

// ErrNoPreemption reports an agent without a Preemptor.
var ErrNoPreemption = errors.New("this agent does not preempt")

// Admission decides on pods from the latest Snapshot. It is safe for concurrent use; New creates
// one.
type Admission struct {
	policy      atomic.Pointer[eviction.Policy]
	preemptor   atomic.Pointer[Preemptor] // nil: no preemption
	snapshot    atomic.Pointer[Snapshot]  // nil: none yet
	began       time.Time
	publishedAt atomic.Int64 // the loop's last Publish, in nanoseconds since began
	counts      counts
	refusals    chan Refusal

	mu           sync.Mutex
	admittedPods admittedPods
}

// New creates an Admission without a snapshot. policy selects the annotations that count and the
// pods that are protected while their priority is unknown.
func New(policy eviction.Policy) *Admission {
	a := &Admission{began: time.Now(), refusals: make(chan Refusal, maxQueuedRefusals)}
	a.policy.Store(&policy)
	return a
}

// maxQueuedRefusals limits the refusals that are queued for the log. Further ones are counted but
// not logged.
const maxQueuedRefusals = 64

// Refusal is a pod that was rejected, or would have been if the gate enforced its decisions.
type Refusal struct {
	Pod       stats.PodReference
	Container string // empty: its sandbox
	// Failures are all reasons against the pod. The first one is the answer.
	Failures []admit.Failure
	Observed bool // the gate let it start nevertheless
}

// fresh returns the snapshot, or nil if it is missing or stale.
func (a *Admission) fresh(now time.Time) *Snapshot {
	if s := a.snapshot.Load(); s != nil && now.Sub(a.began)-time.Duration(a.publishedAt.Load()) < staleAfter {
		return s
	}
	return nil
}

// State returns the node as decisions use it: the snapshot plus the pods admitted after it. The
// caller must not change it.
func (a *Admission) State(now time.Time) (admit.NodeState, error) {
	s := a.fresh(now)
	if s == nil {
		return admit.NodeState{}, ErrUnknown
	}
	return a.state(now, s), nil
}

func (a *Admission) state(now time.Time, s *Snapshot) admit.NodeState {
	n := s.Node
	a.mu.Lock()
	defer a.mu.Unlock()
	n.Reservations = a.admittedPods.reservations(now, &n)
	return n
}

// Reject returns why the runtime must not start a pod, or a container of one; empty if it may. The
// gate calls it once for each sandbox.
func (a *Admission) Reject(now time.Time, sandbox *cri.PodSandbox, container string) string {
	s := a.fresh(now)
	if s == nil {
		a.counts.unknown.Add(1)
		return ""
	}
	incoming := a.resolvePod(s, sandbox)
	n := a.state(now, s)
	if !incoming.tolerationsKnown {
		n.Taints = nil
	}
	failures := admit.Failures(incoming.PodAttributes, n)
	if a.reserve(now, incoming, len(failures) == 0 || s.Observe); len(failures) == 0 {
		a.counts.admitted.Add(1)
		if by := a.preemptor.Load(); by != nil && len(n.Reservations) > 0 {
			(*by).OnAdmitted(incoming.PodAttributes)
		}
		return ""
	}
	ref := stats.PodReference{UID: sandbox.UID, Namespace: sandbox.Namespace, Name: sandbox.Name}
	a.counts.refuse(failures[0].Reason, s.Observe)
	select {
	case a.refusals <- Refusal{Pod: ref, Container: container, Failures: failures,
		Observed: s.Observe}:
	default:
	}
	if s.Observe {
		return ""
	}
	note := ""
	if by := a.preemptor.Load(); by != nil && incoming.preemptAs != nil &&
		onlyResourcesShort(failures) && incoming.shortByTrusted(failures) {
		note = (*by).RequestPreemption(*incoming.preemptAs)
	}
	return fmt.Sprintf("jettison refuses pod %s/%s: %s: Pod was rejected: %.1000s%.1000s",
		ref.Namespace, ref.Name, failures[0].Reason,
		failures[0].Message, note)
}

// reserve reserves the resources of an admitted pod, and drops the reservation of a rejected one.
func (a *Admission) reserve(now time.Time, p *incomingPod, admitted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if admitted {
		a.admittedPods.keep(now, admit.HeldBy(p.PodAttributes))
	} else {
		a.admittedPods.drop(string(p.Pod.UID))
	}
}

// onlyResourcesShort reports whether every failure is a short resource.
func onlyResourcesShort(failures []admit.Failure) bool {
	for i := range failures {
		if failures[i].Short == nil {
			return false
		}
	}
	return true
}

// shortByTrusted reports whether all short resources are also short by the requests that preemption
// trusts. If one is not, preemption would stop pods, and the pod would still be rejected.
func (p *incomingPod) shortByTrusted(failures []admit.Failure) bool {
	held := admit.HeldBy(*p.preemptAs)
	return !slices.ContainsFunc(failures, func(f admit.Failure) bool {
		return f.Short.Resource != v1.ResourcePods && f.Short.Requested > held.Requests[f.Short.Resource]
	})
}

// SandboxRemoved drops the reservation of a pod after its sandbox was removed.
func (a *Admission) SandboxRemoved(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.admittedPods.drop(uid)
}

// RecordAnswer records how long the gate took for an answer. heldOff: the gate refused a pod in its
// hold-off.
func (a *Admission) RecordAnswer(took time.Duration, heldOff bool) {
	a.counts.took.add(took)
	if heldOff {
		a.counts.heldOff.Add(1)
	}
}

// Package admission answers from memory whether the node takes a pod. The loop publishes what it
// knows as a Snapshot; the runtime's plugin, while the runtime waits, and clients ask of that, by
// the rules of package admit, and never the runtime or the loop.
//
//	admission.go  Admission: Refuse, for the runtime's plugin
//	clients.go    Ask and Preempt, for clients
//	snapshot.go   Snapshot: what is published; Part: the loop's, which publishes it
//	held.go       what a pod of the runtime holds
//	asking.go     the pod that asks: its object, its manifest, or what the runtime tells of it
//	preempt.go    Preempting: room for critical pods, made and kept; notes.go: what the runtime is
//	              told of it
//	letin.go      pods that were let in and are not in the snapshot yet
//	node.go       what of the node does not change: its name, labels, taints
//	count.go      what was answered, and how fast
//
// Without a kubelet a pod that the decision refuses is kept out. Beside one nothing is, for the
// kubelet has admitted it, and would try for ever: the decision is counted and logged. What is not
// known refuses nothing: that the loop hangs is known of no pod, so each is let in.
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

// staleAfter is how old a snapshot may be that decides. The loop looks at least once a second, and
// says so; one that is held up for longer does not know the node any more.
const staleAfter = 10 * time.Second

// ErrUnknown: the agent has not looked at the node yet, or not for so long that it does not know it
// any more.
var ErrUnknown = errors.New("the node is not known: the agent has not looked at it for 10s")

// Preemptor makes room for critical pods, by killing others. Its methods are for any goroutine.
type Preemptor interface {
	// LetIn is told of a critical pod that is let in where room is kept for others, of which some may
	// be outranked. It must not block.
	LetIn(p admit.PodAttributes)
	// Want is told of a pod that was refused in the runtime for want of room alone, and whose priority
	// is known: one that is not critical, too. It is called while the runtime waits, so it must not
	// block. What it returns is added to the refusal.
	Want(p admit.PodAttributes) (note string)
	// Preempt decides on a pod, and makes room for it where that is what is missing: it returns when
	// the room is there, or why it will not be. What was begun goes on when ctx ends.
	Preempt(ctx context.Context, p admit.PodAttributes) (admit.Result, error)
}

// ErrNoPreemption: nobody makes room here.
var ErrNoPreemption = errors.New("this agent does not preempt")

// Admission is safe for concurrent use. New makes one.
type Admission struct {
	policy   atomic.Pointer[eviction.Policy]
	preempts atomic.Pointer[Preemptor] // nil: nobody
	snapshot atomic.Pointer[Snapshot]  // nil: none yet
	began    time.Time
	seen     atomic.Int64 // when the loop last said that it goes on, in nanoseconds since began
	counts   counts
	told     chan Refusal

	mu    sync.Mutex
	letIn letIn
}

// New makes an Admission that knows of no node yet. policy says whose annotations count, and whose
// priority need not be known.
func New(policy eviction.Policy) *Admission {
	a := &Admission{began: time.Now(), told: make(chan Refusal, maxTold)}
	a.policy.Store(&policy)
	return a
}

// maxTold is how many refusals wait to be logged. Of more, none is; they are counted.
const maxTold = 64

// Refusal is a pod that was refused, or would have been.
type Refusal struct {
	Pod       stats.PodReference
	Container string // empty: its sandbox
	// Failures are all that speaks against it, the first one is the answer.
	Failures []admit.Failure
	Observed bool // it was let in all the same
}

// fresh is the snapshot, as long as it counts.
func (a *Admission) fresh(now time.Time) *Snapshot {
	if s := a.snapshot.Load(); s != nil && now.Sub(a.began)-time.Duration(a.seen.Load()) < staleAfter {
		return s
	}
	return nil
}

// State is the node as decisions have it now, with what was let in since the loop looked. It must
// not be changed.
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
	n.Promised = a.letIn.beside(now, &n)
	return n
}

// Refuse says why the runtime must not let in a pod, or a container of one; empty: it may. It is
// for the runtime's plugin, which asks once of each sandbox.
func (a *Admission) Refuse(now time.Time, sandbox *cri.PodSandbox, container string) string {
	s := a.fresh(now)
	if s == nil {
		a.counts.unknown.Add(1)
		return ""
	}
	asking := a.asking(s, sandbox)
	n := a.state(now, s)
	if !asking.tolerates { // who knows
		n.Taints = nil
	}
	failures := admit.Failures(asking.PodAttributes, n)
	if a.remember(now, asking, len(failures) == 0 || s.Observe); len(failures) == 0 {
		a.counts.admitted.Add(1)
		if by := a.preempts.Load(); by != nil && len(n.Promised) > 0 {
			(*by).LetIn(asking.PodAttributes)
		}
		return ""
	}
	ref := stats.PodReference{UID: sandbox.UID, Namespace: sandbox.Namespace, Name: sandbox.Name}
	a.counts.refuse(failures[0].Reason, s.Observe)
	select {
	case a.told <- Refusal{Pod: ref, Container: container, Failures: failures, Observed: s.Observe}:
	default:
	}
	if s.Observe {
		return ""
	}
	note := ""
	if by := a.preempts.Load(); by != nil && asking.wants != nil && lacksRoom(failures) &&
		asking.sure(failures) {
		note = (*by).Want(*asking.wants)
	}
	return fmt.Sprintf("jettison refuses pod %s/%s: %s: Pod was rejected: %.1000s%.1000s",
		ref.Namespace, ref.Name, failures[0].Reason,
		failures[0].Message, note)
}

// remember keeps the room of a pod that is let in, and none for one that is not.
func (a *Admission) remember(now time.Time, p *asking, letIn bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if letIn {
		a.letIn.keep(now, admit.HeldBy(p.PodAttributes))
	} else {
		a.letIn.drop(string(p.Pod.UID))
	}
}

// lacksRoom: room is all that is missing.
func lacksRoom(failures []admit.Failure) bool {
	for i := range failures {
		if failures[i].Short == nil {
			return false
		}
	}
	return true
}

// sure reports whether all that is short is requested by the word that counts for making room, too:
// else others would go, and the pod would be refused all the same.
func (p *asking) sure(failures []admit.Failure) bool {
	held := admit.HeldBy(*p.wants)
	return !slices.ContainsFunc(failures, func(f admit.Failure) bool {
		return f.Short.Resource != v1.ResourcePods && f.Short.Requested > held.Requests[f.Short.Resource]
	})
}

// Left tells that a sandbox of a pod is gone: what was kept for it is free.
func (a *Admission) Left(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.letIn.drop(uid)
}

// Answered tells how long the plugin took for an answer. heldOff: it was a veto of an evicted pod.
func (a *Admission) Answered(took time.Duration, heldOff bool) {
	a.counts.took.add(took)
	if heldOff {
		a.counts.heldOff.Add(1)
	}
}

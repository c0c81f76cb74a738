package nodeside

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/api"
	"jettison/internal/base/retry"
	"jettison/internal/bridge/kube"
	"jettison/internal/bridge/verdict"
)

// part is one thing that is told.
type part struct {
	name          string
	write         func(context.Context, time.Time) error
	retryAt       time.Time // it is not told before then
	delay         time.Duration
	unreachable   bool // nobody answered it, so nobody is asked before then
	failureLogged bool // that it fails
}

// parts are those that there are, in their order.
func (s *Reporter) newParts() []part {
	return []part{{name: "conditions", write: s.conditions}, {name: "load", write: s.writeLoad},
		{name: "events", write: s.events}}
}

// tell writes what is due. What fails is told again after a pause that doubles, and holds up the
// rest if nobody answers.
func (s *Reporter) writeDue(ctx context.Context) {
	now := time.Now()
	for i := range s.parts {
		p := &s.parts[i]
		switch {
		case now.Before(p.retryAt) && p.unreachable:
			return
		case now.Before(p.retryAt):
			continue
		}
		err := p.write(ctx, now)
		if ctx.Err() != nil {
			return
		}
		if p.unreachable = kube.Classify(err) == kube.Unreachable; err == nil {
			if p.failureLogged {
				s.o.Log.Info("the API is told how the node is again", "what", p.name)
			}
			p.retryAt, p.delay, p.failureLogged = time.Time{}, 0, false
			continue
		}
		if !p.failureLogged {
			p.failureLogged = true
			s.o.Log.Warn("the API is not told how the node is: it is told again", "what", p.name,
				"error", err)
		}
		asked, _ := kube.RetryAfter(err)
		p.delay = retry.Backoff(p.delay, minBackoff, maxBackoff)
		if p.retryAt = now.Add(max(retry.Jitter(p.delay), asked)); p.unreachable {
			return
		}
	}
}

// mayWrite tells whether the server's policies can hold a bridge to its node, else nothing is
// written of it but events. It is asked once.
func (s *Reporter) canWrite(ctx context.Context) (bool, error) {
	if s.restricted == nil {
		bound, err := s.o.CanRestrict(ctx)
		if err != nil {
			return false, err
		}
		s.restricted = &bound
	}
	return *s.restricted, nil
}

// conditions writes those of the node.
func (s *Reporter) conditions(ctx context.Context, now time.Time) (err error) {
	if s.state != nil && !s.state.Kubelet || s.state == nil && now.Sub(s.lastContact) <= verdict.AgentTimeout {
		return nil
	}
	if may, err := s.canWrite(ctx); err != nil || !may {
		return err
	}
	if s.node == nil {
		if s.node, err = s.o.API.Node(ctx, s.o.Node); err != nil {
			s.node = nil
			return err
		}
	}
	due := verdict.NodeConditions(now, s.state, s.lastContact, s.node.Status.Conditions,
		verdict.NodeOptions{Period: s.o.Period})
	if due == nil {
		return nil
	}
	is, err := s.o.API.PatchNodeStatus(ctx, s.o.Node,
		patchBody("status", map[string]any{"conditions": due}))
	if err != nil {
		s.node = nil // it may be another by now
		return err
	}
	s.logChanged(due)
	s.node = is
	return nil
}

// logChanged logs conditions that have changed.
func (s *Reporter) logChanged(now []v1.NodeCondition) {
	for _, c := range now {
		for _, was := range s.node.Status.Conditions {
			if was.Type == c.Type && was.Status != c.Status {
				s.o.Log.Info("the node's condition is told", "condition", string(c.Type),
					"status", string(c.Status), "reason", c.Reason)
			}
		}
	}
}

// tellLoad writes the node's load.
func (s *Reporter) writeLoad(ctx context.Context, now time.Time) error {
	// a load that is old is told by its time
	if s.o.Namespace == "" || s.state == nil || now.Sub(s.lastContact) > verdict.AgentTimeout {
		return nil
	}
	load, ok := verdict.LoadOf(s.state)
	if !ok || !verdict.LoadDue(now, &load, s.lastLoad, s.loadWrittenAt) {
		return nil
	}
	if may, err := s.canWrite(ctx); err != nil || !may {
		return err
	}
	if err := s.patchLease(ctx, map[string]string{api.LoadAnnotation: load.Annotation()}); err != nil {
		return err
	}
	s.lastLoad, s.loadWrittenAt = &load, now
	return nil
}

// writeLoad writes the Lease's annotations, and its owner, so that it goes with its node, also
// where it was made before that was known. Where only who may delete an object may give it an owner
// (plugin/pkg/admission/gc/gc_admission.go, v1.36.3, as some clusters have it), a bridge may not,
// and the Lease has one from the start, or none.
func (s *Reporter) patchLease(ctx context.Context, annotations map[string]string) error {
	var owners []metav1.OwnerReference
	if s.node != nil {
		owners = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: s.node.Name,
			UID: s.node.UID}}
	}
	meta := map[string]any{"annotations": annotations}
	if owners != nil {
		meta["ownerReferences"] = owners
	}
	err := s.o.API.PatchLease(ctx, s.o.Namespace, s.o.Node, patchBody("metadata", meta))
	if kube.Classify(err) == kube.Denied && meta["ownerReferences"] != nil {
		delete(meta, "ownerReferences")
		err = s.o.API.PatchLease(ctx, s.o.Namespace, s.o.Node, patchBody("metadata", meta))
	}
	if kube.Classify(err) == kube.NotFound {
		err = s.o.API.CreateLease(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: s.o.Namespace, Name: s.o.Node, Annotations: annotations, OwnerReferences: owners,
		}})
	}
	return err
}

// events sends what the state and the agent's events tell.
func (s *Reporter) events(ctx context.Context, now time.Time) error {
	all := s.pendingEvents
	if s.state != nil && now.Sub(s.lastContact) <= verdict.AgentTimeout {
		all = append(verdict.Findings(s.state, s.o.Node), all...)
	}
	var refused error
	for _, e := range all {
		key := e.Namespace + "/" + e.Name
		if _, sent := s.sent[key]; sent {
			continue
		}
		switch err := s.o.API.CreateEvent(ctx, e); kube.Classify(err) {
		case kube.None, kube.NotFound: // its namespace goes
			s.sent[key] = now
		case kube.Unreachable:
			return err
		default: // which may be of this one alone
			refused = err
		}
	}
	s.pendingEvents = slices.DeleteFunc(s.pendingEvents, func(e *v1.Event) bool {
		_, sent := s.sent[e.Namespace+"/"+e.Name]
		return sent || now.Sub(e.LastTimestamp.Time) > verdict.EventMaxAge
	})
	for key, at := range s.sent { // of their names the next ones differ
		if now.Sub(at) > 2*verdict.FindingInterval {
			delete(s.sent, key)
		}
	}
	return refused
}

// body is a patch of one part of an object.
func patchBody(part string, value any) []byte {
	text, _ := json.Marshal(map[string]any{part: value}) // of strings, times and lists alone
	return text
}

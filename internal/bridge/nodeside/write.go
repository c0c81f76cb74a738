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

// part is one kind of data that is written.
type part struct {
	name          string
	write         func(context.Context, time.Time) error
	retryAt       time.Time // not before
	delay         time.Duration
	unreachable   bool // the server was unreachable: later parts wait until retryAt
	failureLogged bool
}

// newParts returns the parts in the order in which they are written.
func (s *Reporter) newParts() []part {
	return []part{{name: "conditions", write: s.writeConditions}, {name: "load", write: s.writeLoad},
		{name: "events", write: s.sendEvents}}
}

// writeDue writes the parts that are due. A failed part is retried with backoff. If the server is
// unreachable, the remaining parts are delayed too.
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
				//log: Writing this part of the node's state (conditions, load or events) succeeds
				//  again.
				s.o.Log.Info("node state written again", "what", p.name)
			}
			p.retryAt, p.delay, p.failureLogged = time.Time{}, 0, false
			continue
		}
		if !p.failureLogged {
			p.failureLogged = true
			//log: Writing this part of the node's state (conditions, load or events) failed and is
			//  retried with backoff.
			//do: See error. Check the API server, and the role of the bridge for nodes/status,
			//  leases and events.
			s.o.Log.Warn("node state write failed, retrying", "what", p.name,
				"error", err)
		}
		retryAfter, _ := kube.RetryAfter(err)
		p.delay = retry.Backoff(p.delay, minBackoff, maxBackoff)
		if p.retryAt = now.Add(max(retry.Jitter(p.delay), retryAfter)); p.unreachable {
			return
		}
	}
}

// canWrite reports whether the API server can restrict a bridge to its node. If not, only events
// are sent. It asks the server once.
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

// writeConditions writes the node's conditions.
func (s *Reporter) writeConditions(ctx context.Context, now time.Time) (err error) {
	if s.state != nil && !s.state.Kubelet || s.state == nil && now.Sub(s.lastContact) <= verdict.AgentTimeout {
		return nil
	}
	if allowed, err := s.canWrite(ctx); err != nil || !allowed {
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
	node, err := s.o.API.PatchNodeStatus(ctx, s.o.Node,
		patchBody("status", map[string]any{"conditions": due}))
	if err != nil {
		s.node = nil // read the node again: it may have changed
		return err
	}
	s.logChanged(due)
	s.node = node
	return nil
}

// logChanged logs the conditions with a changed status.
func (s *Reporter) logChanged(written []v1.NodeCondition) {
	for _, c := range written {
		for _, previous := range s.node.Status.Conditions {
			if previous.Type == c.Type && previous.Status != c.Status {
				//log: The bridge changed the status of a condition of the node.
				s.o.Log.Info("node condition changed", "condition", string(c.Type),
					"status", string(c.Status), "reason", c.Reason)
			}
		}
	}
}

// writeLoad writes the node's load if it is due.
func (s *Reporter) writeLoad(ctx context.Context, now time.Time) error {
	// an old load is not repeated: its time shows its age
	if s.o.Namespace == "" || s.state == nil || now.Sub(s.lastContact) > verdict.AgentTimeout {
		return nil
	}
	load, ok := verdict.LoadOf(s.state)
	if !ok || !verdict.LoadDue(now, &load, s.lastLoad, s.loadWrittenAt) {
		return nil
	}
	if allowed, err := s.canWrite(ctx); err != nil || !allowed {
		return err
	}
	if err := s.patchLease(ctx, map[string]string{api.LoadAnnotation: load.Annotation()}); err != nil {
		return err
	}
	s.lastLoad, s.loadWrittenAt = &load, now
	return nil
}

// patchLease writes the Lease's annotations and its owner, so that it is deleted with its node. It
// adds the owner also to an existing Lease without an owner. Some clusters allow an owner only to
// clients that may delete the object (plugin/pkg/admission/gc/gc_admission.go, v1.36.3). A bridge
// may not: on such clusters the Lease gets its owner at creation or never.
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

// sendEvents sends the findings in the state and in the agent's events.
func (s *Reporter) sendEvents(ctx context.Context, now time.Time) error {
	all := s.pendingEvents
	if s.state != nil && now.Sub(s.lastContact) <= verdict.AgentTimeout {
		all = append(verdict.Findings(s.state, s.o.Node), all...)
	}
	var rejected error
	for _, e := range all {
		key := e.Namespace + "/" + e.Name
		if _, sent := s.sent[key]; sent {
			continue
		}
		switch err := s.o.API.CreateEvent(kube.WithWebhookTimeout(ctx), e); kube.Classify(err) {
		case kube.None, kube.NotFound: // not found: its namespace is being deleted
			s.sent[key] = now
		case kube.Unreachable:
			return err
		default: // may concern this event only
			rejected = err
		}
	}
	s.pendingEvents = slices.DeleteFunc(s.pendingEvents, func(e *v1.Event) bool {
		_, sent := s.sent[e.Namespace+"/"+e.Name]
		return sent || now.Sub(e.LastTimestamp.Time) > verdict.EventMaxAge
	})
	for key, at := range s.sent { // later findings have other names
		if now.Sub(at) > 2*verdict.FindingInterval {
			delete(s.sent, key)
		}
	}
	return rejected
}

// patchBody returns the patch of one part of an object.
func patchBody(part string, value any) []byte {
	text, _ := json.Marshal(map[string]any{part: value}) // cannot fail
	return text
}

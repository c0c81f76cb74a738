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
	what  string
	tell  func(context.Context, time.Time) error
	away  time.Time // it is not told before then
	pause time.Duration
	down  bool // nobody answered it, so nobody is asked before then
	said  bool // that it fails
}

// parts are those that there are, in their order.
func (s *Side) parts() []part {
	return []part{{what: "conditions", tell: s.conditions}, {what: "load", tell: s.tellLoad},
		{what: "events", tell: s.events}}
}

// tell writes what is due. What fails is told again after a pause that doubles, and holds up the
// rest if nobody answers.
func (s *Side) tell(ctx context.Context) {
	now := time.Now()
	for i := range s.told {
		p := &s.told[i]
		switch {
		case now.Before(p.away) && p.down:
			return
		case now.Before(p.away):
			continue
		}
		err := p.tell(ctx, now)
		if ctx.Err() != nil {
			return
		}
		if p.down = kube.Means(err) == kube.Away; err == nil {
			if p.said {
				s.o.Log.Info("the API is told how the node is again", "what", p.what)
			}
			p.away, p.pause, p.said = time.Time{}, 0, false
			continue
		}
		if !p.said {
			p.said = true
			s.o.Log.Warn("the API is not told how the node is: it is told again", "what", p.what,
				"error", err)
		}
		asked, _ := kube.AskAgain(err)
		p.pause = retry.Backoff(p.pause, firstPause, lastPause)
		if p.away = now.Add(max(retry.Jitter(p.pause), asked)); p.down {
			return
		}
	}
}

// mayWrite tells whether the server's policies can hold a bridge to its node, else nothing is
// written of it but events. It is asked once.
func (s *Side) mayWrite(ctx context.Context) (bool, error) {
	if s.bound == nil {
		bound, err := s.o.Bound(ctx)
		if err != nil {
			return false, err
		}
		s.bound = &bound
	}
	return *s.bound, nil
}

// conditions writes those of the node.
func (s *Side) conditions(ctx context.Context, now time.Time) (err error) {
	if s.state != nil && !s.state.Kubelet || s.state == nil && now.Sub(s.heard) <= verdict.SilentFor {
		return nil
	}
	if may, err := s.mayWrite(ctx); err != nil || !may {
		return err
	}
	if s.node == nil {
		if s.node, err = s.o.API.Node(ctx, s.o.Node); err != nil {
			s.node = nil
			return err
		}
	}
	due := verdict.NodeConditions(now, s.state, s.heard, s.node.Status.Conditions,
		verdict.NodeOptions{Period: s.o.Period})
	if due == nil {
		return nil
	}
	is, err := s.o.API.PatchNodeStatus(ctx, s.o.Node,
		body("status", map[string]any{"conditions": due}))
	if err != nil {
		s.node = nil // it may be another by now
		return err
	}
	s.logChanged(due)
	s.node = is
	return nil
}

// logChanged logs conditions that have changed.
func (s *Side) logChanged(now []v1.NodeCondition) {
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
func (s *Side) tellLoad(ctx context.Context, now time.Time) error {
	// a load that is old is told by its time
	if s.o.Namespace == "" || s.state == nil || now.Sub(s.heard) > verdict.SilentFor {
		return nil
	}
	load, ok := verdict.LoadOf(s.state)
	if !ok || !verdict.LoadDue(now, &load, s.load, s.wrote) {
		return nil
	}
	if may, err := s.mayWrite(ctx); err != nil || !may {
		return err
	}
	if err := s.writeLoad(ctx, map[string]string{api.LoadAnnotation: load.Annotation()}); err != nil {
		return err
	}
	s.load, s.wrote = &load, now
	return nil
}

// writeLoad writes the Lease's annotations, and its owner, so that it goes with its node, also
// where it was made before that was known. Where only who may delete an object may give it an owner
// (plugin/pkg/admission/gc/gc_admission.go, v1.36.3, as some clusters have it), a bridge may not,
// and the Lease has one from the start, or none.
func (s *Side) writeLoad(ctx context.Context, annotations map[string]string) error {
	var owners []metav1.OwnerReference
	if s.node != nil {
		owners = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: s.node.Name,
			UID: s.node.UID}}
	}
	meta := map[string]any{"annotations": annotations}
	if owners != nil {
		meta["ownerReferences"] = owners
	}
	err := s.o.API.PatchLease(ctx, s.o.Namespace, s.o.Node, body("metadata", meta))
	if kube.Means(err) == kube.Refused && meta["ownerReferences"] != nil {
		delete(meta, "ownerReferences")
		err = s.o.API.PatchLease(ctx, s.o.Namespace, s.o.Node, body("metadata", meta))
	}
	if kube.Means(err) == kube.NotFound {
		err = s.o.API.CreateLease(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: s.o.Namespace, Name: s.o.Node, Annotations: annotations, OwnerReferences: owners,
		}})
	}
	return err
}

// events sends what the state and the agent's events tell.
func (s *Side) events(ctx context.Context, now time.Time) error {
	all := s.queue
	if s.state != nil && now.Sub(s.heard) <= verdict.SilentFor {
		all = append(verdict.Findings(s.state, s.o.Node), all...)
	}
	var refused error
	for _, e := range all {
		key := e.Namespace + "/" + e.Name
		if _, sent := s.sent[key]; sent {
			continue
		}
		switch err := s.o.API.CreateEvent(ctx, e); kube.Means(err) {
		case kube.None, kube.NotFound: // its namespace goes
			s.sent[key] = now
		case kube.Away:
			return err
		default: // which may be of this one alone
			refused = err
		}
	}
	s.queue = slices.DeleteFunc(s.queue, func(e *v1.Event) bool {
		_, sent := s.sent[e.Namespace+"/"+e.Name]
		return sent || now.Sub(e.LastTimestamp.Time) > verdict.EventsFor
	})
	for key, at := range s.sent { // of their names the next ones differ
		if now.Sub(at) > 2*verdict.FindingsEvery {
			delete(s.sent, key)
		}
	}
	return refused
}

// body is a patch of one part of an object.
func body(part string, value any) []byte {
	text, _ := json.Marshal(map[string]any{part: value}) // of strings, times and lists alone
	return text
}

package nodes

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/lifecycle"
	"jettison/cluster/taint"
	"jettison/internal/cluster/writes"
)

// logNodeResult logs and counts the result of a write to a node.
func (l *loop) logNodeResult(j *nodeJob, out writes.NodeResult) {
	name, log, m := j.node.Name, l.ctrl.deps.Log, l.ctrl.metrics
	if j.status != nil {
		if m.countWrite("status", out.Status); out.Status == nil {
			//log: The conditions of a silent node became Unknown.
			log.Info("node conditions written", "node", name, "conditions", conditionTexts(j.status))
		} else {
			l.logFailure("node conditions", name, out.Status)
		}
	}
	if j.labels != nil {
		if m.countWrite("labels", out.Labels); out.Labels == nil {
			//log: Labels that copy the values of other labels were set.
			log.Info("node labels written", "node", name, "set", fmt.Sprint(j.labels.Set))
		} else {
			l.logFailure("node labels", name, out.Labels)
		}
	}
	if j.taints == nil && j.stamp == nil && j.fence == 0 {
		return
	}
	if m.countWrite("taints", out.Taints); out.Taints != nil {
		l.logFailure("node taints", name, out.Taints)
		return
	}
	switch {
	case j.taints != nil:
		//log: Taints were added to the node or removed from it.
		log.Info("node taints written", "node", name, "add", taintTexts(j.taints.Add),
			"remove", taintTexts(j.taints.Remove))
		if j.taints.Evicted {
			m.countTaint(lifecycle.ZoneOf(j.node), l.clock.now().Sub(j.taints.NotReadySince))
		}
	case j.fence > 0:
		//log: A check confirmed the silent node dead. Its pods can be force deleted and its
		//  volumes detached.
		//do: Repair or delete the node. Keep it powered off while it has the taint.
		log.Warn("node out of service", "node", name)
	case j.fence < 0:
		//log: The node is ready again and its out-of-service taint was removed.
		log.Info("node back in service", "node", name)
	default:
		//log: Taints without a time got timeAdded. Toleration periods count from it.
		log.Info("node taints stamped", "node", name, "taints", taintTexts(j.stamp.Taints))
	}
}

// logEviction logs and counts the result of an eviction.
func (l *loop) logEviction(e *taint.Eviction, err error) {
	l.ctrl.metrics.countWrite("evict", err)
	name := e.Namespace + "/" + e.Name
	switch {
	case writes.IsBudgetError(err):
		//log: The eviction is retried. When --pdb-timeout has passed after the pod's deadline, the
		//  pod is deleted.
		l.ctrl.deps.Log.Info("eviction blocked by disruption budget", "pod", name, "node", e.Node,
			"error", err)
		return
	case err != nil:
		l.logFailure("pod deletion", name, err)
		return
	}
	now := l.clock.now()
	l.ctrl.metrics.countEviction(now.Sub(e.Deadline), now.Sub(e.Taint.TimeAdded.Time))
	//log: The pod did not tolerate the taint, or its toleration period ended at deadline.
	l.ctrl.deps.Log.Info("pod deleted", "pod", name, "uid", string(e.UID), "node", e.Node,
		"taint", taintText(&e.Taint),
		"since", e.Taint.TimeAdded.UTC().Format(time.RFC3339), "deadline",
		e.Ended.UTC().Format(time.RFC3339))
}

func (l *loop) logMark(m *lifecycle.Mark, err error) {
	if l.ctrl.metrics.countWrite("mark", err); err != nil {
		l.logFailure("pod condition Ready", m.Namespace+"/"+m.Name, err)
		return
	}
	//log: The pod's condition Ready became False, because its node is not ready.
	l.ctrl.deps.Log.Debug("pod marked not ready", "pod", m.Namespace+"/"+m.Name,
		"node", m.Node)
}

// logFailure logs a failed write, unless it was not sent.
func (l *loop) logFailure(kind, name string, err error) {
	if !notSent(err) {
		//log: The API server did not accept a write. It is retried with backoff while it is
		//  needed.
		//do: If it repeats, check error: missing permissions and admission webhooks are common
		//  causes.
		l.ctrl.deps.Log.Warn("write failed, retrying", "what", kind, "object", name, "error", err)
	}
}

// logPlanned logs each write that mode observe suppresses, once while it stays planned.
func (l *loop) logPlanned(now time.Time, actions *lifecycle.Actions, evictions *taint.Actions) {
	logged := map[string]string{}
	report := func(key, kind string, args ...any) {
		content := fmt.Sprint(args...)
		if logged[key] = content; l.state.logged[key] != content {
			l.ctrl.metrics.plannedWrites.WithLabelValues(kind).Inc()
			//log: Mode observe: the write of this kind that another mode would make.
			l.ctrl.deps.Log.Info("would write", append([]any{"what", kind}, args...)...)
		}
	}
	for i := range actions.Status {
		s := &actions.Status[i]
		l.nodes.End(now, s.Node, s.UID, lifecycle.WriteStatus, true)
		report("status "+s.Node, "status", "node", s.Node, "conditions", conditionTexts(s))
	}
	for i := range actions.Labels {
		s := &actions.Labels[i]
		l.nodes.End(now, s.Node, s.UID, lifecycle.WriteLabels, true)
		report("labels "+s.Node, "labels", "node", s.Node, "set", fmt.Sprint(s.Set))
	}
	for i := range actions.Taints {
		s := &actions.Taints[i]
		l.nodes.End(now, s.Node, s.UID, lifecycle.WriteTaints, true)
		report("taints "+s.Node, "taints", "node", s.Node, "add", taintTexts(s.Add), "remove", taintTexts(s.Remove))
	}
	for i := range evictions.Stamps {
		s := &evictions.Stamps[i]
		l.pods.EndStamp(now, s.UID, true)
		report("stamp "+s.Node, "stamp", "node", s.Node, "taints", taintTexts(s.Taints))
	}
	for i := range evictions.Evict {
		e := &evictions.Evict[i]
		l.pods.End(now, e.UID, true)
		report("evict "+string(e.UID), "evict", "pod", e.Namespace+"/"+e.Name, "node", e.Node, "taint",
			taintText(&e.Taint))
	}
	for _, m := range actions.Marks {
		l.nodes.EndMark(now, m, true)
	}
	if doubt := l.state.logged["doubt"]; doubt != "" {
		logged["doubt"] = doubt
	}
	l.state.logged = logged
}

func conditionTexts(s *lifecycle.Status) string {
	var out []string
	for _, c := range s.Conditions {
		out = append(out, string(c.Type)+"="+string(c.Status))
	}
	return strings.Join(out, " ")
}

// taintText formats a taint as KEY[=VALUE]:EFFECT.
func taintText(t *v1.Taint) string {
	if t.Value != "" {
		return t.Key + "=" + t.Value + ":" + string(t.Effect)
	}
	return t.Key + ":" + string(t.Effect)
}

func taintTexts(all []v1.Taint) string {
	var out []string
	for i := range all {
		out = append(out, taintText(&all[i]))
	}
	return strings.Join(out, " ")
}

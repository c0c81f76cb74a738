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

// told logs and counts what came of a write to a node.
func (l *loop) told(j *nodeJob, out writes.Written) {
	name, log, m := j.was.Name, l.part.o.Log, l.part.metrics
	if j.status != nil {
		if m.wrote("status", out.Status); out.Status == nil {
			log.Info("conditions of a node were written", "node", name, "conditions", conditionsOf(j.status))
		} else {
			l.failed("conditions of a node", name, out.Status)
		}
	}
	if j.labels != nil {
		if m.wrote("labels", out.Labels); out.Labels == nil {
			log.Info("labels of a node were written", "node", name, "set", fmt.Sprint(j.labels.Set))
		} else {
			l.failed("labels of a node", name, out.Labels)
		}
	}
	if j.taints == nil && j.stamp == nil && j.fence == 0 {
		return
	}
	if m.wrote("taints", out.Taints); out.Taints != nil {
		l.failed("taints of a node", name, out.Taints)
		return
	}
	switch {
	case j.taints != nil:
		log.Info("taints of a node were written", "node", name, "add", texts(j.taints.Add),
			"remove", texts(j.taints.Remove))
		if j.taints.Evicted {
			m.tainted(lifecycle.ZoneOf(j.was), l.clock.now().Sub(j.taints.NotReadySince))
		}
	case j.fence > 0:
		log.Warn("a dead node is out of service", "node", name)
	case j.fence < 0:
		log.Info("a node is in service again", "node", name)
	default:
		log.Info("taints of a node were stamped", "node", name, "taints", texts(j.stamp.Taints))
	}
}

// evicted logs and counts what came of an eviction.
func (l *loop) evicted(e *taint.Eviction, err error) {
	l.part.metrics.wrote("evict", err)
	name := e.Namespace + "/" + e.Name
	switch {
	case writes.Budgeted(err):
		l.part.o.Log.Info("a disruption budget keeps a pod for now", "pod", name, "node", e.Node,
			"error", err)
		return
	case err != nil:
		l.failed("the deletion of a pod", name, err)
		return
	}
	now := l.clock.now()
	l.part.metrics.evicted(now.Sub(e.Deadline), now.Sub(e.Taint.TimeAdded.Time))
	l.part.o.Log.Info("a pod was deleted", "pod", name, "uid", string(e.UID), "node", e.Node,
		"taint", text(&e.Taint),
		"since", e.Taint.TimeAdded.UTC().Format(time.RFC3339), "deadline",
		e.Deadline.UTC().Format(time.RFC3339))
}

func (l *loop) marked(m *lifecycle.Mark, err error) {
	if l.part.metrics.wrote("mark", err); err != nil {
		l.failed("the condition Ready of a pod", m.Namespace+"/"+m.Name, err)
		return
	}
	l.part.o.Log.Debug("a pod is not ready, as its node", "pod", m.Namespace+"/"+m.Name,
		"node", m.Node)
}

// failed logs a write that is tried again.
func (l *loop) failed(what, name string, err error) {
	if !notSent(err) {
		l.part.o.Log.Warn("a write failed and is tried again", "what", what, "object", name, "error", err)
	}
}

// observe says what would be written, once as long as it would be.
func (l *loop) observe(now time.Time, done *lifecycle.Actions, gone *taint.Actions) {
	said := map[string]string{}
	say := func(key, what string, args ...any) {
		content := fmt.Sprint(args...)
		if said[key] = content; l.watch.said[key] != content {
			l.part.metrics.would.WithLabelValues(what).Inc()
			l.part.o.Log.Info("would write", append([]any{"what", what}, args...)...)
		}
	}
	for i := range done.Status {
		s := &done.Status[i]
		l.nodes.End(now, s.Node, s.UID, lifecycle.WriteStatus, true)
		say("status "+s.Node, "status", "node", s.Node, "conditions", conditionsOf(s))
	}
	for i := range done.Labels {
		s := &done.Labels[i]
		l.nodes.End(now, s.Node, s.UID, lifecycle.WriteLabels, true)
		say("labels "+s.Node, "labels", "node", s.Node, "set", fmt.Sprint(s.Set))
	}
	for i := range done.Taints {
		s := &done.Taints[i]
		l.nodes.End(now, s.Node, s.UID, lifecycle.WriteTaints, true)
		say("taints "+s.Node, "taints", "node", s.Node, "add", texts(s.Add), "remove", texts(s.Remove))
	}
	for i := range gone.Stamps {
		s := &gone.Stamps[i]
		l.pods.EndStamp(now, s.UID, true)
		say("stamp "+s.Node, "stamp", "node", s.Node, "taints", texts(s.Taints))
	}
	for i := range gone.Evict {
		e := &gone.Evict[i]
		l.pods.End(now, e.UID, true)
		say("evict "+string(e.UID), "evict", "pod", e.Namespace+"/"+e.Name, "node", e.Node, "taint",
			text(&e.Taint))
	}
	for _, m := range done.Marks {
		l.nodes.EndMark(now, m, true)
	}
	if doubt := l.watch.said["doubt"]; doubt != "" {
		said["doubt"] = doubt
	}
	l.watch.said = said
}

func conditionsOf(s *lifecycle.Status) string {
	var out []string
	for _, c := range s.Conditions {
		out = append(out, string(c.Type)+"="+string(c.Status))
	}
	return strings.Join(out, " ")
}

// text is a taint as KEY:EFFECT, texts several.
func text(t *v1.Taint) string {
	if t.Value != "" {
		return t.Key + "=" + t.Value + ":" + string(t.Effect)
	}
	return t.Key + ":" + string(t.Effect)
}

func texts(all []v1.Taint) string {
	var out []string
	for i := range all {
		out = append(out, text(&all[i]))
	}
	return strings.Join(out, " ")
}

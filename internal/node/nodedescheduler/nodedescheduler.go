// Package nodedescheduler finds pods that should not be on this node any more, now and then while
// the agent runs. What is decided is in reclaim/nodedeschedule; pods are stopped by
// internal/agent/evictions.
//
//	nodedescheduler.go Part: the loop's, which plans in passes
//	seen.go           what the runtime, objects and a look tell of pods, for a plan
package nodedescheduler

import (
	"time"

	"jettison/eviction"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/config"
	"jettison/reclaim/nodedeschedule"
	"jettison/stats"
)

// A pod that went and came back does not go again for so long, or it would for ever. So many are
// remembered.
const (
	remember = 24 * time.Hour
	mostGone = 1000
)

// Part is the loop's.
type Part struct {
	log  *logthrottle.Logger
	last time.Time            // the last pass, or when the agent began
	gone map[string]time.Time // when pods went, by UID
}

// NewPart makes one whose first pass is due a period from now.
func NewPart(now time.Time, log *logthrottle.Logger) *Part {
	return &Part{log: log, last: now, gone: map[string]time.Time{}}
}

// Due reports whether a pass is.
func (p *Part) Due(now time.Time, c *config.Config) bool {
	return c.Deschedule != config.Off && now.Sub(p.last) >= time.Duration(c.Descheduling.Period)
}

// Plan makes a pass: it says who should go. acts: they will, and are remembered.
func (p *Part) Plan(now time.Time, c *config.Config, seen *Seen, acts bool) []eviction.Eviction {
	p.last = now
	seen.Before = p.before(now)
	policy, look := c.Descheduling.Policy(), seen.Look()
	plan := policy.Plan(&look, now)
	if plan.Stopped != "" {
		p.log.Repeat("descheduling stops: "+plan.Stopped, func() {
			p.log.Warn("descheduling does not know enough", "strategy", nodedeschedule.Shed,
				"reason", plan.Stopped)
		})
	}
	var out []eviction.Eviction
	for _, e := range plan.Evictions {
		fields := []any{"victim", e.Pod.Namespace + "/" + e.Pod.Name, "uid", e.Pod.UID, "strategy",
			e.Strategy, "reason", e.Reason}
		if !acts {
			p.log.Info("would deschedule", fields...)
			continue
		}
		p.log.Info("descheduling", fields...)
		stats, object := seen.of(e.Pod.UID)
		out = append(out, eviction.Descheduled(&stats, object, e.Strategy+": "+e.Reason))
	}
	return out
}

// Went remembers a pod that is being stopped, or notes why it is not.
func (p *Part) Went(now time.Time, pod stats.PodReference, err error) {
	if err != nil {
		p.log.Warn("a pod that should go cannot be stopped", "victim", pod.Namespace+"/"+pod.Name,
			"uid", pod.UID, "error", err)
		return
	}
	p.gone[pod.UID] = now
}

// before are the pods that went lately.
func (p *Part) before(now time.Time) map[string]bool {
	if len(p.gone) > mostGone {
		clear(p.gone)
	}
	out := make(map[string]bool, len(p.gone))
	for uid, at := range p.gone {
		if now.Sub(at) >= remember {
			delete(p.gone, uid)
		} else {
			out[uid] = true
		}
	}
	return out
}

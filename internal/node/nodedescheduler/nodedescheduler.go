// Package nodedescheduler runs descheduling passes in the agent. It prepares the input of a plan and
// remembers recent evictions. The strategies are in reclaim/nodedeschedule; internal/agent/evictions
// evicts the pods.
//
//	nodedescheduler.go Descheduler: passes, and memory of recent evictions
//	input.go           Input: input of a plan, from the runtime, pod objects and a look
package nodedescheduler

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"jettison/eviction"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/config"
	"jettison/internal/node/records"
	"jettison/reclaim/nodedeschedule"
	"jettison/stats"
)

// A pod that was evicted and came back is not evicted again for rememberFor, to avoid an eviction
// loop. At most maxRemembered pods are remembered.
const (
	rememberFor   = 24 * time.Hour
	maxRemembered = 1000
)

// Descheduler is the descheduler of the agent's loop. It is not safe for concurrent use.
type Descheduler struct {
	log       *logthrottle.Logger
	lastPass  time.Time            // time of the last pass, or the start of the agent
	evictedAt map[string]time.Time // time of the last eviction, by pod UID
}

// New returns a Descheduler with its first pass due one period after now.
func New(now time.Time, log *logthrottle.Logger) *Descheduler {
	return &Descheduler{log: log, lastPass: now, evictedAt: map[string]time.Time{}}
}

// Due reports whether a pass is due.
func (p *Descheduler) Due(now time.Time, c *config.Config) bool {
	return c.Deschedule != config.Off && now.Sub(p.lastPass) >= time.Duration(c.Descheduling.Period)
}

// Plan runs a pass and returns the evictions. Without act it only logs them and returns none.
func (p *Descheduler) Plan(now time.Time, c *config.Config, seen *Input, act bool) []eviction.Eviction {
	p.lastPass = now
	seen.RecentlyEvicted = p.recentlyEvicted(now)
	policy, look := c.Descheduling.Policy(), seen.Look()
	plan := policy.Plan(&look, now)
	if plan.Stopped != "" {
		//log: A descheduling strategy lacks the data named in reason, so it evicts nothing in this pass.
		//do: Fix the source of the missing data: memory usage of the node or its pods.
		p.log.Repeat("descheduling strategy skipped: "+plan.Stopped, func() {
			p.log.Warn("descheduling strategy skipped, data missing", "strategy", nodedeschedule.Shed,
				"reason", plan.Stopped)
		})
	}
	var out []eviction.Eviction
	for _, e := range plan.Evictions {
		fields := []any{"victim", e.Pod.Namespace + "/" + e.Pod.Name, "uid", e.Pod.UID, "strategy",
			e.Strategy, "reason", e.Reason}
		if !act {
			//log: A strategy selected the pod. The agent only reports it: in report mode, in a dry run, or
			//  with a kubelet on the node.
			p.log.Info("pod would be descheduled", fields...)
			continue
		}
		//log: A strategy selected the pod and the agent evicts it.
		p.log.Info("descheduling pod", fields...)
		stats, object := seen.podStats(e.Pod.UID)
		out = append(out, eviction.Descheduled(&stats, object, e.Strategy+": "+e.Reason))
	}
	return out
}

// RecordEviction records the outcome of starting an eviction: nil remembers the pod, an error is logged.
func (p *Descheduler) RecordEviction(now time.Time, pod stats.PodReference, err error) {
	if err != nil {
		//log: The agent could not start the eviction of a pod that a strategy selected. A later pass
		//  tries again.
		//do: Fix the cause in error.
		p.log.Warn("pod descheduling failed", "victim", pod.Namespace+"/"+pod.Name,
			"uid", pod.UID, "error", err)
		return
	}
	p.evictedAt[pod.UID] = now
	p.forgetOldest()
}

// Save returns the remembered pods for the next process, sorted by UID.
func (p *Descheduler) Save() (out []records.Descheduled) {
	for _, uid := range slices.Sorted(maps.Keys(p.evictedAt)) {
		out = append(out, records.Descheduled{UID: uid, At: p.evictedAt[uid]})
	}
	return out
}

// Resume remembers the pods that the previous process evicted.
func (p *Descheduler) Resume(pods []records.Descheduled) {
	for _, d := range pods {
		p.evictedAt[d.UID] = d.At
	}
}

// forgetOldest forgets the pods over maxRemembered.
func (p *Descheduler) forgetOldest() {
	over := len(p.evictedAt) - maxRemembered
	if over <= 0 {
		return
	}
	all := slices.SortedFunc(maps.Keys(p.evictedAt), func(a, b string) int {
		return cmp.Or(p.evictedAt[a].Compare(p.evictedAt[b]), strings.Compare(a, b))
	})
	for _, uid := range all[:over] {
		delete(p.evictedAt, uid)
	}
}

// recentlyEvicted returns the UIDs of remembered pods and removes expired ones.
func (p *Descheduler) recentlyEvicted(now time.Time) map[string]bool {
	out := make(map[string]bool, len(p.evictedAt))
	for uid, at := range p.evictedAt {
		if now.Sub(at) >= rememberFor {
			delete(p.evictedAt, uid)
		} else {
			out[uid] = true
		}
	}
	return out
}

// Package eviction decides which pod must go, and why. It is pure: Manager.Step takes the time, a stats.Summary and what is known of
// pods, and returns a Decision; what becomes of the decision is reported back with Begin, Done and Cleaned. It reads nothing,
// waits for nothing and has no clock.
//
//	d := m.Step(now, in)                    conditions, what is met, what to reclaim first, who is to be evicted
//	if len(d.Reclaim) > 0 { ...; d2 := m.Reclaimed(now, after) }    the second half, on a look taken after the reclaim
//	for e of d.Evictions and d2.Evictions:  m.Begin(e, available); ...; m.Done(now, uid, died); m.Cleaned(now, uid)
//
//	signal.go     the signals, and when one is observed
//	threshold.go  Threshold; parse.go, doubt.go: the kubelet's grammar, its error texts, and what it takes and should not
//	condition.go  Condition: its words
//	pod.go        Pod: what is taken of an object; request.go: its requests, limits and class
//	candidate.go  Candidate: who may be evicted at all, and the keys it is compared by
//	usage.go      what a pod uses of what is short; cause.go: who causes a pressure
//	rank.go       the order among candidates
//	local.go      pods over limits of their own
//	manager.go    Manager: its state; step.go: one step of it
//	pending.go    evictions under way, pods that will not die, the breaker
//	resume.go     what outlives a restart
//	decision.go   Decision: a value that explains itself; message.go: the kubelet's messages
package eviction

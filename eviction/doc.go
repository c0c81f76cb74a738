// Package eviction decides which pod must go, and why. It is pure: Manager.Step takes the time and a stats.Summary and
// returns a Decision; what becomes of the decision is reported back with Done. It reads nothing, waits for nothing and
// has no clock.
//
//	threshold.go  Threshold: the kubelet's grammar and error texts
//	manager.go    Manager: what is met, since when, who is next
//	candidate.go  Candidate: who may be evicted at all
//	rank.go       the order among candidates
//	decision.go   Decision: a value that explains itself
package eviction

// Package eviction decides which pod must go, and why, and follows each eviction to its end. It is
// pure: a Manager takes the time, a stats.Summary and what is known of pods, and returns values;
// what becomes of them is reported back. It reads nothing, waits for nothing and has no clock.
//
//	r := m.Observe(now, node, s) the cheap half: all that has to be done, in order; what follows is
//	  worth its price if r says so
//	d := m.Step(now, in) conditions, what is met, what to reclaim first, which pod is to be evicted
//	if len(d.Reclaim) > 0 { ...; d2 := m.Reclaimed(now, after) } the second half, on a look taken
//	   after the reclaim
//	for e of d.Evictions and d2.Evictions: l := m.Begin(at, e, d.Signal); m.Killed(at, l);
//	    m.Emptied(at, l); m.Cleaned(at, l)
//	r = m.Ready(now); ...; m.Advance()      what has become of them
//
//	signal.go     the signals; threshold.go: Threshold
//	parse.go      the kubelet's grammar and its error texts; settingsdoubt.go: what it takes and
//	              should not;
//	              quantity.go: quantities of any origin; reservation.go: what hard thresholds keep back of a node
//	pod.go        Pod: what is taken of an object; request.go: its requests, limits and class
//	candidate.go  Candidate: which pods may be evicted at all, and the keys they are compared by
//	usage.go      what a pod uses of what is short; level.go: amounts against those of a calm look
//	rank.go       the order among candidates; preempt.go: pods that go for a critical one
//
//	manager.go    Manager and Config: it has the parts below do their work in turn; input.go: Input
//	step.go       one step; candidates.go: who may go for a threshold, and who does;
//	              local.go: pods over limits of their own; terse.go: a step that allocates nothing
//	ready.go      Ready: what an observation asks of the caller, and when to look again
//	reports.go    what the caller reports of evictions; observed.go: what it may ask
//	resume.go     saving everything and taking it back
//	outlook.go    Outlook: whom each threshold would have evicted, were it met
//
// The parts. Each has its own state and knows neither the Manager nor another part: what it needs
// of one is an argument. All read the configuration.
//
//	watch.go        thresholds and what was observed of their signals; watchread.go: questions about
//	                them;
//	                together.go: what all pods used at one moment; need.go: Need: memory to be reclaimed first
//	filesystems.go  the layout of the file systems, and what a pod takes of each
//	condition.go    conditions of the node, and their words
//	looks.go        when pods were looked at, and whether a look is worth its price
//	evictions.go    the evictions under way; life.go: Life: an eviction's phases and limits;
//	                awaited.go: what it is expected to return, of every signal;
//	                shared.go: what it leaves in shared memory; diskwait.go: on disks;
//	                wait.go: which evictions others wait for;
//	                history.go: what became of pods that were killed
//	recovery.go     whether what was short is back after a kill, so that an eviction is over
//	breakers.go     which thresholds' evictions are stopped, for they do not help; circuitbreaker.go: one
//	                threshold's
//	cause.go        which pods cause a pressure
//	explain.go      whether what pods hold explains what a disk lost; quiet.go: what that is held
//	                against;
//	                unfinished.go: figures that are too small to tell;
//	                fresh.go: how long a victim for a disk waits for fresh figures
//	relief.go       garbage to be reclaimed before a pod goes for a disk
//
//	saved.go        what outlives a restart; lifesaved.go, awaitedsaved.go, sharedsaved.go,
//	                breakersaved.go,
//	                explainsaved.go: each part's share of it
//	decision.go     Decision: a value that explains itself; message.go: the kubelet's messages
//
// An eviction is over when what was short is back, not when a call returned. Meanwhile no other pod
// is evicted for the same shortage, for a runtime that tears a pod down takes memory first; nor for
// another shortage, as far as that pod explains it. Each signal is held against what was left of it
// at the kill, or its limit: if it fell by more than what is still to come, or by half where that
// is not known or takes long, the next one goes at once. For a disk the wait is longer: what a
// victim holds lies in files, which are removed after its end, and a runtime frees layers in its
// own time. One file system is spoken of by several signals, so a victim of one holds up all of
// them.
package eviction

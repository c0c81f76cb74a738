// Package eviction decides which pod to evict, and why, and follows each eviction to its outcome.
// It is pure: a Manager takes the time, a stats.Summary and the known pod objects, and returns
// values. The caller carries out the evictions and reports the results. The package does no I/O,
// blocks on nothing and has no clock.
//
//	r := m.Observe(now, node, s)      the cheap half: r lists the work in order, and whether the
//	                                  rest is worth its cost
//	d := m.Step(now, in)              conditions, thresholds met, what to reclaim first, the victim
//	if len(d.Reclaim) > 0 {
//		d2 := m.StepAfterReclaim(now, after) the second half, on a look made after the reclaim
//	}
//	for each e of d.Evictions and d2.Evictions {
//		l := m.Begin(at, e, d.Signal); m.Killed(at, l); m.Emptied(at, l); m.Cleaned(at, l)
//	}
//	r = m.Ready(now); m.Acknowledge()     the outcomes
//
// Input and ranking:
//
//	signal.go            the signals
//	threshold.go         Threshold
//	parse.go             the kubelet's grammar and its error texts
//	settingswarnings.go  warnings about wrong settings that the kubelet accepts
//	quantity.go          quantities from any origin
//	reservation.go       the reservation of hard thresholds on a node
//	pod.go               Pod: the parts of a pod object that the Manager uses
//	request.go           a pod's requests and limits
//	protection.go        Candidate: which pods are protected, and the keys of the ranking
//	usage.go             a pod's usage of the resource that is short
//	level.go             amounts compared with the last calm look
//	rank.go              the order among candidates
//	preempt.go           evictions for a critical pod and for the descheduler
//
// The Manager:
//
//	manager.go       Manager and Config: calls the parts below in order
//	input.go         Input
//	step.go          one step
//	candidates.go    the candidates for a threshold, and the choice of the victim
//	localstorage.go  pods over their own limits on local storage
//	terse.go         a step that allocates nothing
//	ready.go         Ready: the work that an observation requires, and the next look
//	reports.go       the caller's reports about evictions
//	observed.go      queries for the caller
//	resume.go        saving and restoring the state
//	outlook.go       Outlook: the victim that each threshold would choose
//
// The parts. Each has its own state and knows neither the Manager nor another part. Input arrives
// as arguments. All read the configuration.
//
//	watch.go           thresholds and the observations of their signals
//	watchread.go       queries on them
//	podtotals.go       the usage of all pods at one moment
//	need.go            Need: memory to reclaim before an eviction
//	filesystems.go     the layout of the file systems, and a pod's usage of each
//	condition.go       conditions of the node, with their reasons and events
//	looks.go           when looks were made, and whether a look is worth its cost
//	evictions.go       the evictions in progress
//	life.go            Life: the phases and limits of an eviction
//	awaited.go         the expected returns of an eviction, of every signal
//	sharedmemory.go    shared memory that a victim leaves
//	diskwait.go        files that a victim leaves
//	wait.go            which evictions a threshold waits for
//	history.go         pods that were evicted or set aside
//	recovery.go        the outcome of an eviction
//	breakerset.go      the circuit breakers of all thresholds
//	circuitbreaker.go  the circuit breaker of one threshold
//	cause.go           which pods cause a pressure
//	explain.go         whether the growth of pods explains a disk's loss
//	quietdisk.go       the state of a quiet disk, which later shortages are compared with
//	written.go         what pods have written since a disk was quiet
//	diskgrowth.go      the growth of pods since a disk was quiet
//	suspicion.go       which pod is evicted if pods do not explain a disk's loss, and when
//	fillrate.go        how fast a disk fills
//	unfinished.go      measurements that are cut off or too old
//	diskfresh.go       how long a victim for a disk waits for fresh measurements
//	relief.go          garbage collection before an eviction for a disk
//
// Saved state and published values:
//
//	saved.go              the saved form
//	lifesaved.go          evictions
//	awaitedsaved.go       expected returns
//	sharedmemorysaved.go  shared memory
//	breakersaved.go       circuit breakers
//	explainsaved.go       quiet disks
//	decision.go           Decision, with the reasons in words
//	message.go            the kubelet's messages
//
// An eviction is over when the resource has recovered, not when a call returned. Until then no
// other pod is evicted for the same shortage, because the container runtime itself uses memory
// while it tears a pod down. Another shortage also waits if the first victim's returns will end it.
// Each signal is compared with its value at the kill, or with its limit. The next victim is chosen
// immediately if the signal fell by more than the amount that is still expected, or by half if that
// amount is unknown or late. For a disk the wait is longer: files are removed after the victim's
// death, and the runtime frees writable layers even later. Several signals share one file system,
// so a victim for one holds back all of them.
package eviction

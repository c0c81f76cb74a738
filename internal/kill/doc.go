// Package kill is the kill ladder: it pins a victim, kills it through the kernel, frees its memory from threads of its own,
// waits until the kernel says that it is gone, and has the runtime clean up after it.
//
//	ladder.go          the rungs by name
//	killer.go          Killer: owns the threads, pins victims
//	victim.go          Victim: pinned, killed, awaited
//	reap.go            after the kill: CPU for the dying, their memory freed
//	stop.go            gently, through the runtime
//	clean.go           the runtime cleans up
//	steplog.go         what was done when
//	selftest.go        whether it works here, on processes of its own
//	selftestvictim.go  such a process
package kill

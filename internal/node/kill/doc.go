// Package kill is the kill ladder: it pins a victim, kills it through the kernel, frees its memory
// from threads of its own, waits until the kernel says that it is gone, and has the runtime clean
// up after it.
//
//	ladder.go          the rungs by name
//	killer.go          Killer: owns the threads, pins victims
//	strike.go          threads that kill, for a kill may wait for a lock of the kernel
//	victim.go          Victim and its parts: pinned and closed
//	life.go            its part: alive, dead, closed, and who still uses it
//	pinned.go          its parts: the cgroup and the processes that were opened before the kill
//	killfile.go        its parts: cgroup.kill, and the kill process by process
//	replies.go         its part: answers of the threads that kill
//	progress.go        its part: how far the kill has come
//	freeing.go         its part: what the threads that free memory share
//	sandboxes.go       its part: the sandboxes that the runtime knows
//	kill.go            Kill: the rungs that kill
//	wait.go            WaitEmpty: until no process is left
//	cpu.go             its part, and CPU for the dying
//	reap.go            after the kill: the memory of the dying freed
//	cache.go           page cache that a pod leaves behind
//	note.go            what a crash must not leave, noted on the cgroup
//	stop.go            gently, through the runtime
//	clean.go           the runtime cleans up
//	steplog.go         what was done when
//	selftest.go        whether it works here, on processes of its own
//	report.go          what the self-test found out
//	trial.go           the self-test as the loop makes it, put off while something is short
//	selftestvictim.go  such a process: started, and what it does
//
// cgroup.kill ends every process of the pod, forks in flight included, without the runtime's help.
// Where it is missing or refused they are killed one by one: a process that was in the middle of a
// fork finishes it. The kill is repeated, further and further apart, until the cgroup is empty. A
// write that the kernel holds up (another makes or removes a cgroup, and waits for memory) keeps
// nobody: after 20 ms the processes are killed by their pidfds beside it.
//
// The dying need CPU to die: cpu.max and cpu.weight of their cgroups are raised, and put back once
// no process is left, or the victim is given up; what they were is noted on each cgroup first, for
// the agent may crash meanwhile. From Pin to the kill nothing is allocated.
package kill

// Package kill is the kill ladder: it pins a victim, kills it through the kernel, frees its memory
// from its own threads, waits until the kernel reports that no process is left, and has the
// container runtime clean up.
//
//	ladder.go          Ladder: a set of kill steps, by name
//	killer.go          Killer: owns the threads, pins victims
//	strike.go          the threads that kill: a kill may block on a kernel lock
//	victim.go          Victim and its parts: pin and close
//	life.go            part of Victim: alive, dead, closed, and its users
//	pinned.go          parts of Victim: cgroup and processes opened before the kill
//	outside.go         parts of Victim: containers outside the pod's cgroup
//	processtree.go     a container in a shared cgroup
//	killfile.go        parts of Victim: cgroup.kill, and the kill process by process
//	monitors.go        part of Victim: the runtime's monitors, which the kill spares
//	replies.go         part of Victim: answers of the threads that kill
//	progress.go        part of Victim: state of the kill
//	freeing.go         part of Victim: state shared by the threads that free memory
//	sandboxes.go       part of Victim: the sandboxes that the runtime knows
//	kill.go            Kill: the steps that kill
//	wait.go            WaitEmpty: waits until no process is left
//	background.go      work on a victim's directory that no caller waits for
//	reap.go            frees the memory of dying processes after the kill
//	procstat.go        reads /proc/PID/stat
//	priority.go        gives dying threads real-time priority after the kill
//	cache.go           drops page cache that the pod leaves behind
//	restore.go         Restore, Continue: thaw and continue what a crash left frozen or stopped
//	stop.go            Stop: graceful termination through the runtime
//	clean.go           Clean and Remove: cleanup by the runtime
//	steplog.go         the log of steps with their times
//	selftest.go        SelfTest: tries each step on its own processes
//	report.go          the result of the self-test
//	trial.go           the self-test run by the loop, postponed while a resource is short
//	selftestvictim.go  the process that the self-test kills
//
// cgroup.kill ends every process of the pod, including forks in flight, without the runtime's help.
// Where the kernel lacks or refuses it, the processes are killed one by one; a process in the
// middle of a fork completes it. The kill is repeated with backoff until the cgroup is empty. A
// write that blocks in the kernel (another thread creates or removes a cgroup and waits for memory)
// delays no caller: after 20 ms the processes are also killed through their pidfds.
//
// Dying processes need CPU time to exit. Their threads get real-time priority, which neither cpu.max
// nor cpu.weight of their cgroups limits.
//
// Nothing is allocated from Pin to the kill of a pod in its own cgroup. Alongside monitors, nothing
// is allocated until the containers are killed: only then the kill reads /proc for what is named as
// a monitor. The search for the processes of a container in a shared cgroup allocates.
package kill

package kill

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/stats"
)

const (
	scratchPrefix = "jettison-selftest-"
	testLimit     = 2 * time.Second        // for the whole test
	tidyLimit     = 500 * time.Millisecond // for the cleanup after it
)

// SelfTest tries each kill step on its own processes and cgroups. It starts its own executable with
// VictimCommand and kills that process with the code that kills pods. own is the cgroup of this
// process below the root: scratch cgroups are created in the pod that contains it, or next to it.
// SelfTest takes 2 s at most, removes everything it created, and removes the scratch cgroups that a
// crashed self-test left.
func SelfTest(ctx context.Context, fs *cgroup.FS, own string) Report {
	return selfTestWithin(ctx, fs, own, testLimit)
}

func selfTestWithin(ctx context.Context, fs *cgroup.FS, own string, limit time.Duration) Report {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	report := Report{Where: scratchParent(own)}
	removeScratch(fs, report.Where)
	// The test processes are charged to the memory of the agent's pod. So the garbage of the first
	// lists is returned to the kernel first, and one process runs at a time.
	debug.FreeOSMemory()
	var each, all attempt
	all.run(ctx, fs, report.Where, CgroupKill)
	each.run(ctx, fs, report.Where, Pidfd)
	report.Steps = []Result{all.kill, each.kill, cmp.Or(all.cpu, each.cpu),
		cmp.Or(all.free, each.free)}
	for i, rung := range []Ladder{CgroupKill, Pidfd, CPU, Mrelease} {
		if r := &report.Steps[i]; r.Step == "" {
			*r = untried(rung, cmp.Or(all.err, each.err))
		}
	}
	return report
}

// scratchParent returns the pod cgroup that contains own, or the parent of own.
func scratchParent(own string) string {
	own = strings.Trim(path.Clean("/"+own), "/")
	for at := own; at != "" && at != "."; at = path.Dir(at) {
		if _, ok := stats.ParsePodCgroup(path.Dir(at), path.Base(at)); ok {
			return at
		}
	}
	if above := path.Dir(own); above != "." {
		return above
	}
	return ""
}

// IsScratch reports whether name is the name of a scratch cgroup of the self-test.
func IsScratch(name string) bool { return strings.HasPrefix(name, scratchPrefix) }

// removeScratch removes the scratch cgroups left by a crash. Their processes ended with the process
// that started them; a cgroup in use stays.
func removeScratch(fs *cgroup.FS, parent string) {
	var left []string
	_ = fs.Children(parent, make([]byte, 4096), func(name string) {
		if IsScratch(name) {
			left = append(left, name)
		}
	})
	for _, name := range left {
		_ = unix.Rmdir(filepath.Join(fs.Mount(), parent, name))
	}
}

// attempt holds the results for one process that the self-test kills.
type attempt struct {
	kill, cpu, free Result
	err             error // why there is no result
}

// run starts a process in a scratch cgroup, tries the CPU and Mrelease steps, and kills the process
// with the given step.
func (t *attempt) run(ctx context.Context, fs *cgroup.FS, parent string, step Ladder) {
	name := path.Join(parent, scratchPrefix+strconv.Itoa(os.Getpid())+"-"+step.String())
	dir := filepath.Join(fs.Mount(), name)
	if err := unix.Mkdir(dir, 0o755); err != nil {
		t.err = fmt.Errorf("create scratch cgroup %s: %w", dir, err)
		return
	}
	defer tidy(dir)
	victim, err := startVictim(ctx, dir)
	if err != nil {
		t.err = fmt.Errorf("start self-test process in scratch cgroup %s: %w", dir, err)
		return
	}
	defer victim.end()
	t.tryCPU(victim.cmd.Process.Pid)
	t.tryFree(victim.cmd.Process.Pid)
	k := New(Options{FS: fs, Ladder: step | CPU | Mrelease})
	defer func() { _ = k.Close() }() // a thread that is still in the kernel ends when it returns
	v, err := k.Pin(&stats.PodStats{PodRef: stats.PodReference{UID: "self-test"}, Cgroup: name})
	if err != nil {
		t.err = err
		return
	}
	defer v.Close()
	t.kill = timed(step, func() error {
		if err := v.Kill(); err != nil {
			return err
		}
		deadline, _ := ctx.Deadline()
		return v.WaitEmpty(ctx, time.Until(deadline))
	})
}

// timed runs one kill step and returns its outcome and duration.
func timed(step Ladder, do func() error) Result {
	start := time.Now()
	err := do()
	took := time.Since(start)
	r := resultOf(step, err)
	r.Took = took
	return r
}

// tryCPU gives the process real-time priority. Where a better ordinary priority is allowed, the kernel
// refuses because pods have no real-time budget (kernel/sched/syscalls.c).
func (t *attempt) tryCPU(pid int) {
	t.cpu = timed(CPU, func() error {
		err := cgroup.RaiseDying(pid)
		if err == unix.EPERM && unix.Setpriority(unix.PRIO_PROCESS, pid, -1) == nil {
			return fmt.Errorf("%w: the kernel has RT_GROUP_SCHED", unix.EOPNOTSUPP)
		}
		return os.NewSyscallError("sched_setattr", err)
	})
}

// tryFree calls process_mrelease before the process is killed. The kernel answers EINVAL, because
// the process is not dying, only if it has the system call and permits it. After the kill there may
// be no memory left to free.
func (t *attempt) tryFree(pid int) {
	t.free = timed(Mrelease, func() error {
		fd, err := cgroup.OpenPidfd(pid)
		if err != nil {
			return os.NewSyscallError("pidfd_open", err)
		}
		defer unix.Close(fd)
		if err = cgroup.Mrelease(fd); err == nil || err == unix.EINVAL {
			return nil
		}
		return os.NewSyscallError("process_mrelease", err)
	})
}

// tidy removes a scratch cgroup and retries for tidyLimit: the cgroup may stay busy for a moment
// after its process was reaped.
func tidy(dir string) {
	for end := time.Now().Add(tidyLimit); unix.Rmdir(dir) == unix.EBUSY && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

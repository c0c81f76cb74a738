package kill

import (
	"cmp"
	"context"
	"errors"
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
	testLimit     = 2 * time.Second        // for all of it
	tidyLimit     = 500 * time.Millisecond // beyond that, to clean up
)

// SelfTest finds out which rungs work here, on processes and cgroups of its own: it starts this
// program again, with VictimCommand, and kills it with the code that kills pods. own is the cgroup
// of this process below the root: scratch cgroups are made in the pod that it lies in, or beside
// it. It takes 2 s at most and leaves nothing behind; what a crash of an earlier one left is
// removed.
func SelfTest(ctx context.Context, fs *cgroup.FS, own string) Report {
	return selfTestWithin(ctx, fs, own, testLimit)
}

func selfTestWithin(ctx context.Context, fs *cgroup.FS, own string, limit time.Duration) Report {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	report := Report{Where: scratchParent(own)}
	removeScratch(fs, report.Where)
	// The processes that are killed count in the memory of the same pod: so what the first lists have
	// left is given back before, and there is one at a time.
	debug.FreeOSMemory()
	var each, all trial
	all.run(ctx, fs, report.Where, CgroupKill)
	each.run(ctx, fs, report.Where, Pidfd)
	report.Rungs = []Result{all.kill, each.kill, cmp.Or(all.cpu, each.cpu),
		cmp.Or(all.free, each.free)}
	for i, rung := range []Ladder{CgroupKill, Pidfd, CPU, Mrelease} {
		if r := &report.Rungs[i]; r.Rung == "" {
			*r = Result{Rung: rung.String(), Outcome: Untested, Err: cmp.Or(all.err, each.err)}
		}
	}
	return report
}

// scratchParent is the pod that a cgroup lies in, or the cgroup above it.
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

// IsScratch says whether a cgroup is one of the self-test's, by its name.
func IsScratch(name string) bool { return strings.HasPrefix(name, scratchPrefix) }

// removeScratch removes what a crash left. Its processes ended with who started them; a cgroup that
// is in use stays.
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

// trial is one process that is killed.
type trial struct {
	kill, cpu, free Result
	err             error // why there is no result
}

// run makes a scratch cgroup and a process in it, tries the rungs and kills it by one of them.
func (t *trial) run(ctx context.Context, fs *cgroup.FS, parent string, rung Ladder) {
	name := path.Join(parent, scratchPrefix+strconv.Itoa(os.Getpid())+"-"+rung.String())
	dir := filepath.Join(fs.Mount(), name)
	if err := unix.Mkdir(dir, 0o755); err != nil {
		t.err = fmt.Errorf("make scratch cgroup %s: %w", dir, err)
		return
	}
	defer tidy(dir)
	victim, err := startVictim(ctx, dir)
	if err != nil {
		t.err = fmt.Errorf("start a process in scratch cgroup %s: %w", dir, err)
		return
	}
	defer victim.end()
	t.tryCPU(fs, name)
	t.tryFree(victim.cmd.Process.Pid)
	k := New(Options{FS: fs, Ladder: rung | CPU | Mrelease})
	defer func() { _ = k.Close() }() // a thread that is still in the kernel ends when it comes back
	v, err := k.Pin(&stats.PodStats{PodRef: stats.PodReference{UID: "self-test"}, Cgroup: name})
	if err != nil {
		t.err = err
		return
	}
	defer v.Close()
	t.kill = timed(rung, func() error {
		if err := v.Kill(); err != nil {
			return err
		}
		deadline, _ := ctx.Deadline()
		return v.WaitEmpty(ctx, time.Until(deadline))
	})
}

// timed tries one rung.
func timed(rung Ladder, do func() error) Result {
	r := Result{Rung: rung.String()}
	start := time.Now()
	r.Err = do()
	r.Took = time.Since(start)
	switch {
	case r.Err == nil:
		r.Outcome = Works
	case errors.Is(r.Err, context.Canceled): // the caller did not want to know
		r.Outcome = Untested
	case errors.Is(r.Err, os.ErrNotExist), errors.Is(r.Err, unix.ENOSYS):
		r.Outcome = Absent
	default:
		r.Outcome = Refused
	}
	return r
}

// tryCPU lifts the limits of the scratch cgroup and puts them back.
func (t *trial) tryCPU(fs *cgroup.FS, name string) {
	t.cpu = timed(CPU, func() error {
		g, err := fs.Group(name)
		if err != nil {
			return err
		}
		defer g.Close()
		buf := make([]byte, 256)
		before, err := g.CPUSettings(buf)
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w: the cpu controller is off there", err)
		}
		if err != nil {
			return err
		}
		return errors.Join(g.RaiseCPU(), g.RestoreCPU(before, buf))
	})
}

// tryFree asks to free the memory of the process before it is killed: EINVAL, for it is not dying,
// comes only from a kernel that could and a system call that is allowed. After the kill there may
// be nothing left to free.
func (t *trial) tryFree(pid int) {
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

// tidy removes a scratch cgroup, once the kernel lets it: a process that was waited for may count
// for a moment.
func tidy(dir string) {
	for end := time.Now().Add(tidyLimit); unix.Rmdir(dir) == unix.EBUSY && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

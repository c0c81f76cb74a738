package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"jettison/e2e/vm"
)

// Every behaviour of the workload is checked in the guest, so that no scenario passes because its
// workload does nothing.
func TestWorkloadsDoWhatTheySay(t *testing.T) {
	n := startNodeWith(t, vm.Options{PodPids: 600})
	for _, c := range []struct {
		behaviour string
		limit     string
		// evidence is a line of shell that prints a number. $CG is the pod's cgroup, $CC its
		// container's, which has no pause process and no conmon. $PID is its main process, $BEAT the
		// folder that the container sees as /beat, $LOG its log.
		evidence string
		least    int64
	}{
		{"alloc -size 8Mi", "", "sed -n 's/^anon //p' $CG/memory.stat", 8 * mib},
		{"fill -size 8Mi /dev/shm/file", "", "sed -n 's/^shmem //p' $CG/memory.stat", 8 * mib},
		{"fill -size 8Mi /file", "", "wc -c < /proc/$PID/root/file", 8 * mib},
		{"fill -allocate -size 8Mi /file", "", "du -k /proc/$PID/root/file | awk '{print $1*1024}'", 8 * mib},
		{"inodes -count 50 /beat", "", "ls $BEAT | grep -c ^f", 50},
		{"processes -count 12", "", "wc -l < $CC/cgroup.procs", 13},
		{"threads -count 20", "", "sed -n 's/^Threads:\t//p' /proc/$PID/status", 21},
		{"bomb -generations 9", "", "wc -l < $CC/cgroup.procs", 512},
		{"burst -size 8Mi", "", "sed -n 's/^anon //p' $CG/memory.stat", 8 * mib},
		{"herd -count 40 -each 256Ki", "", "wc -l < $CC/cgroup.procs", 41},
		{"herd -count 40 -each 256Ki", "", "sed -n 's/^anon //p' $CG/memory.stat", 10 * mib},
		{"stamp", "", "wc -l < $LOG", 50},
		{"spin", "", "sed -n 's/^usage_usec //p' $CG/cpu.stat", 1_000_000},
		{"log -rate 64Ki", "", "wc -c < $LOG", 64 << 10},
		{"leak /beat/go", "", "[ -e $BEAT/told ] || echo 100Mi > $BEAT/go; : > $BEAT/told; sed -n 's/^anon //p' $CG/memory.stat", 32 * mib},
		{"again alloc -size 8Mi", "", "[ -e $BEAT/told ] || kill -9 $(grep -v ^$PID\\$ $CC/cgroup.procs) || exit; : > $BEAT/told; sed -n 's/^anon //p' $CG/memory.stat", 8 * mib},
		{"thrash -size 64Mi /file", "40Mi", "sed -n 's/^workingset_refault_file //p' $CG/memory.stat", 100},
	} {
		name := "does-" + strings.ReplaceAll(strings.Fields(c.behaviour)[0], "/", "")
		pod := n.run(vm.NewPod(name, "", c.limit, c.behaviour))
		pid := n.mainProcess(pod)
		line := strings.NewReplacer("$CG", "/sys/fs/cgroup/"+pod.Cgroup, "$CC", "/sys/fs/cgroup/"+pod.ContainerCgroup(pod.Containers[0]), "$PID", pid, "$BEAT", "/run/beats/"+string(pod.Object.UID), "$LOG", pod.LogPath("main")).Replace(c.evidence)
		n.until(c.behaviour, func() error {
			out, err := n.Shell(n.ctx, line)
			if err != nil {
				return err
			}
			if v, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64); err != nil || v < c.least {
				return fmt.Errorf("%s prints %q, want at least %d", line, out, c.least)
			}
			return nil
		})
		if err := pod.Check(n.ctx); err != nil {
			t.Error(err)
		}
		if err := pod.Remove(n.ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// A workload that ends in an orderly way records the time of its SIGTERM, and ends later.
func TestAWorkloadEndsInOrder(t *testing.T) {
	n := startNode(t)
	before, err := n.Memory(n.ctx)
	if err != nil {
		t.Fatal(err)
	}
	pod := n.run(vm.NewPod("orderly", "", "", "on-sigterm -after 2s /beat/sigterm"))
	pod.Expected = vm.Any // its sandbox keeps running
	n.until("it runs", func() error { return pod.Check(n.ctx) })
	n.shell("kill -TERM " + n.mainProcess(pod))
	told := n.sigtermTime(pod)
	n.until("it has ended", func() error { return pod.Ended(n.ctx, 0) })
	after, err := n.Memory(n.ctx)
	if err != nil || told < before.MonotonicNS || elapsed(told, after.MonotonicNS) < 2*time.Second {
		t.Errorf("SIGTERM recorded at %d, want between %d and two seconds before %d (%v)", told, before.MonotonicNS, after.MonotonicNS, err)
	}
}

// A workload that ignores SIGTERM survives one. One that forks while it dies always has another
// main process.
func TestWorkloadsThatResist(t *testing.T) {
	n := startNode(t)
	pod := n.run(vm.NewPod("resisting", "", "", "ignore-sigterm + fork-dying"))
	procs := func() string { return n.shell("cat /sys/fs/cgroup/" + pod.Cgroup + "/*/cgroup.procs") }
	pid, first := n.mainProcess(pod), procs()
	n.until("another process is there", func() error {
		if now := procs(); now == first {
			return fmt.Errorf("main process is still %q", now)
		}
		return nil
	})
	n.shell("kill -TERM " + pid)
	if err := pod.Check(n.ctx); err != nil { // its heartbeat continues
		t.Error(err)
	}
	if now := n.mainProcess(pod); now != pid {
		t.Errorf("main process was %s, is %s, want another one", pid, now)
	}
}

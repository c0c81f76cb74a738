package kill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
)

// leftovers returns the scratch cgroups below a path.
func leftovers(t *testing.T, fs *cgroup.FS, parent string) (names []string) {
	t.Helper()
	err := fs.Children(parent, make([]byte, 4096), func(name string) {
		if strings.HasPrefix(name, scratchPrefix) {
			names = append(names, name)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestSelfTest(t *testing.T) {
	fs, p := pod(t)
	crashed := filepath.Join(fs.Mount(), p.Cgroup, scratchPrefix+"1-cgroup.kill")
	if err := os.Mkdir(crashed, 0o755); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	const limit = time.Minute // a busy machine needs longer than the two seconds
	start := time.Now()
	r := selfTestWithin(t.Context(), fs, p.Cgroup+"/container", limit)
	took := time.Since(start)
	t.Log(took, r)
	if left := leftovers(t, fs, p.Cgroup); len(left) > 0 {
		t.Errorf("scratch cgroups after the self-test = %v, want none", left)
	}
	if after := descriptors(t); after != before {
		t.Errorf("open descriptors after the self-test = %d, want %d as before", after, before)
	}
	if took > limit+tidyLimit || !r.Kills() || r.Where != p.Cgroup || len(r.Log()) != 2*(1+len(r.Steps)) {
		t.Errorf("report after %v = %+v, want a working kill step in %s", took, r, p.Cgroup)
	}
	want := []string{"cgroup.kill", "pidfd", "cpu", "mrelease"}
	for i, rung := range r.Steps {
		if rung.Step != want[i] || rung.Outcome == Unknown || (rung.Outcome == Works) != (rung.Err == nil) {
			t.Errorf("result %d = %+v, want a tested step %s", i, rung, want[i])
		}
	}
	v, err := Pin(fs, p)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if err := v.WaitEmpty(t.Context(), 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("wait for the pod that contains the self-test = %v, want it alive", err)
	}
}

// A self-test that cannot run reports the reason and leaves no cgroup.
func TestSelfTestThatCannotRun(t *testing.T) {
	fs, p := pod(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, r := range map[string]Report{
		"its context ended":     SelfTest(ctx, fs, p.Cgroup+"/container"),
		"its time is over":      selfTestWithin(t.Context(), fs, p.Cgroup+"/container", time.Nanosecond),
		"a cgroup that is none": SelfTest(t.Context(), fs, "jettison-none/of/these"),
	} {
		for _, rung := range r.Steps {
			if rung.Outcome != Unknown || rung.Err == nil || rung.Step == "" {
				t.Errorf("%s: result = %+v, want unknown with an error", name, rung)
			}
		}
		if r.Kills() || !r.Inconclusive() {
			t.Errorf("%s: Kills = %v, Inconclusive = %v, want false and true", name, r.Kills(), r.Inconclusive())
		}
	}
	if left := leftovers(t, fs, p.Cgroup); len(left) > 0 {
		t.Errorf("scratch cgroups after the self-test = %v, want none", left)
	}
}

func TestScratchParent(t *testing.T) {
	for own, want := range map[string]string{
		"": "", "/": "", "jettison": "", "/system.slice/jettison.service": "system.slice",
		"kubepods/burstable/podu":     "kubepods/burstable/podu",
		"/kubepods/burstable/podu/c/": "kubepods/burstable/podu",
		"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu_v.slice/cri-containerd-c.scope": "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu_v.slice",
	} {
		if got := scratchParent(own); got != want {
			t.Errorf("scratchParent(%q) = %q, want %q", own, got, want)
		}
	}
}

func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		step Ladder
		err  error
		want string
	}{
		{CPU, nil, "works ("},
		{CPU, unix.ENOSYS, "absent: "},
		{CgroupKill, unix.EROFS, "refused: read-only file system: requires root and a writable cgroup v2 hierarchy"},
		{CgroupKill, fmt.Errorf("%w: %w", ErrNotKilled, unix.EACCES),
			"refused: the kernel refused the kill: permission denied: requires root and a writable cgroup v2 hierarchy"},
		{Pidfd, unix.EPERM, "refused: operation not permitted: requires CAP_KILL"},
		{Mrelease, unix.EPERM, "refused: operation not permitted: requires a seccomp profile"},
		// A starved node or a stopped test refuses nothing.
		{CgroupKill, context.DeadlineExceeded, "unknown: "},
		{CgroupKill, os.ErrDeadlineExceeded, "unknown: "},
		{Pidfd, fmt.Errorf("%w: cannot determine whether pod is dead: %w", os.ErrDeadlineExceeded, unix.EMFILE), "unknown: "},
		{Pidfd, context.Canceled, "unknown: "},
		{Mrelease, unix.EAGAIN, "unknown: "},
		{CPU, unix.ENOMEM, "unknown: "},
	} {
		if r := timed(c.step, func() error { return c.err }); !strings.HasPrefix(r.String(), c.want) || !errors.Is(r.Err, c.err) {
			t.Errorf("result of %v after the error %v = %q, want %q", c.step, c.err, r.String(), c.want)
		}
	}
	// Without its process a step is unknown, unless the kernel refuses to create the process.
	for err, want := range map[error]string{
		unix.EACCES: "refused: permission denied: requires root", unix.EROFS: "refused: read-only file system: requires root",
		os.ErrDeadlineExceeded: "unknown: ", unix.ENOENT: "unknown: ", unix.EAGAIN: "unknown: ",
	} {
		if r := untried(Pidfd, err); !strings.HasPrefix(r.String(), want) {
			t.Errorf("result of a step without a process after the error %v = %q, want %q", err, r.String(), want)
		}
	}
}

// startFrom starts a process in the given cgroup namespace, and the agent stays in its own.
func TestStartFromNamespace(t *testing.T) {
	link := func(pid string) string {
		to, err := os.Readlink("/proc/" + pid + "/ns/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	start := func(namespace string) (*exec.Cmd, func()) {
		cmd := exec.Command("/bin/sh", "-c", "read x")
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := startFrom(namespace, cmd); err != nil {
			t.Fatal(err)
		}
		return cmd, func() { stdin.Close(); _ = cmd.Wait() }
	}
	other, stop := func() (*exec.Cmd, func()) { // a process in its own namespace
		cmd := exec.Command("/bin/sh", "-c", "read x")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWCGROUP}
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Skip("cannot create a cgroup namespace: ", err)
		}
		return cmd, func() { stdin.Close(); _ = cmd.Wait() }
	}()
	defer stop()
	target := link(strconv.Itoa(other.Process.Pid))
	for namespace, want := range map[string]string{
		"/proc/" + strconv.Itoa(other.Process.Pid) + "/ns/cgroup": target, "/proc/self/ns/cgroup": link("self"), "/nowhere": link("self"),
	} {
		cmd, end := start(namespace)
		if got := link(strconv.Itoa(cmd.Process.Pid)); got != want {
			t.Errorf("namespace of a process started from %s = %s, want %s", namespace, got, want)
		}
		end()
	}
	if target == link("self") {
		t.Error("this process moved to the other's namespace, want its own")
	}
}

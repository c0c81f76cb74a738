package kill

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// VictimCommand is the hidden command by which the self-test starts this very program as a process
// to be killed.
const VictimCommand = "selftest-victim"

const victimBytes = 4 << 20 // of memory that a process to be killed takes

// BeVictim is that process: it takes memory (args: how many bytes), says so with one byte on its
// standard output, and waits until it is killed, or until its standard input ends: it does not
// outlive who has started it.
func BeVictim(args []string) {
	size := victimBytes
	if len(args) > 0 {
		if n, err := strconv.Atoi(args[0]); err == nil && n > 0 {
			size = n
		}
	}
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return
	}
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	if _, err := os.Stdout.Write([]byte("r")); err == nil {
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
}

// running is a process to be killed.
type running struct {
	cmd         *exec.Cmd
	stdin, read *os.File // its standard input; ours of its output
}

// startVictim starts this program in a cgroup and waits until it has its memory.
func startVictim(ctx context.Context, dir string, args ...string) (_ *running, err error) {
	group, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	read, out, err := os.Pipe()
	if err != nil {
		stdin.Close()
		return nil, err
	}
	defer out.Close()
	v := &running{cmd: exec.Command("/proc/self/exe", append([]string{VictimCommand}, args...)...),
		stdin: stdin, read: read}
	v.cmd.Env = []string{"GOMAXPROCS=1"}
	v.cmd.Stdin, v.cmd.Stdout = in, out
	v.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	if err := startFrom(nodesCgroups, v.cmd); err != nil {
		stdin.Close()
		read.Close()
		return nil, err
	}
	out.Close() // so that its end shows
	if deadline, ok := ctx.Deadline(); ok {
		err = read.SetReadDeadline(deadline)
	}
	defer context.AfterFunc(ctx, func() { _ = read.SetReadDeadline(time.Unix(1, 0)) })()
	if err == nil {
		_, err = read.Read(make([]byte, 1))
	}
	if err == nil {
		err = ctx.Err() // AfterFunc may be later than what it is to end
	}
	if err != nil {
		v.end()
		return nil, fmt.Errorf("wait until it runs: %w", err)
	}
	return v, nil
}

// nodesCgroups is the cgroup namespace of the node's first process.
const nodesCgroups = "/proc/1/ns/cgroup"

// startFrom starts a process from within a cgroup namespace, where this process is in another one:
// a container that is not privileged has its own. With the mount option nsdelegate, which systemd
// takes, no process begins in a cgroup outside of the namespace of who starts it (v6.12
// kernel/cgroup/cgroup.c cgroup_procs_write_permission: ENOENT), and scratch cgroups are. Where the
// namespace cannot be entered the process is started all the same: the kernel says whether that
// will do.
func startFrom(namespace string, cmd *exec.Cmd) error {
	fd, err := unix.Open(namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return cmd.Start()
	}
	defer unix.Close(fd)
	var theirs, own unix.Stat_t
	if unix.Fstat(fd, &theirs) == nil && unix.Stat("/proc/self/ns/cgroup", &own) == nil &&
		theirs.Ino == own.Ino && theirs.Dev == own.Dev {
		return cmd.Start()
	}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with it, and what it has entered
		_ = unix.Setns(fd, unix.CLONE_NEWCGROUP)
		started <- cmd.Start()
	}()
	return <-started
}

// end kills the process, if it still lives, and waits for its end.
func (v *running) end() {
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
	v.stdin.Close()
	v.read.Close()
}

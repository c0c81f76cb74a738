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

// VictimCommand is the hidden command with which the self-test starts its own executable as the
// process to kill.
const VictimCommand = "selftest-victim"

const victimBytes = 4 << 20 // memory that a self-test process allocates

// BeVictim is the body of that process. It allocates memory (args: the number of bytes), writes one
// byte to its standard output when done, and waits until it is killed. It also ends at the end of
// its standard input, so it does not outlive its parent.
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

// testProcess is a running process that the self-test kills.
type testProcess struct {
	cmd         *exec.Cmd
	stdin, read *os.File // the parent's ends of its standard input and output
}

// startVictim starts a test process in a cgroup and waits until it has allocated its memory.
func startVictim(ctx context.Context, dir string, args ...string) (_ *testProcess, err error) {
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
	v := &testProcess{cmd: exec.Command("/proc/self/exe", append([]string{VictimCommand}, args...)...),
		stdin: stdin, read: read}
	v.cmd.Env = []string{"GOMAXPROCS=1"}
	v.cmd.Stdin, v.cmd.Stdout = in, out
	v.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	if err := startFrom(nodesCgroups, v.cmd); err != nil {
		stdin.Close()
		read.Close()
		return nil, err
	}
	out.Close() // so that read sees the end of the process
	if deadline, ok := ctx.Deadline(); ok {
		err = read.SetReadDeadline(deadline)
	}
	defer context.AfterFunc(ctx, func() { _ = read.SetReadDeadline(time.Unix(1, 0)) })()
	if err == nil {
		_, err = read.Read(make([]byte, 1))
	}
	if err == nil {
		err = ctx.Err() // ctx may have ended before AfterFunc could interrupt the read
	}
	if err != nil {
		v.end()
		return nil, fmt.Errorf("wait for the process to start: %w", err)
	}
	return v, nil
}

// nodesCgroups is the cgroup namespace of the node's init process.
const nodesCgroups = "/proc/1/ns/cgroup"

// startFrom starts a process from within the given cgroup namespace. An unprivileged container has
// its own namespace. With the mount option nsdelegate, which systemd uses, a process cannot start
// in a cgroup outside its parent's namespace (v6.12 kernel/cgroup/cgroup.c
// cgroup_procs_write_permission: ENOENT), and the scratch cgroups are outside. If the namespace
// cannot be entered, startFrom starts the process anyway, and the kernel decides.
func startFrom(namespace string, cmd *exec.Cmd) error {
	fd, err := unix.Open(namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return cmd.Start()
	}
	defer unix.Close(fd)
	var target, own unix.Stat_t
	if unix.Fstat(fd, &target) == nil && unix.Stat("/proc/self/ns/cgroup", &own) == nil &&
		target.Ino == own.Ino && target.Dev == own.Dev {
		return cmd.Start()
	}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, in its namespace, ends with the goroutine
		_ = unix.Setns(fd, unix.CLONE_NEWCGROUP)
		started <- cmd.Start()
	}()
	return <-started
}

// end kills the process, if it is still alive, and waits for it.
func (v *testProcess) end() {
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
	v.stdin.Close()
	v.read.Close()
}

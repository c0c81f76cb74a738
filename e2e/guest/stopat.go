package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stopper traces a process with all its threads, and stops the thread that reaches a step: a system
// call with an effect outside of the process. The other threads continue, as with a slow disk.
type stopper struct {
	pid     int
	text    []byte
	count   int  // the step to stop at; 1: the first
	after   bool // after the call; else before it
	pending int  // the thread in the call to stop at; 0: none
	stopped bool
}

// stopAt prints "tracing", and "stopped ..." when the process is stopped at its count-th step that
// mentions a text: in the path of the call or of its file, or in the written data, which for a
// runtime's socket is the id in the request. when is "before" or "after" the call. It runs until it
// is killed. The kernel then detaches the process, which continues unless it was killed.
func stopAt(pid, text, count, when string) error {
	s := &stopper{text: []byte(text), after: when == "after"}
	var err error
	if s.pid, err = strconv.Atoi(pid); err != nil {
		return err
	}
	if s.count, err = strconv.Atoi(count); err != nil {
		return err
	}
	runtime.LockOSThread() // the tracer is a thread
	if err := s.seize(); err != nil {
		return fmt.Errorf("trace %d: %w", s.pid, err)
	}
	fmt.Println("tracing")
	return s.wait()
}

// seize attaches to all threads of the process. New threads are traced from their start.
func (s *stopper) seize() error {
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE
	taken := map[string]bool{}
	for more := true; more; {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", s.pid))
		if err != nil {
			return err
		}
		more = false
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil || taken[task.Name()] {
				continue
			}
			taken[task.Name()], more = true, true
			// EPERM: already traced, as a child of a traced thread. ESRCH: the thread has ended.
			switch err := ptrace(unix.PTRACE_SEIZE, tid, 0, options); {
			case err == nil:
				_ = unix.PtraceInterrupt(tid)
			case err != unix.EPERM && err != unix.ESRCH:
				return err
			}
		}
	}
	return nil
}

func ptrace(request, tid int, address, data uintptr) error {
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), address, data, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// wait handles the threads' reports until the process has ended.
func (s *stopper) wait() error {
	const eventStop = 128 // PTRACE_EVENT_STOP of linux/ptrace.h
	for {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ECHILD:
			fmt.Println("the process has ended")
			return nil
		case err != nil:
			return err
		case !status.Stopped():
			continue
		}
		signal := status.StopSignal()
		event := int(status) >> 16
		switch {
		case signal == unix.SIGTRAP|0x80:
			if s.reached(tid) {
				continue // it stays stopped
			}
			s.continueThread(tid, 0)
		case event == eventStop && signal != unix.SIGTRAP: // a signal stopped the thread group, which waits for SIGCONT
			_ = ptrace(unix.PTRACE_LISTEN, tid, 0, 0)
		case event != 0:
			s.continueThread(tid, 0)
		default:
			s.continueThread(tid, int(signal))
		}
	}
}

func (s *stopper) continueThread(tid, signal int) {
	if s.stopped { // no more requests to them
		_ = unix.PtraceCont(tid, signal)
		return
	}
	_ = unix.PtraceSyscall(tid, signal)
}

// syscallInfo is struct ptrace_syscall_info of linux/ptrace.h.
type syscallInfo struct {
	op   uint8 // 1: entry, 2: exit
	_    [3]uint8
	_    uint32
	_, _ uint64
	nr   uint64
	args [6]uint64
	_    [2]uint64
}

// reached reports whether a thread is at the step to stop at.
func (s *stopper) reached(tid int) bool {
	if s.stopped {
		return false
	}
	var info syscallInfo
	const getSyscallInfo = 0x420e
	if ptrace(getSyscallInfo, tid, unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info))) != nil {
		return false
	}
	switch {
	case info.op == 2 && s.pending == tid:
		s.stopped = true
		fmt.Println("stopped after it")
		return true
	case info.op != 1 || s.pending != 0:
		return false
	}
	what := s.matches(&info)
	if what == "" {
		return false
	}
	if s.count--; s.count > 0 {
		return false
	}
	if s.after {
		fmt.Println("at", what)
		s.pending = tid
		return false
	}
	s.stopped = true
	fmt.Println("stopped before", what)
	return true
}

// matches returns a description of the step, or "" if it does not match.
func (s *stopper) matches(info *syscallInfo) string {
	a := &info.args
	switch info.nr {
	case unix.SYS_UNLINKAT:
		return s.path("unlinkat", a[1])
	case unix.SYS_MKDIRAT:
		return s.path("mkdirat", a[1])
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		if from := s.path("renameat", a[1]); from != "" {
			return from
		}
		return s.path("renameat to", a[3])
	case unix.SYS_OPENAT:
		if a[2]&unix.O_CREAT == 0 {
			return ""
		}
		return s.path("openat", a[1])
	case unix.SYS_FSYNC:
		return s.file("fsync", a[0])
	case unix.SYS_FDATASYNC:
		return s.file("fdatasync", a[0])
	case unix.SYS_FTRUNCATE:
		return s.file("ftruncate", a[0])
	case unix.SYS_WRITE, unix.SYS_PWRITE64:
		if found := s.file("write", a[0]); found != "" {
			return found
		}
		if text, err := s.read(a[1], int(min(a[2], 64<<10))); err == nil && bytes.Contains(text, s.text) {
			return fmt.Sprintf("write of %q to a socket or file", s.text)
		}
	}
	return ""
}

func (s *stopper) path(call string, address uint64) string {
	text, err := s.read(address, unix.PathMax)
	if err != nil {
		return ""
	}
	if end := bytes.IndexByte(text, 0); end >= 0 && bytes.Contains(text[:end], s.text) {
		return fmt.Sprintf("%s %q", call, text[:end])
	}
	return ""
}

func (s *stopper) file(call string, fd uint64) string {
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", s.pid, fd))
	if err != nil || !bytes.Contains([]byte(name), s.text) {
		return ""
	}
	return fmt.Sprintf("%s %q", call, name)
}

// read reads memory of the process. The result is shorter if a mapping ends. The agent may execute
// itself again after it was traced, so a descriptor of /proc/PID/mem would read its former memory.
func (s *stopper) read(address uint64, size int) ([]byte, error) {
	b := make([]byte, size)
	local := []unix.Iovec{{Base: unsafe.SliceData(b), Len: uint64(size)}}
	n, err := unix.ProcessVMReadv(s.pid, local, []unix.RemoteIovec{{Base: uintptr(address), Len: size}}, 0)
	return b[:max(n, 0)], err
}

package main

import (
	"errors"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// trigger is the start signal of a behaviour: a delay, or SIGUSR1, so that several pods can begin
// at the same time.
type trigger struct {
	after  time.Duration
	onUSR1 bool
}

func (t *trigger) flags(f *flag.FlagSet) {
	f.DurationVar(&t.after, "after", 0, "")
	f.BoolVar(&t.onUSR1, "on-usr1", false, "")
}

// ready prepares the wait that it returns, so that no signal comes too early.
func (t *trigger) ready() (wait func()) {
	if !t.onUSR1 {
		return func() { time.Sleep(t.after) }
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, unix.SIGUSR1)
	return func() {
		<-told
		time.Sleep(t.after)
	}
}

// burst takes memory in one step: one mapping that the kernel fills itself, in huge pages if it has
// any, so that no program can leak faster. The mapping may be larger than the node: MAP_NORESERVE
// excludes it from the commit limit (mm/mmap.c, do_mmap).
func burst(args []string) error {
	f := flag.NewFlagSet("burst", flag.ContinueOnError)
	total := size(64 << 20)
	f.Var(&total, "size", "")
	var t trigger
	t.flags(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	t.ready()()
	_, err := unix.Mmap(-1, 0, int(total), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	select {}
}

// processGroup starts processes that first only wait and then, all at the same time, allocate memory. They
// are forked without exec, as in bomb.
func processGroup(args []string) error {
	f := flag.NewFlagSet("herd", flag.ContinueOnError)
	count := f.Int("count", 10, "")
	each := size(1 << 20)
	f.Var(&each, "each", "")
	var t trigger
	t.flags(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	wait := t.ready()
	// Private to each process after its first write.
	share, err := unix.Mmap(-1, 0, int(each), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	var gate [2]int // closing the write end lets them begin
	if err := unix.Pipe2(gate[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	hour := unix.Timespec{Sec: 3600}
	if made := gather(*count, share, gate[0], gate[1], &hour); made < *count {
		return errors.New("the kernel made fewer processes than wanted")
	}
	wait()
	if err := unix.Close(gate[1]); err != nil {
		return err
	}
	select {}
}

// gather forks and returns in the first process only, with the number of its children. Each child
// waits until the gate is closed everywhere, allocates its share and sleeps. The restrictions of
// forkGenerations apply.
//
//go:norace
func gather(count int, share []byte, gate, keep int, nap *unix.Timespec) (made int) {
	for ; made < count; made++ {
		pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			return made
		}
		if pid != 0 {
			continue
		}
		_, _, _ = syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(keep), 0, 0)
		// Nothing is ever written, so the read ends when the last possible writer has closed.
		_, _, _ = syscall.RawSyscall(syscall.SYS_READ, uintptr(gate), uintptr(unsafe.Pointer(&share[0])), 1)
		for i := 0; i < len(share); i += 4096 {
			share[i] = byte(i>>12) | 1
		}
		for {
			_, _, _ = syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(nap)), 0, 0)
		}
	}
	return made
}

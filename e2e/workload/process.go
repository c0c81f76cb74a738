package main

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func ignoreSIGTERM([]string) error {
	signal.Ignore(syscall.SIGTERM)
	select {}
}

// onSIGTERM ends in an orderly way, after a delay. It writes the time of the signal first.
func onSIGTERM(args []string) error {
	f := flag.NewFlagSet("on-sigterm", flag.ContinueOnError)
	after := f.Duration("after", 0, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.Arg(0) == "" {
		return errors.New("want a file")
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	<-told
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	// Atomic: the harness may read at any time.
	if err := os.WriteFile(f.Arg(0)+".part", []byte(strconv.FormatInt(now.Nano(), 10)), 0o644); err != nil {
		return err
	}
	if err := os.Rename(f.Arg(0)+".part", f.Arg(0)); err != nil {
		return err
	}
	if *after == 0 {
		select {}
	}
	time.Sleep(*after)
	os.Exit(0)
	return nil
}

// forkDying keeps one short-lived process running: each starts its successor and exits, so that a
// killer that uses a list of process ids is always one generation late.
func forkDying([]string) error {
	if err := exec.Command("/proc/self/exe", "relay").Start(); err != nil {
		return err
	}
	select {}
}

func relay([]string) error {
	time.Sleep(5 * time.Millisecond)
	if err := exec.Command("/proc/self/exe", "relay").Start(); err != nil {
		return err
	}
	os.Exit(0)
	return nil
}

// bomb doubles its processes so many times. They are forked without exec, as bombs do, so that each
// costs only about 150 KiB. It is bounded: a Go program that cannot start a thread dies, and here
// all of its children with it.
func bomb(args []string) error {
	f := flag.NewFlagSet("bomb", flag.ContinueOnError)
	generations := f.Int("generations", 8, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	hour := unix.Timespec{Sec: 3600}
	forkGenerations(*generations, &hour)
	select {}
}

// forkGenerations forks, in the children too, and returns in the first process only; the others sleep. A
// child of a Go program has one thread and no scheduler: this code may not allocate, grow the stack
// or call the runtime.
//
//go:norace
func forkGenerations(generations int, nap *unix.Timespec) {
	child := false
	for ; generations > 0; generations-- {
		pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		child = child || pid == 0 && errno == 0
	}
	for child {
		_, _, _ = syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(nap)), 0, 0)
	}
}

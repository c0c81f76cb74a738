package kill

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// statFields returns the fields of /proc/PID/stat after the program's name, which may contain spaces
// and parentheses. The first one is number 3 in proc_pid_stat(5).
func statFields(text []byte) [][]byte {
	return bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
}

// parentOf returns the ID of a process's parent; 0: unknown.
func parentOf(proc string, pid int) int {
	text, _ := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	fields := statFields(text)
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	return parent
}

// Indices of statFields in /proc/PID/stat and /proc/PID/task/TID/stat (v6.12 fs/proc/array.c
// do_task_stat).
const (
	statState   = 0
	statParent  = 1  // number 4
	statFlags   = 6  // number 9 in proc_pid_stat(5)
	statThreads = 17 // number 20: threads of the process
	statStart   = 19 // number 22: start time in clock ticks
	statPending = 28 // number 31: signals pending for the thread
)

// readStat returns the statFields of a process or thread, up to statPending at least.
func readStat(dir string) ([][]byte, error) {
	text, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return nil, err
	}
	fields := statFields(text)
	if len(fields) <= statPending {
		return nil, errors.New("stat has too few fields")
	}
	return fields, nil
}

// isGone reports whether a process or thread ended before its files were read.
func isGone(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// hasStopped reports whether a process or thread has stopped, also for a tracer, or has ended.
func hasStopped(fields [][]byte) bool { return bytes.ContainsAny(fields[statState], "TtZX") }

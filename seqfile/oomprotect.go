package seqfile

import (
	"bytes"
	"os"
	"sync"
	"syscall"
)

// unkillable is the oom_score_adj of a process that the kernel never OOM-kills (v6.12 mm/oom_kill.c
// oom_badness: OOM_SCORE_ADJ_MIN). If the memory cgroup has no other process, a charge above the
// limit then fails (mm/memcontrol.c try_charge_memcg). In a system call it fails with ENOMEM. A
// page fault is retried until the kernel has freed the oversized buffer, which it does immediately.
// (Before 5.16, such a page fault searched the whole node for a process to kill: mm/oom_kill.c
// pagefault_out_of_memory.)
var unkillable = []byte("-1000")

// protection is the state of this process's protection from OOM kills.
var protection struct {
	sync.Mutex
	files int // number of open Files
	// /proc/self/oom_score_adj while the process is protected; kept open, because later no memory may
	// be left to open it
	score  *os.File
	before []byte // previous oom_score_adj
}

// protect keeps the kernel from OOM-killing this process, until unprotect. If the kernel denies
// that (CAP_SYS_RESOURCE is missing), files are read without protection.
func protect() {
	protection.Lock()
	defer protection.Unlock()
	if protection.files++; protection.files > 1 {
		return
	}
	syscall.ForkLock.RLock() // start no child now, because it would inherit the setting
	if protection.score != nil {
		return // the previous value could not be restored
	}
	score, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0)
	if err != nil {
		return
	}
	var text [16]byte
	n, _ := score.Read(text[:])
	before := bytes.TrimSpace(text[:n])
	if len(before) == 0 || bytes.Equal(before, unkillable) {
		score.Close()
		return
	}
	if _, err := score.Write(unkillable); err != nil {
		score.Close()
		return
	}
	protection.score, protection.before = score, before
}

// unprotect restores the previous value after the last open file is closed.
func unprotect() {
	protection.Lock()
	defer protection.Unlock()
	if protection.files--; protection.files > 0 {
		return
	}
	defer syscall.ForkLock.RUnlock()
	if protection.score == nil {
		return
	}
	if _, err := protection.score.Write(protection.before); err != nil {
		return // the next call restores the value
	}
	protection.score.Close()
	protection.score, protection.before = nil, nil
}

package seqfile

import (
	"bytes"
	"os"
	"sync"
	"syscall"
)

// unkillable is the oom_score_adj of a process that the kernel never OOM-kills (v6.12
// mm/oom_kill.c oom_badness: OOM_SCORE_ADJ_MIN). In a memory cgroup with no other process a
// charge then fails (mm/memcontrol.c try_charge_memcg): with ENOMEM in a system call. A page
// fault is retried instead, so it waits until the kernel has freed the oversized buffer, which
// is immediately. (Before 5.16, and kernels without that fix, such a fault searched the whole
// node for a process to kill: mm/oom_kill.c pagefault_out_of_memory.)
var unkillable = []byte("-1000")

// protection is the state of this process' protection from OOM kills.
var protection struct {
	sync.Mutex
	files int // open files
	// this process' oom_score_adj while it is protected; opened in advance, because later there
	// may be no memory for it
	score  *os.File
	before []byte // previous value
}

// protect keeps the kernel from OOM-killing this process, until unprotect. The setting ends
// with the process. If it is denied (CAP_SYS_RESOURCE is missing), files are read without it.
func protect() {
	protection.Lock()
	defer protection.Unlock()
	if protection.files++; protection.files > 1 {
		return
	}
	syscall.ForkLock.RLock() // a child started now would inherit it
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
		return // the next call restores it
	}
	protection.score.Close()
	protection.score, protection.before = nil, nil
}

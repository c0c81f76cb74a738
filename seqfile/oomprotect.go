package seqfile

import (
	"bytes"
	"os"
	"sync"
	"syscall"
)

// unkillable is the oom_score_adj of a process that the kernel never kills for memory (v6.12
// mm/oom_kill.c oom_badness: OOM_SCORE_ADJ_MIN). Where a memory cgroup has no other, a charge to it
// fails (mm/memcontrol.c try_charge_memcg): with ENOMEM in a system call, while a page fault is
// tried again, and so waits until the buffer that was too large is given back, at once (before
// 5.16, and what was mended like it, the kernel looked for a process to kill on all of the node for
// such a fault: mm/oom_kill.c pagefault_out_of_memory).
var unkillable = []byte("-1000")

// spared is what is known of this process, which is one.
var spared struct {
	sync.Mutex
	files int // that are open
	// this process' oom_score_adj, if it is not to be killed; opened before, for later there may be no
	// memory for it
	score  *os.File
	before []byte // what it was
}

// spare keeps the kernel from killing this process for memory, until unspare. It is a matter of the
// process: nothing is left of it when that ends. Where it is refused (CAP_SYS_RESOURCE is missing),
// files are read all the same.
func spare() {
	spared.Lock()
	defer spared.Unlock()
	if spared.files++; spared.files > 1 {
		return
	}
	syscall.ForkLock.RLock() // a child that was begun now would keep it
	if spared.score != nil {
		return // it could not be put back
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
	spared.score, spared.before = score, before
}

// unspare puts back what was before the first file that is open, once there is none any more.
func unspare() {
	spared.Lock()
	defer spared.Unlock()
	if spared.files--; spared.files > 0 {
		return
	}
	defer syscall.ForkLock.RUnlock()
	if spared.score == nil {
		return
	}
	if _, err := spared.score.Write(spared.before); err != nil {
		return // the next one puts it back
	}
	spared.score.Close()
	spared.score, spared.before = nil, nil
}

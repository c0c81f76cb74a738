package limits

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/cgroup"
	"jettison/internal/repeat"
	"jettison/stats"
	"jettison/stats/read"
)

const (
	// Every is between two passes: a pod that starts is unprotected for as long at most, and what systemd has set back lasts as long.
	Every = 10 * time.Second
	// endLimit is how long Close waits for the pass under way, and then for what is put back; and Mend for that at the start.
	endLimit = time.Second
)

// Node is what a node has; what of it the cgroup above all pods may have; and what is left for pods, less than that where they are not
// held to it (pkg/kubelet/cm/node_container_manager_linux.go GetNodeAllocatableAbsolute, v1.36.3).
type Node struct{ Capacity, Enforced, Left v1.ResourceList }

// Options of New.
type Options struct {
	FS         *cgroup.FS // the part's own, which Close closes
	CgroupRoot string
	Allocatable,
	MemoryQoS bool // what is written at all
	Factor  float64          // memoryThrottlingFactor
	Node    func() Node      // called in the loop's goroutine
	Self    string           // cgroup of this process; empty: it is in no pod
	Kubelet func() bool      // looks for one now; for any goroutine
	Objects func() []*v1.Pod // that are known; for any goroutine
	Tell    Teller           // nil: systemd is not told
	Log     *repeat.Logger
}

// Part is the loop's: passes beside the loop, one at a time. The methods of a nil Part do nothing.
type Part struct {
	o      Options
	writer *Writer

	running    bool
	began      time.Time
	protecting bool // something may be protected
	undoing    bool // the pass under way puts back
	beside     bool // that a kubelet has come was said
	unknown    int  // pods whose request nobody has told, as last said
	results    chan Result

	passing sync.WaitGroup
}

// New makes a Part that has not passed yet. Mend comes before.
func New(o Options) *Part {
	w := &Writer{FS: o.FS, CgroupRoot: o.CgroupRoot, Kubelet: o.Kubelet, Tell: o.Tell}
	return &Part{o: o, writer: w, results: make(chan Result, 1)}
}

// Mend puts back what an agent before this one has left: all protection, which begins anew, and, where node allocatable is not written any
// more, what the cgroups above pods were limited to. Beside a kubelet those limits are left alone: it writes them itself when it starts,
// whatever it enforces, and nobody can tell a value of the agent's from the same value of the kubelet's
// (pkg/kubelet/cm/node_container_manager_linux.go enforceNodeAllocatableCgroups, v1.36.3). It is called at the start, before package
// protect raises anything in the same cgroups.
func Mend(ctx context.Context, fs *cgroup.FS, cgroupRoot string, allocatable bool, kubelet func() bool, tell Teller) Result {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	w := &Writer{FS: fs, CgroupRoot: cgroupRoot, Kubelet: kubelet, Tell: tell}
	r := w.Unprotect(ctx)
	if !allocatable && !kubelet() {
		u := w.Unlimit(ctx)
		r.Restored += u.Restored
		if r.Err == nil {
			r.Err = u.Err
		}
	}
	return r
}

// Tick begins a pass where one is due. Beside a kubelet there is none but one that puts back what is protected.
func (p *Part) Tick(ctx context.Context, now time.Time, kubelet bool, pods read.Index) {
	if p == nil || p.running || now.Sub(p.began) < Every || !p.o.Allocatable && !p.o.MemoryQoS {
		return
	}
	if kubelet && !p.protecting {
		return
	}
	p.running, p.began, p.undoing = true, now, kubelet
	if kubelet {
		p.beginPass(func() Result { return p.writer.Unprotect(ctx) })
		return
	}
	node := p.o.Node()
	o, w, page := p.o, p.writer, uint64(os.Getpagesize())
	known := Known{Runtime: pods, Capacity: amount(node.Capacity), Self: o.Self}
	p.protecting = p.protecting || o.MemoryQoS
	p.beginPass(func() (r Result) {
		if o.Allocatable {
			r = w.Limit(ctx, TargetsOf(node.Enforced))
		}
		if o.MemoryQoS && !r.Beside {
			known.Objects = o.Objects()
			q := w.Protect(ctx, known, Budget{Allocatable: amount(node.Left).V, Factor: o.Factor, Page: page})
			if q.Limited = r.Limited; q.Err == nil {
				q.Err = r.Err
			}
			r = q
		}
		if r.Beside && o.MemoryQoS { // sooner than the loop hears of it
			r.Restored += w.Unprotect(ctx).Restored
		}
		return r
	})
}

// amount is how much memory a list has, in bytes.
func amount(list v1.ResourceList) stats.Opt[uint64] {
	_, ok := list[v1.ResourceMemory]
	return stats.Opt[uint64]{V: memory(list), OK: ok}
}

func (p *Part) beginPass(do func() Result) {
	results := p.results
	p.passing.Go(func() { results <- do() }) // the slot is free: the next pass begins once OnResult has taken this one
}

// Results are what passes did; nil, which never has anything, of a nil Part.
func (p *Part) Results() <-chan Result {
	if p == nil {
		return nil
	}
	return p.results
}

// OnResult logs what a pass did, if anything.
func (p *Part) OnResult(r Result) {
	p.running = false
	if p.undoing && r.Err == nil {
		p.protecting = false
	}
	for _, c := range r.Limited {
		fields := []any{"cgroup", c.Cgroup, "file", c.File, "from", c.From.String(), "to", c.To.String()}
		if c.To.Bytes != c.Target {
			fields = append(fields, "target", c.Target, "reason", "pods use more")
		}
		p.o.Log.Info("node allocatable", fields...)
	}
	if r.Written > 0 || r.Restored > 0 || r.Unknown != p.unknown && !p.undoing {
		p.unknown = r.Unknown
		p.o.Log.Info("memory that pods request", "pods", r.Pods, "unknown", r.Unknown, "written", r.Written, "restored", r.Restored)
	}
	if r.Beside && !p.beside {
		p.o.Log.Info("a kubelet has come: cgroups of pods are left to it")
	}
	p.beside = r.Beside
	if r.Err != nil {
		p.o.Log.Repeat("limits: "+r.Err.Error(), func() { p.o.Log.Warn("cgroups of pods are not as they should be", "error", r.Err) })
	}
}

// Close waits for the pass that is under way, puts back what is protected, and gives the descriptor back. Limits of node allocatable stay,
// as a kubelet leaves its own: an agent that starts anew must not open the node for a moment. What the kernel holds is left behind, and
// put back by Mend at the next start; so it does with what a crash has left.
func (p *Part) Close() error {
	if p == nil {
		return nil
	}
	if !waits(p.passing.Wait) {
		return fmt.Errorf("stop writing to cgroups of pods: the kernel does not end it within %v: %w", endLimit, os.ErrDeadlineExceeded)
	}
	var r Result
	if p.protecting {
		ctx, cancel := context.WithTimeout(context.Background(), endLimit)
		defer cancel()
		undone := make(chan Result, 1)
		p.passing.Go(func() { undone <- p.writer.Unprotect(ctx) })
		if !waits(p.passing.Wait) {
			return fmt.Errorf("put back what protects memory of pods: it takes longer than %v: %w", endLimit, os.ErrDeadlineExceeded)
		}
		r = <-undone
	}
	if err := p.o.FS.Close(); r.Err == nil {
		r.Err = err
	}
	return r.Err
}

// waits reports whether a wait is over in time.
func waits(wait func()) bool {
	done := make(chan struct{})
	go func() { wait(); close(done) }()
	timer := time.NewTimer(endLimit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// Told is what pods may request of a node, and what the cgroup above them may have, as a log line's fields; nil: nothing is reserved.
func Told(capacity v1.ResourceList, r admit.Reserved) (fields []any) {
	if len(r.Kube)+len(r.System) == 0 {
		return nil
	}
	allocatable := admit.Allocatable(capacity, r)
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, admit.ResourcePIDs} {
		if q, ok := allocatable[name]; ok {
			fields = append(fields, string(name), q.String())
		}
	}
	return fields
}

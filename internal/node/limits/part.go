package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/api"
	"jettison/cgroup"
	"jettison/internal/base/logthrottle"
	"jettison/internal/base/retry"
	"jettison/stats"
	"jettison/stats/read"
)

const (
	// Every is between two passes: a pod that starts is unprotected for as long at most, and what
	// systemd has set back lasts as long.
	Every = 10 * time.Second
	// endLimit is how long Close waits for the pass under way, and then for what is put back; and Mend
	// for that at the start.
	endLimit = time.Second
	// mostWait is between two passes that put back, at most, where one after the other cannot do all
	// of it.
	mostWait = 5 * time.Minute
)

// Node is what a node has; what of it the cgroup above all pods may have; and what is left for
// pods, less than that where they are not held to it
// (pkg/kubelet/cm/node_container_manager_linux.go GetNodeAllocatableAbsolute, v1.36.3).
type Node struct{ Capacity, Enforced, Left v1.ResourceList }

// Options of New.
type Options struct {
	FS         *cgroup.FS // the part's own, which Close closes
	CgroupRoot string
	Allocatable,
	MemoryQoS bool // what is written at all
	Left    Left             // by an agent before this one, as Mend says
	Factor  float64          // memoryThrottlingFactor
	Node    func() Node      // called in the loop's goroutine
	Self    string           // cgroup of this process; empty: it is in no pod
	Kubelet func() bool      // looks for one now; for any goroutine
	Objects func() []*v1.Pod // that are known; for any goroutine
	Tell    Teller           // nil: systemd is not told
	Log     *logthrottle.Logger
}

// Part is the loop's: passes beside the loop, one at a time. The methods of a nil Part do nothing.
type Part struct {
	o      Options
	writer *Writer

	running bool
	pass    duty          // the pass under way, or the last one
	written time.Time     // when the last one began that writes
	undone  time.Time     // when the last one began that puts back
	wait    time.Duration // from then to the next one of these
	left    Left          // what may have to be put back
	// protection begins anew: what is left of an agent before this one goes first
	anew    bool
	beside  bool // that a kubelet has come was said
	unknown int  // pods whose request nobody has told, as last said
	results chan Result

	passing sync.WaitGroup
}

// duty is what a pass does.
type duty struct{ limit, protect, unlimit, unprotect bool }

func (d duty) writes() bool { return d.limit || d.protect }
func (d duty) undoes() bool { return d.unlimit || d.unprotect }

// New makes a Part that has not passed yet. Mend comes before.
func New(o Options) *Part {
	w := &Writer{FS: o.FS, CgroupRoot: o.CgroupRoot, Kubelet: o.Kubelet, Tell: o.Tell}
	return &Part{o: o, writer: w, left: o.Left, anew: o.Left.Protection, results: make(chan Result, 1)}
}

// Left is what an agent has left that is still to be put back, or systemd to be told of it.
type Left struct {
	Limits     bool // of the cgroups above all pods
	Protection bool // of the memory that pods request
	Word       bool // to systemd, of either
}

// Mend puts back what an agent before this one has left: all protection, which begins anew, and,
// where node allocatable is not written any more, what the cgroups above pods were limited to. It
// is called at the start, before package protect raises anything in the same cgroups. What is left
// then is a Part's.
//
// Beside a kubelet those limits are left alone, and noted: it writes them itself when it starts,
// whatever it enforces, and nobody can tell a value of the agent's from the same value of the
// kubelet's (pkg/kubelet/cm/node_container_manager_linux.go enforceNodeAllocatableCgroups,
// v1.36.3). Where it is gone for good, nobody wants either: what is the agent's by its note is put
// back, and a value that only the kubelet has written stays.
func Mend(ctx context.Context, fs *cgroup.FS, cgroupRoot string, allocatable bool,
	kubelet func() bool, tell Teller) Result {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	w := &Writer{FS: fs, CgroupRoot: cgroupRoot, Kubelet: kubelet, Tell: tell}
	return w.Undo(ctx, !allocatable, true)
}

// and is what two parts of a pass did, of which the second puts back.
func (r Result) and(o Result) Result {
	return Result{
		Limited: append(r.Limited, o.Limited...), Written: r.Written + o.Written, Restored: r.Restored +
			o.Restored, Pods: r.Pods + o.Pods,
		Unknown: r.Unknown + o.Unknown, Beside: r.Beside || o.Beside, Err: errors.Join(r.Err, o.Err),
		Left: o.Left,
	}
}

// due is what a pass that begins now is to do. Beside a kubelet nothing is written, and nothing put
// back but what is protected.
func (p *Part) due(now time.Time, kubelet bool) (d duty) {
	if now.Sub(p.written) >= Every && !kubelet {
		d.limit, d.protect = p.o.Allocatable, p.o.MemoryQoS
	}
	if now.Sub(p.undone) >= p.wait {
		d.unlimit = (p.left.Limits || p.left.Word) && !p.o.Allocatable && !kubelet
		d.unprotect = (p.left.Protection || p.left.Word) && (kubelet || !p.o.MemoryQoS)
	}
	if p.anew {
		d.protect, d.unprotect = false, d.unprotect || d.protect
	}
	return d
}

// Tick begins a pass where one is due.
func (p *Part) Tick(ctx context.Context, now time.Time, kubelet bool, pods read.Index) {
	if p == nil || p.running {
		return
	}
	d := p.due(now, kubelet)
	if d == (duty{}) {
		return
	}
	var node Node
	if p.running, p.pass = true, d; d.writes() {
		p.written, node = now, p.o.Node()
	}
	if d.undoes() {
		p.undone = now
	}
	p.anew = p.anew && !d.unprotect
	o, w := p.o, p.writer
	p.left.Protection = p.left.Protection || d.protect
	p.beginPass(func() (r Result) {
		if d.limit {
			r = w.Limit(ctx, TargetsOf(node.Enforced))
		}
		if d.protect && !r.Beside {
			known := Known{Objects: o.Objects(), Runtime: pods, Capacity: amount(node.Capacity),
				Self: o.Self}
			r = r.and(w.Protect(ctx, known, Budget{Allocatable: amount(node.Left).V, Factor: o.Factor,
				Page: uint64(os.Getpagesize())}))
		}
		if d.protect && r.Beside { // sooner than the loop hears of it
			r.Restored += w.Undo(ctx, false, true).Restored
		}
		if d.undoes() {
			r = r.and(w.Undo(ctx, d.unlimit, d.unprotect))
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
	// the slot is free: the next pass begins once OnResult has taken this one
	p.passing.Go(func() { results <- do() })
}

// Protects reports whether memory of pods may be protected by what a Part has written, or an agent
// before it, also in the cgroups above them: what another adds to that could not be told from it. A
// nil Part protects none.
func (p *Part) Protects() bool { return p != nil && p.left.Protection }

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
	if p.pass.undoes() {
		p.undid(r.Left)
	}
	for _, c := range r.Limited {
		fields := []any{"cgroup", c.Cgroup, "file", c.File, "from", c.From.String(), "to", c.To.String()}
		if c.To.Bytes != c.Target {
			fields = append(fields, "target", c.Target, "reason", "pods use more")
		}
		p.o.Log.Info("node allocatable", append(fields, api.EventMemory.Attr())...)
	}
	switch {
	case !p.o.MemoryQoS:
		if r.Restored > 0 {
			p.o.Log.Info("put back what was written to cgroups of pods", api.EventMemory.Attr(), "restored",
				r.Restored)
		}
	case r.Written > 0 || r.Restored > 0 || r.Unknown != p.unknown && p.pass.protect:
		p.unknown = r.Unknown
		p.o.Log.Info("memory that pods request", api.EventMemory.Attr(), "pods", r.Pods, "unknown",
			r.Unknown,
			"written", r.Written, "restored", r.Restored)
	}
	if r.Beside && !p.beside {
		p.o.Log.Info("a kubelet has come: cgroups of pods are left to it")
	}
	p.beside = r.Beside
	if r.Err != nil {
		p.o.Log.Repeat("limits: "+r.Err.Error(),
			func() {
				p.o.Log.Warn("cgroups of pods are not as they should be", api.EventMemory.Attr(),
					"error", r.Err)
			})
	}
}

// undid takes what a pass has not put back. It is tried again, further and further apart.
func (p *Part) undid(left Left) {
	if p.pass.unlimit {
		p.left.Limits = left.Limits
	}
	if p.pass.unprotect {
		p.left.Protection = left.Protection
	}
	p.left.Word = left.Word
	if p.wait = retry.Backoff(p.wait, Every, mostWait); left == (Left{}) {
		p.wait = 0
	}
}

// Close waits for the pass that is under way, puts back what is protected, and gives the descriptor
// back. Limits of node allocatable stay, as a kubelet leaves its own: an agent that starts anew
// must not open the node for a moment. What the kernel holds is left behind, and put back by Mend
// at the next start; so it does with what a crash has left.
func (p *Part) Close() error {
	if p == nil {
		return nil
	}
	if !retry.AwaitFunc(p.passing.Wait, endLimit) {
		return fmt.Errorf("stop writing to cgroups of pods: the kernel does not end it within %v: %w",
			endLimit, os.ErrDeadlineExceeded)
	}
	var r Result
	if p.left.Protection {
		ctx, cancel := context.WithTimeout(context.Background(), endLimit)
		defer cancel()
		undone := make(chan Result, 1)
		p.passing.Go(func() { undone <- p.writer.Undo(ctx, false, true) })
		if !retry.AwaitFunc(p.passing.Wait, endLimit) {
			return fmt.Errorf("put back what protects memory of pods: it takes longer than %v: %w", endLimit,
				os.ErrDeadlineExceeded)
		}
		r = <-undone
	}
	if err := p.o.FS.Close(); r.Err == nil {
		r.Err = err
	}
	return r.Err
}

// Told is what pods may request of a node, and what the cgroup above them may have, as a log line's
// fields; nil: nothing is reserved.
func Told(capacity v1.ResourceList, r admit.Reserved) (fields []any) {
	if len(r.Kube)+len(r.System) == 0 {
		return nil
	}
	allocatable := admit.Allocatable(capacity, r)
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory,
		v1.ResourceEphemeralStorage, admit.ResourcePIDs} {
		if q, ok := allocatable[name]; ok {
			fields = append(fields, string(name), q.String())
		}
	}
	return fields
}

package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
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
	// Every is the time between two passes, and so the longest time that a new pod is unprotected,
	// or that values reset by systemd stay.
	Every = 10 * time.Second
	// endLimit bounds Close's wait for the running pass, its wait for the restore, and Restore.
	endLimit = time.Second
	// maxRestorePause is the maximum time between two passes that restore, if single passes cannot restore
	// everything.
	maxRestorePause = 5 * time.Minute
)

// Node has the resources of a node, the enforced limit of the cgroup above all pods, and the
// resources left for pods, which are less if the limit is not enforced
// (pkg/kubelet/cm/node_container_manager_linux.go GetNodeAllocatableAbsolute, v1.37.2).
type Node struct{ Capacity, Enforced, Left v1.ResourceList }

// Options are the options of New.
type Options struct {
	FS         *cgroup.FS // owned by the Part: Close closes it
	CgroupRoot string
	Allocatable,
	MemoryQoS bool // the features to write
	Left    Remaining   // settings of an earlier agent, returned by Restore
	Factor  float64     // memoryThrottlingFactor; 0: nothing is throttled
	Node    func() Node // called in the loop's goroutine
	Self    string      // cgroup of this process; empty: in no pod
	Kubelet func() bool // searches for a kubelet; for any goroutine
	// Objects returns the known pod objects, and the UIDs of those that only members of the socket's
	// group provided; for any goroutine
	Objects func() (all []*v1.Pod, members map[string]bool)
	Tell    Updater // nil: systemd is not updated
	Log     *logthrottle.Logger
}

// Part runs background passes for the loop, one at a time. The methods of a nil Part do nothing.
type Part struct {
	o      Options
	writer *Writer

	running      bool
	pass         duty          // the running pass, or the last one
	lastWrite    time.Time     // start of the last pass that writes
	lastRestore  time.Time     // start of the last pass that restores
	restorePause time.Duration // from lastRestore to the next pass that restores
	left         Remaining     // settings that may have to be restored
	// settings of an earlier agent must be restored before the first protection
	restoreFirst  bool
	kubeletLogged bool    // the detected kubelet was logged
	skipped       Skipped // as last logged
	results       chan Result

	passing sync.WaitGroup
}

// duty is the work of a pass.
type duty struct{ limit, protect, unlimit, unprotect bool }

func (d duty) writes() bool   { return d.limit || d.protect }
func (d duty) restores() bool { return d.unlimit || d.unprotect }

// New creates a Part without any pass. Call Restore before.
func New(o Options) *Part {
	w := &Writer{FS: o.FS, CgroupRoot: o.CgroupRoot, Kubelet: o.Kubelet, Tell: o.Tell}
	return &Part{o: o, writer: w, left: o.Left, restoreFirst: o.Left.Protection, results: make(chan Result, 1)}
}

// Remaining has the settings of an agent that are still to be restored, or that systemd does not know
// yet.
type Remaining struct {
	Limits     bool // limits of the cgroups above all pods
	Protection bool // protection of requested memory
	Systemd    bool // systemd must be updated about either
}

// Restore restores the settings of an earlier agent: all protection, and the limits of the cgroups
// above pods if node allocatable is not written any more. It is called at the start, before package
// selfprotect changes the same cgroups. A Part restores the rest later.
//
// With a kubelet the limits and their notes stay. The kubelet writes these limits when it starts,
// enforced or not, and a value of the agent cannot be distinguished from an equal value of the
// kubelet (pkg/kubelet/cm/node_container_manager_linux.go enforceNodeAllocatableCgroups, v1.37.2).
// After the kubelet is gone, values with a note are restored, and values that only the kubelet
// wrote stay.
func Restore(ctx context.Context, fs *cgroup.FS, cgroupRoot string, allocatable bool,
	kubelet func() bool, tell Updater) Result {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	w := &Writer{FS: fs, CgroupRoot: cgroupRoot, Kubelet: kubelet, Tell: tell}
	return w.Undo(ctx, !allocatable, true)
}

// merge merges the results of two parts of a pass; the second one restores.
func (r Result) merge(o Result) Result {
	return Result{
		Limited: append(r.Limited, o.Limited...), Written: r.Written + o.Written, Restored: r.Restored +
			o.Restored, Pods: r.Pods + o.Pods,
		Skipped: cmp.Or(r.Skipped, o.Skipped), KubeletFound: r.KubeletFound || o.KubeletFound, Err: errors.Join(r.Err, o.Err),
		Left: o.Left,
	}
}

// due returns the work of a pass that starts now. With a kubelet it writes nothing, and restores
// only protection.
func (p *Part) due(now time.Time, kubelet bool) (d duty) {
	if now.Sub(p.lastWrite) >= Every && !kubelet {
		d.limit, d.protect = p.o.Allocatable, p.o.MemoryQoS
	}
	if now.Sub(p.lastRestore) >= p.restorePause {
		d.unlimit = (p.left.Limits || p.left.Systemd) && !p.o.Allocatable && !kubelet
		d.unprotect = (p.left.Protection || p.left.Systemd) && (kubelet || !p.o.MemoryQoS)
	}
	if p.restoreFirst {
		d.protect, d.unprotect = false, d.unprotect || d.protect
	}
	return d
}

// Tick starts a pass if one is due.
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
		p.lastWrite, node = now, p.o.Node()
	}
	if d.restores() {
		p.lastRestore = now
	}
	p.restoreFirst = p.restoreFirst && !d.unprotect
	o, w := p.o, p.writer
	p.left.Protection = p.left.Protection || d.protect
	p.startPass(func() (r Result) {
		if d.limit {
			r = w.Limit(ctx, TargetsOf(node.Enforced))
		}
		if d.protect && !r.KubeletFound {
			objects, members := o.Objects()
			known := Known{Objects: objects, Members: members, Runtime: pods,
				Capacity: amount(node.Capacity), Self: o.Self}
			r = r.merge(w.Protect(ctx, known, Budget{Allocatable: amount(node.Left).V,
				HugePages: hugePages(node.Capacity), Factor: o.Factor, Page: uint64(os.Getpagesize())}))
		}
		if d.protect && r.KubeletFound { // before the loop receives the result
			r.Restored += w.Undo(ctx, false, true).Restored
		}
		if d.restores() {
			r = r.merge(w.Undo(ctx, d.unlimit, d.unprotect))
		}
		return r
	})
}

// amount returns the memory of a list, in bytes.
func amount(list v1.ResourceList) stats.Opt[uint64] {
	_, ok := list[v1.ResourceMemory]
	return stats.Opt[uint64]{V: memory(list), OK: ok}
}

// hugePages returns the memory in huge pages of all sizes, in bytes.
func hugePages(capacity v1.ResourceList) (bytes uint64) {
	for name, q := range capacity {
		if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			bytes = stats.SaturatingAdd(bytes, uint64(max(q.Value(), 0)))
		}
	}
	return bytes
}

func (p *Part) startPass(do func() Result) {
	results := p.results
	// the slot is free: the next pass starts after OnResult has read this one
	p.passing.Go(func() { results <- do() })
}

// Protects reports whether memory of pods may be protected by this Part or an earlier agent,
// including in the cgroups above them. Another writer's addition there could not be distinguished.
// A nil Part protects nothing.
func (p *Part) Protects() bool { return p != nil && p.left.Protection }

// Results returns the channel of results. It is nil for a nil Part.
func (p *Part) Results() <-chan Result {
	if p == nil {
		return nil
	}
	return p.results
}

// OnResult logs the changes of a pass.
func (p *Part) OnResult(r Result) {
	p.running = false
	if p.pass.restores() {
		p.noteLeft(r.Left)
	}
	for _, c := range r.Limited {
		fields := []any{"cgroup", c.Cgroup, "file", c.File, "from", c.From.String(), "to", c.To.String()}
		if c.To.Bytes != c.Target {
			fields = append(fields, "target", c.Target, "reason", "pods use more than the target")
		}
		//log: The agent changed a limit of the cgroup above all pods (writeAllocatable). If pods use more
		//  than the target, to is a step on the way down to it.
		p.o.Log.Info("node allocatable written", append(fields, api.EventMemory.Attr())...)
	}
	switch {
	case !p.o.MemoryQoS:
		if r.Restored > 0 {
			//log: The agent restored the previous values of cgroup files that it, or an earlier agent, wrote.
			p.o.Log.Info("restored pod cgroup settings", api.EventMemory.Attr(), "restored", r.Restored)
		}
	case r.Written > 0 || r.Restored > 0 || r.Skipped != p.skipped && p.pass.protect:
		p.skipped = r.Skipped
		//log: The agent updated the protection of requested memory (memoryQoS). written and restored count
		//  files; the keys unknown, unconfirmed, overAllocatable and inUse count what the pass skipped.
		//do: If unknown stays above 0, provide pod objects (staticPodPath, or a socket client that runs as
		//  root). If unconfirmed does, compare the objects with the containers.
		p.o.Log.Info("memory protection updated", api.EventMemory.Attr(), "pods", r.Pods, "unknown",
			r.Skipped.Unknown, "unconfirmed", r.Skipped.Unconfirmed, "overAllocatable",
			r.Skipped.OverAllocatable, "inUse", r.Skipped.InUse, "written", r.Written, "restored",
			r.Restored)
	}
	if r.KubeletFound && !p.kubeletLogged {
		//log: A kubelet runs now. The agent stops writing pod cgroups and restores the protection of
		//  requested memory; limits of the cgroup above all pods are left to the kubelet.
		p.o.Log.Info("kubelet detected, restoring pod cgroup settings")
	}
	p.kubeletLogged = r.KubeletFound
	if r.Err != nil {
		//log: Some files of pod cgroups, or systemd's properties of their slices, could not be read, written
		//  or restored. The agent retries: writes every 10 s, restores with a backoff of up to 5 minutes.
		//do: Correct the cause in error: a missing capability (CAP_SYS_ADMIN, CAP_DAC_OVERRIDE), a cgroup
		//  controller that is not enabled, an unreachable systemd.
		p.o.Log.Repeat("limits: "+r.Err.Error(),
			func() {
				p.o.Log.Warn("pod cgroup settings incomplete", api.EventMemory.Attr(), "error", r.Err)
			})
	}
}

// noteLeft notes the settings that a pass did not restore. Passes that restore are retried with a
// backoff.
func (p *Part) noteLeft(left Remaining) {
	if p.pass.unlimit {
		p.left.Limits = left.Limits
	}
	if p.pass.unprotect {
		p.left.Protection = left.Protection
	}
	p.left.Systemd = left.Systemd
	if p.restorePause = retry.Backoff(p.restorePause, Every, maxRestorePause); left == (Remaining{}) {
		p.restorePause = 0
	}
}

// Close waits for the running pass, restores protection, and closes the file system. Limits of node
// allocatable stay, as a kubelet leaves its own: a restarted agent must not lift the limits
// meanwhile. Settings that the kernel blocks stay, and Restore restores them at the next start, as
// after a crash.
func (p *Part) Close() error {
	if p == nil {
		return nil
	}
	if !retry.AwaitFunc(p.passing.Wait, endLimit) {
		return fmt.Errorf("stop writing to pod cgroups: still blocked in the kernel after %v: %w",
			endLimit, os.ErrDeadlineExceeded)
	}
	var r Result
	if p.left.Protection {
		ctx, cancel := context.WithTimeout(context.Background(), endLimit)
		defer cancel()
		undone := make(chan Result, 1)
		p.passing.Go(func() { undone <- p.writer.Undo(ctx, false, true) })
		if !retry.AwaitFunc(p.passing.Wait, endLimit) {
			return fmt.Errorf("restore pod cgroups: not finished within %v: %w", endLimit,
				os.ErrDeadlineExceeded)
		}
		r = <-undone
	}
	if err := p.o.FS.Close(); r.Err == nil {
		r.Err = err
	}
	return r.Err
}

// AllocatableFields returns node allocatable as keys of a log line; nil: nothing is reserved.
func AllocatableFields(capacity v1.ResourceList, r admit.Reserved) (fields []any) {
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

package evictions

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"jettison/api"
	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/node/kill"
	"jettison/internal/node/podfiles"
	"jettison/stats/read"
)

// cleanGrace is the time that the runtime has to clean up after the agent began to stop.
const cleanGrace = 3 * time.Second

// Event is a report of an eviction's goroutine to the loop.
type Event struct {
	job   *job
	stage stage
	err   error
}

type stage int

const (
	emptied  stage = iota // no process is left, or err
	uncached              // its page cache was dropped as far as possible
	cleaned               // the runtime has cleaned up, or err
)

// carrier carries out evictions, each on its own goroutine. It cannot access the loop's state.
type carrier struct {
	client *cri.Client
	host   *read.HostRoot // nil: nothing is removed or unmounted
	remove podfiles.Remover
	log    *slog.Logger
	events chan<- Event
	// kubeletNow checks whether a kubelet runs now. nil: none.
	kubeletNow func() bool
	begun      *atomic.Int64 // number of evictions so far
}

// leftToKubelet reports whether a kubelet started since the eviction began: the pod's leftovers are
// then the kubelet's to remove.
func (c *carrier) leftToKubelet(j *job) bool {
	if c.kubeletNow == nil || !c.kubeletNow() {
		return false
	}
	pod := j.victim.Pod
	//log: A kubelet started during the eviction. The agent leaves the pod's leftovers to it.
	c.log.Info("pod leftovers left to kubelet", api.EventEviction.Attr(), "pod",
		pod.Namespace+"/"+pod.Name,
		"uid", pod.UID)
	return true
}

// job is the state of an eviction that its goroutine uses.
type job struct {
	victim  *kill.Victim
	began   time.Time
	cancel  context.CancelFunc // ends its goroutine
	urgent  bool               // the kill was tried; killErr is its error
	killErr error
	// how long a victim that an earlier process killed may still take to die; 0: eviction.DieLimit
	dieWithin time.Duration
	grace     time.Duration
	cgroup    bool        // the kernel reports whether the victim is dead (Victim.Located)
	cache     bool        // drop its page cache: memory may be short
	remove    atomic.Bool // remove its leftovers on disk; set by the loop
	unmount   atomic.Bool // unmount its volumes in memory; set by the loop
}

// carryOut completes an eviction. It returns when nothing is left to do.
func (c *carrier) carryOut(ctx context.Context, j *job) {
	defer j.victim.Close()
	defer j.cancel()
	report := func(s stage, err error) {
		select {
		case c.events <- Event{j, s, err}:
		case <-ctx.Done():
		}
	}
	// After the agent began to stop, an eviction in progress is completed within cleanGrace.
	cleaning, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(cleanGrace, cancel) })()
	slow := func(err error) {
		//log: The runtime has failed for minutes to clean up after an evicted pod. The agent keeps
		//  retrying.
		//do: Check the container runtime: its log, and whether its disk is full.
		c.log.Error("runtime slow to clean up, continuing",
			api.EventEviction.Attr(), "error", err)
	}
	clean := func(ctx context.Context) error { return j.victim.Clean(ctx, c.client, slow) }

	alive := c.waitEmpty(ctx, cleaning, j, clean)
	report(emptied, alive)
	if alive != nil && ctx.Err() != nil && !j.urgent && !j.victim.Killed() {
		return // the victim is in its grace period: cleaning up would kill it immediately
	}
	if alive == nil && j.cgroup {
		c.unmountShared(j.victim) // the runtime unmounts it seconds later, or never
		c.dropCache(cleaning, j)
	}
	if alive == nil {
		report(uncached, nil)
	}
	err := clean(cleaning)
	if alive != nil && err == nil && j.victim.WaitEmpty(ctx, 0) == nil {
		report(emptied, nil) // it died late
		report(uncached, nil)
	}
	switch {
	case err != nil:
	case j.remove.Load() && !c.leftToKubelet(j):
		c.removeFiles(cleaning, j.victim)
	default:
		c.unmountShared(j.victim) // for sandboxes that were unknown before
		if j.unmount.Load() && !c.leftToKubelet(j) {
			c.unmountVolumes(cleaning, j.victim)
		}
	}
	report(cleaned, err)
}

// dropCache drops a dead victim's page cache until the next eviction begins. The kernel holds a
// lock while it removes a cgroup, and the next kill would have to wait for that lock.
func (c *carrier) dropCache(ctx context.Context, j *job) {
	if !j.cache {
		return
	}
	before := c.begun.Load()
	j.victim.DropCache(ctx, func() bool { return c.begun.Load() != before })
}

// waitEmpty waits until no process of the victim is left. If the kernel did not kill the victim,
// the runtime stops it. alive is the reason why the victim is not known to be dead.
func (c *carrier) waitEmpty(ctx, cleaning context.Context, j *job,
	clean func(context.Context) error) (alive error) {
	if j.urgent && j.killErr == nil {
		limit := cmp.Or(j.dieWithin, eviction.DieLimit)
		if alive = j.victim.WaitEmpty(ctx, limit); !errors.Is(alive, kill.ErrNotKilled) {
			return alive
		}
	}
	if j.urgent { // the kernel rejected the kill, so the runtime has to kill
		short, stop := context.WithTimeout(cleaning, eviction.DieLimit)
		err := clean(short)
		stop()
		if alive = j.victim.WaitEmpty(ctx, 0); !j.cgroup {
			alive = errors.Join(err, alive) // only the runtime's answer is known
		}
		return alive
	}
	return j.victim.Stop(ctx, c.client, j.grace)
}

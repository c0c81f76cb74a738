package evictions

import (
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

// cleanGrace is for the runtime to clean up once the agent is told to stop.
const cleanGrace = 3 * time.Second

// Event is what the goroutine that carries out an eviction reports to the loop.
type Event struct {
	job   *job
	stage stage
	err   error
}

type stage int

const (
	emptied  stage = iota // no process is left, or err
	uncached              // its page cache was given back, as far as that could be
	cleaned               // the runtime has cleaned up, or err
)

// carrier carries out evictions, each on a goroutine of its own. It cannot reach what belongs to
// the loop.
type carrier struct {
	client *cri.Client
	host   *read.HostRoot // nil: nothing is removed or unmounted
	remove podfiles.Remover
	log    *slog.Logger
	events chan<- Event
	// kubelet looks whether one is there now. nil: none is.
	kubelet func() bool
	begun   *atomic.Int64 // evictions so far
}

// left tells that a kubelet has come since the eviction began: what the pod has left is that one's
// to remove.
func (c *carrier) left(j *job) bool {
	if c.kubelet == nil || !c.kubelet() {
		return false
	}
	pod := j.victim.Pod
	c.log.Info("what a pod has left stays: a kubelet is there now", api.EventEviction.Attr(), "pod",
		pod.Namespace+"/"+pod.Name,
		"uid", pod.UID)
	return true
}

// job is one eviction as its goroutine knows it.
type job struct {
	victim  *kill.Victim
	began   time.Time
	cancel  context.CancelFunc // ends its goroutine
	urgent  bool               // it was killed already, or killErr says why not
	killErr error
	grace   time.Duration
	cgroup  bool        // it is known, so the kernel's word counts
	cache   bool        // its page cache is given back: memory may be short
	remove  atomic.Bool // what it leaves on disk is removed too; the loop sets it
	unmount atomic.Bool // its volumes in memory are unmounted, likewise
}

// carryOut brings an eviction to its end. It returns when nothing is left to do for it.
func (c *carrier) carryOut(ctx context.Context, j *job) {
	defer j.victim.Close()
	defer j.cancel()
	report := func(s stage, err error) {
		select {
		case c.events <- Event{j, s, err}:
		case <-ctx.Done():
		}
	}
	// What was begun is brought to its end when the agent is told to stop, but not for long.
	cleaning, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(cleanGrace, cancel) })()
	slow := func(err error) {
		c.log.Error("the runtime is slow to clean up, going on",
			api.EventEviction.Attr(), "error", err)
	}
	clean := func(ctx context.Context) error { return j.victim.Clean(ctx, c.client, slow) }

	alive := c.empty(ctx, cleaning, j, clean)
	report(emptied, alive)
	if alive != nil && ctx.Err() != nil && !j.urgent && !j.victim.Killed() {
		return // it is in its grace period: to clean up would kill it at once
	}
	if alive == nil && j.cgroup {
		c.unmountShared(j.victim) // the runtime takes seconds, or forgets it
		c.dropCache(cleaning, j)
	}
	if alive == nil {
		report(uncached, nil)
	}
	err := clean(cleaning)
	if alive != nil && err == nil && j.victim.WaitEmpty(ctx, 0) == nil {
		report(emptied, nil) // late, but it died
		report(uncached, nil)
	}
	switch {
	case err != nil:
	case j.remove.Load() && !c.left(j):
		c.removeFiles(cleaning, j.victim)
	default:
		c.unmountShared(j.victim) // of sandboxes that were not known before
		if j.unmount.Load() && !c.left(j) {
			c.unmountVolumes(cleaning, j.victim)
		}
	}
	report(cleaned, err)
}

// dropCache drops a dead victim's page cache, until the next eviction begins: that one's kill may
// have to wait for a lock that the kernel holds where a cgroup is removed meanwhile.
func (c *carrier) dropCache(ctx context.Context, j *job) {
	if !j.cache {
		return
	}
	before := c.begun.Load()
	j.victim.DropCache(ctx, func() bool { return c.begun.Load() != before })
}

// empty waits until no process of the victim is left, or has the runtime end it. The error says why
// it is not known to be dead.
func (c *carrier) empty(ctx, cleaning context.Context, j *job,
	clean func(context.Context) error) (alive error) {
	if j.urgent && j.killErr == nil {
		if alive = j.victim.WaitEmpty(ctx, eviction.DieLimit); !errors.Is(alive, kill.ErrNotKilled) {
			return alive
		}
	}
	if j.urgent { // the kernel's way was refused, so the runtime is what kills
		short, stop := context.WithTimeout(cleaning, eviction.DieLimit)
		err := clean(short)
		stop()
		if alive = j.victim.WaitEmpty(ctx, 0); !j.cgroup {
			alive = errors.Join(err, alive) // the runtime's word is all there is
		}
		return alive
	}
	return j.victim.Stop(ctx, c.client, j.grace)
}

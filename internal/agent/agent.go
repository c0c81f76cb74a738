// Package agent is the loop that keeps a node alive: look, decide, act, look again. One goroutine
// owns all mutable state, in parts: each has its own fields and a handler for what it is told. What
// may block runs beside the loop, in types that cannot reach those fields.
//
//	agent.go      Options, Run: what is begun, in order, and ended
//	builder.go    what the parts need, opened and closed
//	begin.go      what is done before the loop: what there is said, what a crash has left mended,
//	              what was under way resumed
//	loop.go       the loop: it selects, and hands each event to the part that it belongs to
//	look.go       the cheap look and what follows from it; what is done once a second
//	decide.go     the dear looks and the decision, when a threshold asks for a victim
//	gateway.go    the gate in the runtime, and what new pods are decided by
//	preempt.go    pods that go for a critical one
//	deschedule.go pods that should not be here any more
//	capacity.go   what this node has, and thresholds and reservations that it cannot satisfy
//	reload.go     another configuration, while it runs
//	own.go        the agent's own memory, kept from being reclaimed
//	reserve.go    node allocatable, and protection of what pods request, as far as they are written
//	shown.go      conditions in the log, and the State that others read
//	metered.go    what metrics say
//	served.go     what looks and listens for others, beside the unix socket, and where that is
//	outlook.go    whom each threshold would have evicted, for those who ask
//
// The parts:
//
//	internal/agent/looks      reads the node and its pods
//	internal/agent/pace       when to look again
//	internal/agent/wakes      what the kernel tells by itself
//	internal/agent/podlister     the runtime's pods
//	internal/agent/admission  whether the node takes a pod
//	internal/agent/gate       what the runtime tells by itself; evicted pods are kept out
//	internal/agent/objects    pod objects: the socket and static manifests
//	internal/node/priorities pods of unknown priority, counted
//	internal/node/kubeletdetect     whether a kubelet is on this node
//	internal/agent/evictions  evictions under way, and their records
//	internal/node/nodedescheduler pods that should not be here any more
//	internal/agent/squeeze    cold memory, given back before a pod goes
//	internal/node/garbage    garbage, collected in passes and before a pod goes for a disk
//	internal/agent/logrotate     logs of live containers, where no kubelet rotates them
//	internal/node/limits     node allocatable and memory that pods request, in pods' cgroups
//	internal/agent/trim       memory of the agent's own
//	internal/agent/reload     the configuration, read again
//	internal/node/kill       the self-test of the kill ladder
//	internal/node/frames     recordings for jettison replay
package agent

import (
	"context"
	"log/slog"
	"os"
	"time"

	"jettison/internal/agent/pace"
	"jettison/internal/agent/reload"
	"jettison/internal/agent/serve/eventlog"
	"jettison/internal/node/config"
	"jettison/internal/node/kill"
	"jettison/internal/node/selfprotect"
	"jettison/internal/node/sources"
)

// Options of Run.
type Options struct {
	Config *config.Loaded
	// Find reads the configuration again, at a signal of Hangup or when a file has changed; nil: it is
	// never read again.
	Find        func(context.Context) (*config.Loaded, error)
	Hangup      <-chan os.Signal
	CgroupMount string // empty: cgroup.DefaultMount
	ProcMount   string // empty: /proc
	HostRoot    string // the node's root directory; empty: /
	DryRun      bool
	Ladder      kill.Ladder // zero: all of it
	Log         *slog.Logger
	LogDropped  func() uint64 // lines of it that were dropped so far; nil: none ever is
	Version     string
}

// Run checks what the agent needs, waits for the runtime's first answer and then keeps the node
// alive until ctx ends. It returns an error only for what was wrong at the start.
func Run(ctx context.Context, o Options) error {
	s, err := sources.Open(sources.Options{Config: o.Config, CgroupMount: o.CgroupMount,
		ProcMount: o.ProcMount, Act: !o.DryRun})
	if err != nil {
		return err
	}
	defer s.Close()
	ring := eventlog.NewRing(time.Now())
	o.Log = slog.New(eventlog.NewHandler(ring, o.Log.Handler()))
	refused := selfprotect.Self(o.Config.Pprof)
	// Before the first list: either takes megabytes, and what a list has left is given back later.
	var fill float64
	// pods have them, and are several times faster by that
	selfprotect.WithHugePages(func() { fill = pace.MeasureFill(pace.Cores()) })
	pacer := pace.New(fill, pace.Cores())
	b, ran := newBuilder(o, s, ring), false
	defer func() {
		b.close()
		if ran { // whoever waits for the line may kill the process then: all is put back
			b.log.Info("stopped")
		}
	}()
	if err := b.listen(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	l, err := b.build(ctx, pacer)
	if err != nil {
		return err
	}
	b.announce(l, refused)
	b.unlimit(ctx, l)
	b.protect(l)
	b.limit(l)
	l.tryOut(ctx)
	for _, err := range selfprotect.Lock() {
		l.log.Warn("not as it should be", "error", err)
	}
	l.warmUp(time.Now()) // what a decision takes is in memory from now on
	b.s.Reader.Beside()
	ctx, cancel := context.WithCancel(ctx)
	b.later(cancel)
	l.onObjects() // what was handed over meanwhile counts at the first look already
	l.upkeep.unknown.Start()
	b.later(l.pods.Start(ctx))
	b.later(l.wakes.Start())
	l.admission(time.Now()) // before the runtime asks
	b.later(l.gate.Start(ctx))
	b.later(cancel)
	b.mend(l)
	b.resume(ctx, l, time.Now())
	if o.Find != nil {
		b.closing(l.upkeep.reload.Start(reload.Options{Find: o.Find, Asks: o.Hangup}))
	}
	l.run(ctx)
	l.evictions.Interrupted()
	cancel()
	l.end()
	ran = true
	return nil
}

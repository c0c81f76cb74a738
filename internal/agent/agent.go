// Package agent is the agent's loop: look, decide, act, look again. One goroutine owns all mutable
// state, divided into parts: each has its own fields and handlers for its events. Work that may
// block runs outside of the loop, in types that cannot reach those fields.
//
//	agent.go      Options, Run: start, in order, and end
//	builder.go    creates the parts and their resources, and closes them
//	begin.go      before the loop: logs the start, restores after a crash, resumes evictions
//	loop.go       the loop: it selects, and passes each event to its part
//	look.go       the cheap look and its consequences; the work of each second
//	decide.go     the full looks and the decision, when a threshold needs a victim
//	gateway.go    the gate in the runtime, and admission of new pods
//	preempt.go    preemption for critical pods
//	deschedule.go pods that violate their placement
//	capacity.go   the node's capacity; thresholds and reservations that exceed it
//	reload.go     a new configuration at runtime
//	ownmemory.go  protection of the agent's own memory
//	reserve.go    node allocatable and memory protection of pods in cgroups
//	publisher.go  conditions in the log, and the published State
//	metrics.go    metrics
//	served.go     readers and listeners other than the Unix socket
//	outlook.go    the victim of each threshold, on request
//
// The parts:
//
//	internal/agent/looks          reads the node and its pods
//	internal/agent/pace           computes the time of the next look
//	internal/agent/wakes          receives events of the kernel
//	internal/agent/podlister      maintains the runtime's pods
//	internal/agent/admission      decides whether the node admits a pod
//	internal/agent/gate           receives runtime events, and refuses evicted pods
//	internal/agent/objects        pod objects from the socket and static manifests
//	internal/node/priorities      counts pods of unknown priority
//	internal/node/kubeletdetect   detects a kubelet on this node
//	internal/agent/evictions      evictions in progress, and their records
//	internal/node/nodedescheduler selects pods that violate their placement
//	internal/agent/squeeze        proactive reclaim of cold memory
//	internal/node/garbage         garbage collection, periodic and before an eviction for a disk
//	internal/agent/logrotate      rotates logs of running containers without a kubelet
//	internal/node/limits          node allocatable and memory protection in pods' cgroups
//	internal/agent/trim           returns the agent's own memory
//	internal/agent/reload         reads the configuration again
//	internal/node/kill            the kill ladder and its self-test
//	internal/node/frames          recordings for jettison replay
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

// Options configures Run.
type Options struct {
	Config *config.Loaded
	// Find reads the configuration again, on Hangup or after a file changed. nil: never.
	Find        func(context.Context) (*config.Loaded, error)
	Hangup      <-chan os.Signal
	CgroupMount string // empty: cgroup.DefaultMount
	ProcMount   string // empty: /proc
	HostRoot    string // the node's root directory; empty: /
	DryRun      bool
	Ladder      kill.Ladder // zero: all steps
	Log         *slog.Logger
	LogDropped  func() uint64 // number of dropped log lines; nil: none are ever dropped
	Version     string
}

// Run checks the agent's requirements, waits for the runtime's first answer, and then runs the loop
// until ctx ends. It returns an error only for problems at start.
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
	// Before the first list: both need megabytes, and the memory of a list is returned later.
	var fill float64
	// pods have huge pages, which make them several times faster
	selfprotect.WithHugePages(func() { fill = pace.MeasureFill(pace.Cores()) })
	pacer := pace.New(fill, pace.Cores())
	b, ended := newBuilder(o, s, ring), false
	defer func() {
		b.close()
		if ended { // after this line the process may be killed: everything is restored
			//log: The agent ended regularly and restored all settings of the node.
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
	b.restoreLimits(ctx, l)
	b.protect(l)
	b.startLimits(l)
	for _, err := range selfprotect.Lock() {
		l.log.Warn("self-protection incomplete", "error", err)
	}
	// Lock drops the program's pages. The warm-up and the self-test map those of a decision and of a
	// kill again, which stay locked: the first eviction waits for no disk.
	l.warmUp(time.Now())
	l.selfTest(ctx)
	b.s.Reader.StartLister()
	ctx, cancel := context.WithCancel(ctx)
	b.onClose(cancel)
	l.onObjects() // objects provided until now count in the first look
	l.upkeep.unknown.Start()
	b.onClose(l.pods.Start(ctx))
	b.onClose(l.wakes.Start())
	l.admission(time.Now()) // before the runtime asks the gate
	b.onClose(l.gate.Start(ctx))
	b.onClose(cancel)
	b.restoreKills(l)
	b.resume(ctx, l, time.Now())
	if o.Find != nil {
		b.onCloseErr(l.upkeep.reload.Start(reload.Options{Find: o.Find, Signals: o.Hangup}))
	}
	l.run(ctx)
	l.evictions.Interrupted()
	cancel()
	l.end()
	ended = true
	return nil
}

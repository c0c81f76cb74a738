// Package gate receives the container runtime's events on pods through NRI, and refuses evicted
// pods during their hold-off. A kubelet that does not know of an eviction starts the pod's
// containers again; without the gate they would be back within seconds.
//
//	gate.go            Gate: the runtime's plugin, for the loop
//	restartholdoff.go  HoldOffs: evicted pods and the ends of their hold-offs
//	owner.go           Owner: the controller that brings a pod back under another UID
//
// The plugin answers from memory: the runtime waits for its plugins and must never wait for the
// loop.
package gate

import (
	"context"
	"time"

	"jettison/api"
	"jettison/cgroup"
	"jettison/cri/nri"
	"jettison/internal/base/logthrottle"
	"jettison/stats"
)

// Options configures New.
type Options struct {
	Socket string    // empty: nri.DefaultSocket
	Asker  nri.Asker // decides on pods without a hold-off; nil: all may start
	Log    *logthrottle.Logger
	Name   func(stats.PodReference) string // of a pod, in the log
	Owner  func(uid string) Owner          // of a pod by its object; nil: no objects are known
	Marked func(uid string) bool           // the object shows the eviction; nil: no objects are known
}

// Gate is the loop's side of the plugin. It refuses pods through HoldOffs, which the plugin reads
// without a lock.
type Gate struct {
	HoldOffs
	o                 Options
	enforce           bool        // evicted pods are refused if the runtime asks
	plugin            *nri.Plugin // nil: none
	synced            bool        // the runtime reports every pod
	loggedUnavailable bool        // the lack of events was logged
}

// New creates a Gate that is not connected. vetoes: evicted pods are refused; otherwise the plugin
// only listens.
func New(o Options, vetoes bool) *Gate {
	return &Gate{HoldOffs: HoldOffs{histories: map[string]history{}, owner: o.Owner, marked: o.Marked},
		o: o, enforce: vetoes}
}

// Start connects to the runtime as a plugin: it then reports events as they happen, and evicted
// pods are refused. The returned function waits for the plugin, which ends with ctx.
func (g *Gate) Start(ctx context.Context) (wait func()) {
	// The runtime starts pods one after the other, so the answering thread gets a high priority;
	// without the privilege it runs at the normal one.
	o := nri.Options{Socket: g.o.Socket, Thread: func() { _, _ = cgroup.RaiseThread() }}
	if g.enforce {
		o.HoldOffs = &g.shared
	}
	o.Asker = g.o.Asker
	plugin, err := nri.New(o)
	if err != nil {
		//log: The NRI plugin could not be created. The agent learns of pods only from lists, and cannot
		//  refuse evicted pods.
		//do: See the key error, and check the path of the NRI socket.
		g.o.Log.Error("NRI plugin not started", api.EventRuntime.Attr(),
			"error", err)
		return func() {}
	}
	g.plugin = plugin
	done := make(chan struct{})
	go func() {
		defer close(done)
		plugin.Run(ctx)
	}()
	return func() { <-done }
}

// Updates returns the plugin's channel; nil, which never receives, without a plugin.
func (g *Gate) Updates() <-chan nri.Update {
	if g.plugin == nil {
		return nil
	}
	return g.plugin.Updates()
}

// Enforces reports whether evicted pods are refused: the runtime asks before it starts one.
func (g *Gate) Enforces() bool { return g.synced && g.enforce }

// HeldOff returns why a pod that was evicted, or that replaces one, is in its hold-off: the text
// that the runtime would get. of has its namespace and name, and the controller from its object. It
// is safe for concurrent use.
func (g *Gate) HeldOff(now time.Time, uid string, of Owner) (why string, held bool) {
	if !g.enforce {
		return "", false
	}
	for _, key := range []string{uid, nri.PodKey(of.Namespace, of.Name), of.key()} {
		if hold, held := g.shared.Held(now, key); held && key != "" {
			return hold.Reason, true
		}
	}
	return "", false
}

// Asked reports whether the runtime asks before it starts a pod.
func (g *Gate) Asked() bool { return g.synced && g.o.Asker != nil }

// OnUpdate processes an update of the plugin. all: the runtime reports every pod as it starts and
// ends.
func (g *Gate) OnUpdate(u nri.Update) (all bool) {
	s := u.State
	switch {
	case s.Synced && !g.synced:
		//log: The runtime reports pods as they start and end (NRI). If gate is true, evicted pods are
		//  refused during their hold-off.
		g.o.Log.Info("runtime events connected", api.EventRuntime.Attr(),
			"runtime", s.Runtime,
			"version", s.Version, "gate", g.enforce)
	case s.Err != nil && (g.synced || !g.loggedUnavailable):
		//log: The runtime does not report pods as they start and end. The agent lists pods instead, and
		//  evicted pods are not refused.
		//do: Enable NRI in the container runtime, and check its socket. See the key error.
		g.o.Log.Warn("runtime events unavailable", api.EventRuntime.Attr(),
			"error", s.Err)
		g.loggedUnavailable = true
	}
	g.synced = s.Synced
	for _, v := range u.Vetoes {
		pod := stats.PodReference{UID: v.UID, Namespace: v.Namespace, Name: v.Name}
		g.o.Log.Repeat("veto "+v.UID, func() {
			//log: The runtime asked to start a pod, or a container of one, that was evicted lately. The gate
			//  refused it until the end of its hold-off.
			g.o.Log.Info("evicted pod rejected", api.EventGate.Attr(), "pod", g.o.Name(pod),
				"container", v.Container,
				"reason", v.Reason)
		})
	}
	return g.synced
}

// Package gate listens to what the container runtime tells of its pods as they come and go, and
// keeps out pods that were evicted. A kubelet starts the containers of a pod anew that it does not
// know to be evicted; without the gate they would be back within seconds.
//
//	gate.go     Gate: the runtime's plugin, for the loop
//	holdoff.go  HoldOffs: who is kept out, and how long
//	owner.go    Owner: what brings a pod back under another UID
//
// The plugin answers the runtime from memory: a runtime waits for its plugins, and must never wait
// for the loop.
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

// Options of New.
type Options struct {
	Socket string    // empty: nri.DefaultSocket
	Asker  nri.Asker // decides on pods that are not held off; nil: all are let in
	Log    *logthrottle.Logger
	Name   func(stats.PodReference) string // of a pod, in the log
	Owner  func(uid string) Owner          // of a pod, as its object tells; nil: no objects are known
	Marked func(uid string) bool           // its object says that it was evicted; nil: likewise
}

// Gate is the loop's part. It keeps pods out through HoldOffs, which the plugin reads without a
// lock.
type Gate struct {
	HoldOffs
	o       Options
	vetoes  bool        // evicted pods are kept out where the runtime asks
	plugin  *nri.Plugin // nil: there is none
	synced  bool        // the runtime tells of every pod
	saidNRI bool        // that it does not was logged
}

// New makes a Gate that is not connected. vetoes: evicted pods are kept out; else the plugin only
// listens.
func New(o Options, vetoes bool) *Gate {
	return &Gate{HoldOffs: HoldOffs{held: map[string]heldOff{}, owner: o.Owner, marked: o.Marked},
		o: o, vetoes: vetoes}
}

// Start connects to the runtime as a plugin: events come as they happen, and evicted pods are kept
// out. The returned function waits for the plugin, which ends with ctx.
func (g *Gate) Start(ctx context.Context) (wait func()) {
	// Pods start one after the other: what answers is not to wait for its turn. Where that is refused
	// it waits as others do.
	o := nri.Options{Socket: g.o.Socket, Thread: func() { _, _ = cgroup.RaiseThread() }}
	if g.vetoes {
		o.HoldOffs = &g.shared
	}
	o.Asker = g.o.Asker
	plugin, err := nri.New(o)
	if err != nil {
		g.o.Log.Error("no runtime events, and evicted pods are not kept out", api.EventRuntime.Attr(),
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

// Updates is the plugin's channel; nil, which never has anything, without one.
func (g *Gate) Updates() <-chan nri.Update {
	if g.plugin == nil {
		return nil
	}
	return g.plugin.Updates()
}

// Keeps reports that evicted pods are kept out: the runtime asks before it lets one in.
func (g *Gate) Keeps() bool { return g.synced && g.vetoes }

// HeldOff says why a pod is kept out that was evicted, or that has come in place of one that was,
// as the runtime would be told. of has its namespace and name, and the controller that its object
// tells. It is safe for concurrent use.
func (g *Gate) HeldOff(now time.Time, uid string, of Owner) (why string, held bool) {
	if !g.vetoes {
		return "", false
	}
	for _, key := range []string{uid, nri.PodKey(of.Namespace, of.Name), of.key()} {
		if hold, held := g.shared.Held(now, key); held && key != "" {
			return hold.Reason, true
		}
	}
	return "", false
}

// Asked reports that the runtime asks before it lets a pod in.
func (g *Gate) Asked() bool { return g.synced && g.o.Asker != nil }

// OnTold takes what the runtime told its plugin. all: it tells of every pod as it comes and goes.
func (g *Gate) OnTold(u nri.Update) (all bool) {
	s := u.State
	switch {
	case s.Synced && !g.synced:
		g.o.Log.Info("the runtime tells of its pods as they come and go", api.EventRuntime.Attr(),
			"runtime", s.Runtime,
			"version", s.Version, "gate", g.vetoes)
	case s.Err != nil && (g.synced || !g.saidNRI):
		g.o.Log.Warn("the runtime does not tell of its pods as they come and go: they are listed, and "+
			"evicted pods are not kept out", api.EventRuntime.Attr(),
			"error", s.Err)
		g.saidNRI = true
	}
	g.synced = s.Synced
	for _, v := range u.Vetoes {
		pod := stats.PodReference{UID: v.UID, Namespace: v.Namespace, Name: v.Name}
		g.o.Log.Repeat("veto "+v.UID, func() {
			g.o.Log.Info("an evicted pod is kept out", api.EventGate.Attr(), "pod", g.o.Name(pod),
				"container", v.Container,
				"reason", v.Reason)
		})
	}
	return g.synced
}

// Package nri is the agent's plugin for the Node Resource Interface of the container runtime. It
// receives events of pods and containers, and rejects pods in their hold-off. It implements the
// protocol itself (ttrpc over multiplexed frames, protobuf) instead of using
// github.com/containerd/nri/pkg/stub. That package blocks forever if the runtime exits between the
// registration and Configure (v0.12.5 stub.go, Start waits for cfgErrC with the lock that
// connClosed needs), decodes each message completely, and links a WebAssembly runtime.
//
//	nri.go      Plugin: connects, answers, publishes its state
//	holds.go    HoldOffs: the pods in their hold-off
//	index.go    the pods and containers known from events
//	conn.go     the connection
//	share.go    the CPU limit of the plugin's thread
//	wire.go     frames and messages
//	decode.go   protobuf
package nri

import (
	"context"
	"errors"
	"fmt"
	"os"
	goruntime "runtime" // in this package, runtime means the container runtime
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"jettison/cri"
)

// DefaultSocket is the socket on which runtimes listen for plugins. /var/run is a link to /run.
const DefaultSocket = "/run/nri/nri.sock"

// Name of the plugin, and its position: after the plugins that change containers.
const (
	name     = "jettison"
	position = "90"
)

// Options configures New. The zero value is a plugin that holds no pod off.
type Options struct {
	Socket   string    // empty: DefaultSocket; unix:///PATH is accepted too
	HoldOffs *HoldOffs // pods in their hold-off; nil: none
	Asker    Asker     // decides on all other pods; nil: they are admitted
	// Run calls Thread once, on the thread that afterwards only reads requests and answers them.
	// Thread may raise the thread's priority. nil: Run uses no separate thread.
	Thread func()
}

// Asker decides on pods that the runtime is about to start. Run's goroutine calls its methods while
// the runtime is blocked, so they must not wait for anything.
type Asker interface {
	// Reject returns the reason to reject a pod; empty: the pod is admitted. It is called once per
	// sandbox, before the sandbox runs; container is then empty. A sandbox that is older than the
	// connection is admitted. For one that is unknown, because the runtime has more than maxPods, it
	// is called before each container; container is then its name. The caller owns pod.
	Reject(now time.Time, pod *cri.PodSandbox, container string) (why string)
	// SandboxRemoved reports that no sandbox or container of a pod is alive.
	SandboxRemoved(uid string)
	// RecordAnswer reports the time that the runtime waited, from reading its request to writing the
	// answer. heldOff: the pod was rejected because of a Hold.
	RecordAnswer(took time.Duration, heldOff bool)
}

// admitAll is the Asker that admits all pods.
type admitAll struct{}

func (admitAll) Reject(time.Time, *cri.PodSandbox, string) string { return "" }
func (admitAll) SandboxRemoved(string)                            {}
func (admitAll) RecordAnswer(time.Duration, bool)                 {}

// State is the state of the connection to the runtime.
type State struct {
	// Synced: the runtime has sent all its pods and sends each change. Otherwise an Update has no
	// Pods.
	Synced           bool
	Runtime, Version string // as reported by the runtime; empty: not yet
	Err              error  // why the plugin is not connected; nil: connected, or not tried yet
	// Skipped counts pods, containers and events of this connection that were malformed or exceeded a
	// limit.
	Skipped uint64
}

// Veto is the rejection of a pod in its hold-off, or of one of its containers.
type Veto struct {
	Time                 time.Time
	UID, Namespace, Name string // of the pod
	Container            string // empty: the pod's sandbox
	Reason               string // of the Hold
}

// maxVetoes limits the vetoes of an Update to the latest ones.
const maxVetoes = 64

// Update is the complete current state.
type Update struct {
	Pods   Pods // nil: unknown, see State.Synced
	State  State
	Vetoes []Veto // since the last Update that was received
}

// Times of the plugin.
const (
	firstRetry = 100 * time.Millisecond // delay after a connection was lost; doubled up to maxRetry
	// also the delay until the socket is found for the first time
	maxRetry    = 10 * time.Second
	stableAfter = 10 * time.Second // duration of a connection that resets the delay
	// from connecting to Configure: a runtime registers one plugin after another, up to 5 s each
	handshake      = 30 * time.Second
	updateInterval = 20 * time.Millisecond // between two Updates during a series of events
)

// Plugin is a plugin of the runtime.
type Plugin struct {
	o       Options
	updates chan Update

	firstRetry, maxRetry time.Duration // firstRetry and maxRetry, except in tests
	share                *cpuShare     // of Run's thread; nil: no separate thread and no limit

	// Used only by Run's goroutine.
	state     State
	index     *index
	vetoes    []Veto
	sync      *listing // of a Synchronize in parts; nil: none in progress
	changed   bool     // since the last Update
	freed     bool     // since the last Update a sandbox or container has ended
	published time.Time
	read      time.Time // when the last message was read
}

// New checks the options and returns a plugin that is not connected.
func New(o Options) (*Plugin, error) {
	if o.Socket == "" {
		o.Socket = DefaultSocket
	}
	o.Socket = strings.TrimPrefix(o.Socket, "unix://")
	// unix(7), sun_path
	if !strings.HasPrefix(o.Socket, "/") || len(o.Socket) > 107 || strings.ContainsRune(o.Socket, 0) {
		return nil, fmt.Errorf("NRI socket %.120q: want /PATH/TO/SOCKET of at most 107 bytes", o.Socket)
	}
	if o.HoldOffs == nil {
		o.HoldOffs = &HoldOffs{}
	}
	if o.Asker == nil {
		o.Asker = admitAll{}
	}
	p := &Plugin{o: o, updates: make(chan Update, 1), firstRetry: firstRetry, maxRetry: maxRetry,
		index: newIndex()}
	if o.Thread != nil {
		p.share = newShare()
	}
	return p, nil
}

// Updates returns a channel with one slot. A new Update replaces one that was not received, and
// includes its vetoes.
func (p *Plugin) Updates() <-chan Update { return p.updates }

// Run connects, answers the runtime, and reconnects after a lost connection, until ctx ends. It
// starts no other goroutine, so an answer waits only for the runtime. With Options.Thread, the
// caller's goroutine must end after Run. A failure is published once as State, and again only after
// a different State.
func (p *Plugin) Run(ctx context.Context) {
	if p.o.Thread != nil {
		// never unlocked: the thread ends with the goroutine, so that no other goroutine gets its
		// priority
		goruntime.LockOSThread()
		p.o.Thread()
	}
	wait, everConnected := p.firstRetry, false
	for {
		c, err := dial(ctx, p.o.Socket, 3*time.Second)
		if err == nil {
			everConnected = true
			began := time.Now()
			err = p.session(ctx, c)
			if p.state.Synced && time.Since(began) >= stableAfter {
				wait = p.firstRetry
			}
		} else if !everConnected && notListening(err) {
			wait = p.maxRetry
		}
		if ctx.Err() != nil {
			return
		}
		p.lost(err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		wait = min(2*wait, p.maxRetry)
	}
}

// notListening reports whether an error means that no process listens on the socket.
func notListening(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// lost publishes the reason for a lost connection. It drops all known pods, because events were
// missed.
func (p *Plugin) lost(err error) {
	if notListening(err) {
		err = fmt.Errorf("%w: no process listens: the runtime is down, has no NRI (containerd before "+
			"1.7), or NRI is disabled", err)
	}
	err = fmt.Errorf("NRI %s: %w", p.o.Socket, err)
	same := p.state.Err != nil && p.state.Err.Error() == err.Error()
	p.state = State{Err: err}
	p.index, p.sync = newIndex(), nil
	if !same || len(p.vetoes) > 0 {
		p.publish()
	}
}

// publish puts an Update into the slot.
func (p *Plugin) publish() {
	u := Update{State: p.state, Vetoes: p.vetoes}
	if p.state.Synced {
		u.Pods = p.index.snapshot()
		u.State.Skipped = p.index.skipped
	}
	p.vetoes = nil
	select {
	case old := <-p.updates:
		u.Vetoes = append(old.Vetoes, u.Vetoes...)
		u.Vetoes = u.Vetoes[max(0, len(u.Vetoes)-maxVetoes):]
	default:
	}
	p.updates <- u // Run is the only sender: the slot is free
	p.changed, p.freed, p.published = false, false, time.Now()
}

// session handles one connection, from the registration to its end.
func (p *Plugin) session(ctx context.Context, c *conn) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.hangUp() // readers and writers return
		close(ended)
	})
	defer func() {
		if !stop() {
			<-ended
		}
		c.close()
	}()
	p.state = State{}
	c.share = p.share
	w := newWire(c)
	if err := w.register(name, position); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	until := time.Now().Add(handshake)
	for {
		var deadline time.Time
		switch {
		case p.state.Runtime == "":
			deadline = until
		case p.changed:
			deadline = p.published.Add(updateInterval)
		}
		m, err := w.next(deadline)
		p.read = time.Now()
		switch {
		case errors.Is(err, errIdle) && p.changed:
			p.publish()
			continue
		case errors.Is(err, errIdle):
			return fmt.Errorf("the runtime did not configure the plugin within %v", handshake)
		case err != nil:
			return fmt.Errorf("connection lost: %w", err)
		}
		if err := p.handle(w, m); err != nil {
			return err
		}
		if p.changed && time.Since(p.published) >= updateInterval {
			p.publish()
		}
	}
}

// handle handles one message.
func (p *Plugin) handle(w *wire, m message) error {
	switch {
	case m.conn == runtimeConn && m.kind == typeResponse:
		if err := parseResponse(m.body); err != nil {
			return fmt.Errorf("register: rejected by the runtime: %w", err)
		}
		return nil
	case m.conn != pluginConn || m.kind != typeRequest:
		return nil // data of a stream, which NRI does not use
	}
	var r request
	err := errMalformed
	if !m.tooLong {
		r, err = parseRequest(m.body)
	}
	if err != nil {
		// Answer success to a request that cannot be decoded: an error would reject the pod.
		p.index.skipped++
		return w.respond(m.stream, nil, 0, "")
	}
	if r.service != "nri.pkg.api.v1alpha1.Plugin" {
		return w.respond(m.stream, nil, codeUnimplemented, "service "+r.service)
	}
	return p.answer(w, m.stream, r)
}

// Subscribed events (api.proto, enum Event): bit N-1 is event N. A runtime rejects a plugin that
// subscribes to an unknown event, so only events of the first version are used.
const (
	eventRunPod = 1 + iota
	eventStopPod
	eventRemovePod
	eventCreate
	eventPostCreate
	eventStart
	eventPostStart
	eventUpdate
	eventPostUpdate
	eventStop
	eventRemove

	subscribed = 1<<(eventRunPod-1) | 1<<(eventStopPod-1) | 1<<(eventRemovePod-1) |
		1<<(eventCreate-1) | 1<<(eventPostStart-1) |
		1<<(eventPostUpdate-1) | 1<<(eventStop-1) | 1<<(eventRemove-1)
)

// events maps methods of the runtime to events.
var events = map[string]uint64{
	"RunPodSandbox": eventRunPod, "StopPodSandbox": eventStopPod, "RemovePodSandbox": eventRemovePod,
	"CreateContainer": eventCreate, "PostCreateContainer": eventPostCreate,
	"StartContainer":     eventStart,
	"PostStartContainer": eventPostStart, "UpdateContainer": eventUpdate,
	"PostUpdateContainer": eventPostUpdate,
	"StopContainer":       eventStop, "RemoveContainer": eventRemove,
}

// answer answers one request, then applies its content.
func (p *Plugin) answer(w *wire, stream uint32, r request) error {
	switch r.method {
	case "Configure":
		p.configure(r.payload)
		reply := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), subscribed)
		return w.respond(stream, reply, 0, "")
	case "Synchronize":
		return p.synchronize(w, stream, r.payload)
	case "StateChange":
		kind, e, err := parseStateChange(r.payload)
		return p.event(w, stream, kind, e, err)
	case "Shutdown", "UpdatePodSandbox", "PostUpdatePodSandbox", "ValidateContainerAdjustment":
		return w.respond(stream, nil, 0, "")
	}
	kind, ok := events[r.method]
	if !ok {
		return w.respond(stream, nil, codeUnimplemented, "method "+r.method)
	}
	e, err := parseEvent(r.payload)
	return p.event(w, stream, kind, e, err)
}

// configure reads a ConfigureRequest: {runtime_name = 2, runtime_version = 3}.
func (p *Plugin) configure(b []byte) {
	_ = each(b, func(f field) error { // malformed fields are skipped
		switch f.number {
		case 2:
			return f.string(&p.state.Runtime, maxName)
		case 3:
			return f.string(&p.state.Version, maxName)
		}
		return nil
	})
	if p.state.Runtime == "" {
		p.state.Runtime = "unknown"
	}
	p.changed = true
}

// synchronize reads all pods and containers of the runtime, in one or more parts. It applies them
// when the list is complete.
func (p *Plugin) synchronize(w *wire, stream uint32, b []byte) error {
	if p.sync == nil {
		p.sync = &listing{}
	}
	more, err := parseSync(b, p.sync)
	if err != nil {
		return fmt.Errorf("synchronize: %w", err)
	}
	var reply []byte
	if more {
		reply = protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 1)
	}
	if err := w.respond(stream, reply, 0, ""); err != nil {
		return fmt.Errorf("answer Synchronize: %w", err)
	}
	if !more {
		skipped := p.index.skipped
		p.index, p.sync = synchronized(p.sync), nil
		p.index.skipped += skipped
		p.state.Synced = true
		p.publish()
	}
	return nil
}

// event answers an event, then applies it.
func (p *Plugin) event(w *wire, stream uint32, kind uint64, e event, parseErr error) error {
	now := time.Now()
	if parseErr != nil {
		p.index.skipped++
		p.changed = true
		return w.respond(stream, nil, 0, "") // an error would reject the pod
	}
	asked := kind == eventRunPod || kind == eventCreate
	if asked {
		if p.freed { // publish freed resources before the Asker decides on this pod
			p.publish()
		}
		if hold, held := p.findHold(now, &e); held {
			return p.holdOff(w, stream, now, e, hold)
		}
		if why := p.askToAdmit(now, kind, &e); why != "" {
			return p.veto(w, stream, why, false)
		}
	}
	if err := w.respond(stream, nil, 0, ""); err != nil {
		return fmt.Errorf("answer event %d: %w", kind, err)
	}
	if asked {
		p.o.Asker.RecordAnswer(time.Since(p.read), false)
	}
	p.apply(now, kind, e)
	p.changed = p.changed || len(p.index.dirty) > 0
	return nil
}

// findHold returns the hold of a pod that was evicted, or that replaces an evicted pod.
func (p *Plugin) findHold(now time.Time, e *event) (hold Hold, held bool) {
	if hold, held = p.o.HoldOffs.Held(now, e.pod.UID); held || e.pod.Name == "" {
		return hold, held
	}
	hold, held = p.o.HoldOffs.Held(now, PodKey(e.pod.Namespace, e.pod.Name))
	if !held && e.daemonSet {
		hold, held = p.o.HoldOffs.Held(now, DaemonSetKey(e.pod.Namespace, e.pod.Name))
	}
	return hold, held
}

// askToAdmit calls Asker.Reject, once per sandbox.
func (p *Plugin) askToAdmit(now time.Time, kind uint64, e *event) string {
	if s := p.index.sandboxes[e.pod.ID]; kind == eventCreate && s != nil && s.asked || !e.hasPod {
		return ""
	}
	return p.o.Asker.Reject(now, &e.pod, e.container.Name)
}

// veto rejects a pod.
func (p *Plugin) veto(w *wire, stream uint32, why string, heldOff bool) error {
	if err := w.respond(stream, nil, codeUnknown, why); err != nil {
		return fmt.Errorf("answer with a veto: %w", err)
	}
	p.o.Asker.RecordAnswer(time.Since(p.read), heldOff)
	return nil
}

// holdOff rejects a pod or a container in its hold-off.
func (p *Plugin) holdOff(w *wire, stream uint32, now time.Time, e event, hold Hold) error {
	v := Veto{Time: now, Reason: hold.Reason, Container: e.container.Name,
		UID: e.pod.UID, Name: e.pod.Name, Namespace: e.pod.Namespace}
	p.vetoes = append(p.vetoes, v)
	p.vetoes = p.vetoes[max(0, len(p.vetoes)-maxVetoes):]
	p.changed = true
	text := fmt.Sprintf("jettison holds pod %s/%s off for another %v: %.1000s", v.Namespace, v.Name,
		hold.Until.Sub(now).Round(time.Second), hold.Reason)
	return p.veto(w, stream, text, true)
}

// apply applies an event to the index. It ignores the end of an unknown object. All other events
// contain the whole object.
func (p *Plugin) apply(now time.Time, kind uint64, e event) {
	x := p.index
	if e.container.SandboxID == "" {
		e.container.SandboxID = e.pod.ID
	}
	if p.applyEnd(kind, &e) {
		return
	}
	if !e.hasPod || e.hasCtr && e.container.State == cri.Exited {
		return
	}
	known := x.sandboxes[e.pod.ID] != nil
	if !known && kind == eventRunPod {
		e.pod.CreatedAt = now // not reported; the sandbox was created within the last second
	}
	s := x.put(e.pod)
	if s == nil {
		return
	}
	s.asked = true
	if !known || kind == eventPostStart {
		s.Ready = true
	}
	if !e.hasCtr {
		return
	}
	if kind == eventCreate {
		// CRI-O reports no end of a container that its OCI runtime failed to create, such as one with a
		// missing executable (1.37 server/container_create.go CreateContainer). A kubelet creates the
		// next one under the same name.
		x.dropUnstarted(s, func(c *cri.Container) bool { return c.Name == e.container.Name })
	}
	switch kind {
	case eventCreate, eventPostCreate, eventStart:
		e.container.State = cri.Created // not set by the runtime yet
	case eventPostStart:
		e.container.State = cri.Running
	}
	x.start(s, e.container)
}

// applyEnd applies the end of a sandbox or a container. It returns false for other events. It calls
// SandboxRemoved when no sandbox or container of the pod is alive: a sandbox may be stopped before
// its containers are dead, and another sandbox of the pod may run.
func (p *Plugin) applyEnd(kind uint64, e *event) bool {
	x := p.index
	switch kind {
	case eventStopPod:
		x.stop(e.pod.ID)
	case eventRemovePod:
		x.drop(e.pod.ID)
	case eventStop, eventRemove:
		x.end(e.container.SandboxID, e.container.ID)
	default:
		return false
	}
	p.freed = p.freed || len(x.dirty) > 0
	if e.pod.UID != "" && !x.isAlive(e.pod.UID) {
		p.o.Asker.SandboxRemoved(e.pod.UID)
	}
	return true
}

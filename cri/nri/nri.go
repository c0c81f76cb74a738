// Package nri is the agent's plugin in the container runtime, by the Node Resource Interface: it
// hears of pods and containers as they come and go, and keeps those out that are held off. It
// speaks the protocol itself (ttrpc over multiplexed frames, protobuf) instead of
// github.com/containerd/nri/pkg/stub: that one blocks for ever where the runtime goes away between
// the registration and Configure (v0.12.5 stub.go, Start waits for cfgErrC with the lock that
// connClosed needs), decodes all of each message, and links a WebAssembly runtime.
//
//	nri.go      Plugin: connects, answers, hands out what it learnt
//	holds.go    HoldOffs: the pods that are kept out
//	index.go    what the events told; Overlay: beside the runtime's lists
//	conn.go     the connection
//	share.go    how much of a CPU its thread may have
//	wire.go     frames and messages
//	decode.go   protobuf
package nri

import (
	"context"
	"errors"
	"fmt"
	"os"
	goruntime "runtime" // of containers is the other one
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"jettison/cri"
)

// DefaultSocket is where runtimes listen for plugins: below /run, which /var/run is a link to.
const DefaultSocket = "/run/nri/nri.sock"

// The plugin among others: its name, and when it is called, after those that change containers.
const (
	name     = "jettison"
	position = "90"
)

// Options of New. The zero value is a plugin that holds no pod off.
type Options struct {
	Socket   string    // empty: DefaultSocket; unix:///PATH is taken too
	HoldOffs *HoldOffs // pods that are kept out; nil: none
	Asker    Asker     // decides on all others; nil: they are let in
	// Thread is called once, by Run, on the thread that reads and answers and does nothing else from
	// then on: it may raise its priority. nil: no thread is kept.
	Thread func()
}

// Asker decides on pods that the runtime is about to let in. Its methods are called by Run's
// goroutine, while the runtime waits, with all that it does: they answer from memory.
type Asker interface {
	// Refuse says why a pod is not let in; empty: it is. It is asked once of each sandbox: before that
	// runs, or, of one that was there before the plugin and has no container yet, before the first of
	// these is made. container is its name then, else empty. pod is the caller's.
	Refuse(now time.Time, pod *cri.PodSandbox, container string) (why string)
	// Left tells that nothing of a pod lives any more.
	Left(uid string)
	// Answered tells how long the runtime has waited: from when its question was read to when the
	// answer was written. heldOff: the answer was a Hold's.
	Answered(took time.Duration, heldOff bool)
}

// anyone is the Asker that lets all pods in.
type anyone struct{}

func (anyone) Refuse(time.Time, *cri.PodSandbox, string) string { return "" }
func (anyone) Left(string)                                      {}
func (anyone) Answered(time.Duration, bool)                     {}

// State is how the plugin and its runtime get on.
type State struct {
	// Synced: the runtime has told all that it has, and tells of each change. Only then has an Update
	// pods.
	Synced           bool
	Runtime, Version string // as the runtime calls itself; empty: it has not yet
	Err              error  // why it is not connected; nil: it is, or has not tried yet
	// Skipped counts pods, containers and events of this connection that were malformed or more than
	// are kept.
	Skipped uint64
}

// Veto is a pod, or a container of it, that was kept out.
type Veto struct {
	Time                 time.Time
	UID, Namespace, Name string // of the pod
	Container            string // empty: the pod's sandbox
	Reason               string // of the Hold
}

// maxVetoes is how many vetoes an Update holds; of more, the latest.
const maxVetoes = 64

// Update is all that is known now.
type Update struct {
	Pods   Pods // nil: not known, see State.Synced
	State  State
	Vetoes []Veto // since the Update that was taken last
}

// Times of the plugin.
const (
	firstRetry = 100 * time.Millisecond // after a connection was lost; doubled up to slowRetry
	slowRetry  = 10 * time.Second       // also where there never was a socket
	steady     = 10 * time.Second       // a connection that lasted so long was a good one
	// from connecting to Configure: a runtime registers one plugin after another, 5 s each
	handshake = 30 * time.Second
	quiet     = 20 * time.Millisecond // between two Updates while events come in a row
)

// Plugin is a plugin of the runtime.
type Plugin struct {
	o       Options
	updates chan Update

	first, slow time.Duration // firstRetry and slowRetry, but in tests
	share       *share        // of Run's thread; nil: it is kept by nobody, and has no priority

	// Of Run's goroutine.
	state     State
	index     *index
	vetoes    []Veto
	sync      *listing // of a Synchronize in parts; nil: none began
	changed   bool     // since the last Update
	freed     bool     // likewise: something has ended
	published time.Time
	read      time.Time // when the last message was
}

// New checks the options. It does not connect.
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
		o.Asker = anyone{}
	}
	p := &Plugin{o: o, updates: make(chan Update, 1), first: firstRetry, slow: slowRetry,
		index: newIndex()}
	if o.Thread != nil {
		p.share = newShare()
	}
	return p, nil
}

// Updates has one slot: an Update that was not taken is replaced by the next, which holds all of
// it.
func (p *Plugin) Updates() <-chan Update { return p.updates }

// Run connects, answers the runtime, and connects again when it is gone, until ctx ends. All that
// it has is one goroutine, the caller's, which ends with it where Options have a Thread: an answer
// waits for nothing but the runtime itself. A failure is published once as State, and again when
// another one follows.
func (p *Plugin) Run(ctx context.Context) {
	if p.o.Thread != nil {
		goruntime.LockOSThread() // the thread ends with the goroutine, and its priority
		p.o.Thread()
	}
	wait, everConnected := p.first, false
	for {
		c, err := dial(ctx, p.o.Socket, 3*time.Second)
		if err == nil {
			everConnected = true
			began := time.Now()
			err = p.session(ctx, c)
			if p.state.Synced && time.Since(began) >= steady {
				wait = p.first
			}
		} else if !everConnected && absent(err) {
			wait = p.slow
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
		wait = min(2*wait, p.slow)
	}
}

// absent reports that nothing listens.
func absent(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// lost publishes why there is no connection. What was known counts no more: events were missed.
func (p *Plugin) lost(err error) {
	if absent(err) {
		err = fmt.Errorf("%w: nothing listens: the runtime is down, has no NRI (containerd before "+
			"1.7), or it is switched off there", err)
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

// session is one connection, from the registration to its end.
func (p *Plugin) session(ctx context.Context, c *conn) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.hangUp() // what reads or writes returns
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
			deadline = p.published.Add(quiet)
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
		if err := p.take(w, m); err != nil {
			return err
		}
		if p.changed && time.Since(p.published) >= quiet {
			p.publish()
		}
	}
}

// take handles one message.
func (p *Plugin) take(w *wire, m message) error {
	switch {
	case m.conn == runtimeConn && m.kind == typeResponse:
		if err := parseResponse(m.body); err != nil {
			return fmt.Errorf("register: the runtime refuses: %w", err)
		}
		return nil
	case m.conn != pluginConn || m.kind != typeRequest:
		return nil // data of a stream: the NRI has none
	}
	var r request
	err := errMalformed
	if !m.tooLong {
		r, err = parseRequest(m.body)
	}
	if err != nil {
		// What cannot be read is let pass: an error would be a veto.
		p.index.skipped++
		return w.respond(m.stream, nil, 0, "")
	}
	if r.service != "nri.pkg.api.v1alpha1.Plugin" {
		return w.respond(m.stream, nil, codeUnimplemented, "service "+r.service)
	}
	return p.answer(w, m.stream, r)
}

// The events that are subscribed to (api.proto, enum Event): bit N-1 is event N. A runtime refuses
// a plugin that asks for one it does not know, so there are none of those that came later than the
// first version.
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

// events are the calls that are events.
var events = map[string]uint64{
	"RunPodSandbox": eventRunPod, "StopPodSandbox": eventStopPod, "RemovePodSandbox": eventRemovePod,
	"CreateContainer": eventCreate, "PostCreateContainer": eventPostCreate,
	"StartContainer":     eventStart,
	"PostStartContainer": eventPostStart, "UpdateContainer": eventUpdate,
	"PostUpdateContainer": eventPostUpdate,
	"StopContainer":       eventStop, "RemoveContainer": eventRemove,
}

// answer answers one request, then takes over what it says.
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
	_ = each(b, func(f field) error { // what is malformed is left out
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

// synchronize takes all that the runtime has, in one part or in several. It is taken over only once
// it is whole.
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

// event answers an event, then takes it over.
func (p *Plugin) event(w *wire, stream uint32, kind uint64, e event, parseErr error) error {
	now := time.Now()
	if parseErr != nil {
		p.index.skipped++
		p.changed = true
		return w.respond(stream, nil, 0, "") // an error would be a veto
	}
	asked := kind == eventRunPod || kind == eventCreate
	if asked {
		if p.freed { // whoever is asked for room for this one is told first of what was given back
			p.publish()
		}
		if hold, held := p.held(now, &e); held {
			return p.keepOut(w, stream, now, e, hold)
		}
		if why := p.ask(now, kind, &e); why != "" {
			return p.veto(w, stream, why, false)
		}
	}
	if err := w.respond(stream, nil, 0, ""); err != nil {
		return fmt.Errorf("answer %d: %w", kind, err)
	}
	if asked {
		p.o.Asker.Answered(time.Since(p.read), false)
	}
	p.apply(now, kind, e)
	p.changed = p.changed || len(p.index.dirty) > 0
	return nil
}

// held finds what keeps a pod out: it was evicted, or has come in place of one that was.
func (p *Plugin) held(now time.Time, e *event) (hold Hold, held bool) {
	if hold, held = p.o.HoldOffs.Held(now, e.pod.UID); held || e.pod.Name == "" {
		return hold, held
	}
	hold, held = p.o.HoldOffs.Held(now, PodKey(e.pod.Namespace, e.pod.Name))
	if !held && e.daemonSet {
		hold, held = p.o.HoldOffs.Held(now, DaemonSetKey(e.pod.Namespace, e.pod.Name))
	}
	return hold, held
}

// ask asks whether a pod may run, once of each sandbox.
func (p *Plugin) ask(now time.Time, kind uint64, e *event) string {
	if s := p.index.sandboxes[e.pod.ID]; kind == eventCreate && s != nil && s.asked || !e.hasPod {
		return ""
	}
	return p.o.Asker.Refuse(now, &e.pod, e.container.Name)
}

// veto answers that a pod is not let in.
func (p *Plugin) veto(w *wire, stream uint32, why string, heldOff bool) error {
	if err := w.respond(stream, nil, codeUnknown, why); err != nil {
		return fmt.Errorf("answer with a veto: %w", err)
	}
	p.o.Asker.Answered(time.Since(p.read), heldOff)
	return nil
}

// keepOut keeps a pod or a container out.
func (p *Plugin) keepOut(w *wire, stream uint32, now time.Time, e event, hold Hold) error {
	v := Veto{Time: now, Reason: hold.Reason, Container: e.container.Name,
		UID: e.pod.UID, Name: e.pod.Name, Namespace: e.pod.Namespace}
	p.vetoes = append(p.vetoes, v)
	p.vetoes = p.vetoes[max(0, len(p.vetoes)-maxVetoes):]
	p.changed = true
	text := fmt.Sprintf("jettison holds pod %s/%s off for another %v: %.1000s", v.Namespace, v.Name,
		hold.Until.Sub(now).Round(time.Second), hold.Reason)
	return p.veto(w, stream, text, true)
}

// apply takes an event over. Ends of what is not known say nothing; the rest carries all that is
// needed to know it.
func (p *Plugin) apply(now time.Time, kind uint64, e event) {
	x := p.index
	if e.container.SandboxID == "" {
		e.container.SandboxID = e.pod.ID
	}
	if p.ends(kind, &e) {
		return
	}
	if !e.hasPod || e.hasCtr && e.container.State == cri.Exited {
		return
	}
	known := x.sandboxes[e.pod.ID] != nil
	if !known && kind == eventRunPod {
		e.pod.CreatedAt = now // it is not told; the sandbox was made within the last second
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
	switch kind {
	case eventCreate, eventPostCreate, eventStart:
		e.container.State = cri.Created // the runtime has none yet
	case eventPostStart:
		e.container.State = cri.Running
	}
	x.start(s, e.container)
}

// ends takes over the end of a sandbox or a container; false: the event is another one. A pod has
// left when nothing of it lives: its sandbox may be stopped before its containers are dead, and
// another sandbox of it may run.
func (p *Plugin) ends(kind uint64, e *event) bool {
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
	if e.pod.UID != "" && !x.lives(e.pod.UID) {
		p.o.Asker.Left(e.pod.UID)
	}
	return true
}

package nri

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"jettison/cri"
)

// peer is a fake runtime that violates the protocol in ways in which a real runtime does not.
type peer struct {
	t      testing.TB
	l      net.Listener
	c      net.Conn
	stream uint32
}

// listen returns a peer to which no plugin is connected yet.
func listen(t testing.TB, socket string) *peer {
	t.Helper()
	l, err := net.Listen("unix", socket)
	check(t, err)
	t.Cleanup(func() { l.Close() })
	return &peer{t: t, l: l, stream: 1}
}

// accept accepts the plugin's next connection and reads its registration.
func (r *peer) accept() {
	r.t.Helper()
	var err error
	r.c, err = r.l.Accept()
	check(r.t, err)
	r.t.Cleanup(func() { r.c.Close() })
	check(r.t, r.c.SetDeadline(time.Now().Add(patience)))
	if conn, m := r.read(); conn != runtimeConn || m.kind != typeRequest || !strings.Contains(string(m.body), "RegisterPlugin") {
		r.t.Fatalf("connection %d, %+v: want a registration", conn, m)
	}
}

// welcome accepts, configures and synchronizes.
func (r *peer) welcome() {
	r.t.Helper()
	r.accept()
	r.frame(runtimeConn, rawMessage(1, typeResponse, nil))
	r.call("Configure", &api.ConfigureRequest{RuntimeName: "hand", RuntimeVersion: "1"})
	r.call("Synchronize", &api.SynchronizeRequest{})
}

func rawMessage(stream uint32, kind byte, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(append(b, kind, 0), body...)
}

func (r *peer) frame(conn uint32, payload []byte) {
	r.t.Helper()
	b := binary.BigEndian.AppendUint32(nil, conn)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	_, err := r.c.Write(append(b, payload...))
	check(r.t, err)
}

// read reads a message from the plugin, which sends each message in one frame.
func (r *peer) read() (conn uint32, m message) {
	r.t.Helper()
	var header [frameHeader]byte
	_, err := io.ReadFull(r.c, header[:])
	check(r.t, err)
	b := make([]byte, binary.BigEndian.Uint32(header[4:]))
	if len(b) > 4096 {
		r.t.Fatalf("a frame of %d bytes, which a runtime cannot read", len(b))
	}
	_, err = io.ReadFull(r.c, b)
	check(r.t, err)
	return binary.BigEndian.Uint32(header[:4]), message{stream: binary.BigEndian.Uint32(b[4:8]), kind: b[8], body: b[messageHeader:]}
}

func rawRequest(service, method string, payload []byte) []byte {
	b := appendString(appendString(nil, 1, service), 2, method)
	return protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), payload)
}

// ask sends a body as a request and returns the plugin's error.
func (r *peer) ask(body []byte) error {
	r.t.Helper()
	r.stream += 2
	r.frame(pluginConn, rawMessage(r.stream, typeRequest, body))
	return r.answer()
}

func (r *peer) answer() error {
	r.t.Helper()
	conn, m := r.read()
	if conn != pluginConn || m.kind != typeResponse || m.stream != r.stream {
		r.t.Fatalf("connection %d, %+v: want the answer to %d", conn, m, r.stream)
	}
	return parseResponse(m.body)
}

func (r *peer) call(method string, m proto.Message) {
	r.t.Helper()
	b, err := proto.Marshal(m)
	check(r.t, err)
	if err := r.ask(rawRequest("nri.pkg.api.v1alpha1.Plugin", method, b)); err != nil {
		r.t.Fatalf("answer to %s is an error: %v", method, err)
	}
}

// The plugin answers every malformed request with success, because an error would reject the pod.
func TestMalformedRequestsAreAdmitted(t *testing.T) {
	socket := socketIn(t)
	r := listen(t, socket)
	p := start(t, Options{Socket: socket})
	r.welcome()
	const service = "nri.pkg.api.v1alpha1.Plugin"
	long := appendString(nil, 1, strings.Repeat("i", maxName+1))
	for name, body := range map[string][]byte{
		"not protobuf":      []byte("\xff\xff\xff\xff"),
		"no such pod":       rawRequest(service, "RunPodSandbox", []byte("\x0a\xff")),
		"an id too long":    rawRequest(service, "RunPodSandbox", protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), long)),
		"a number for text": rawRequest(service, "CreateContainer", []byte("\x0a\x02\x08\x01")),
		"an empty change":   rawRequest(service, "StateChange", nil),
		"an empty event":    rawRequest(service, "PostStartContainer", nil),
		"not subscribed to": rawRequest(service, "ValidateContainerAdjustment", nil),
		"nothing":           nil,
	} {
		err := r.ask(body)
		if name == "nothing" { // a request of no service
			if err == nil {
				t.Error("a request without a service succeeded")
			}
			continue
		}
		if err != nil {
			t.Errorf("request %s was rejected, want it decoded: %v", name, err)
		}
	}
	for _, body := range [][]byte{rawRequest(service, "Fly", nil), rawRequest("other", "RunPodSandbox", nil), rawRequest(strings.Repeat("s", maxName), "X", nil)} {
		if err := r.ask(body); err == nil || !strings.Contains(err.Error(), "code 12") {
			t.Errorf("%q: %v, want Unimplemented", body, err)
		}
	}
	// A message above the maximum length, in many frames, with another message after it in the last
	// frame.
	r.stream += 2
	huge := rawMessage(r.stream, typeRequest, make([]byte, maxMessage+5))
	for len(huge) > 100_000 {
		r.frame(pluginConn, huge[:100_000])
		huge = huge[100_000:]
	}
	r.frame(7, []byte("of a connection that nobody opened"))
	r.frame(pluginConn, nil)
	r.frame(pluginConn, append(huge, rawMessage(r.stream+2, typeRequest, rawRequest(service, "Shutdown", nil))...))
	if err := r.answer(); err != nil {
		t.Errorf("request that is too long was rejected: %v", err)
	}
	r.stream += 2
	if err := r.answer(); err != nil {
		t.Errorf("request after one that is too long: error %v", err)
	}
	r.call("RunPodSandbox", &api.RunPodSandboxRequest{Pod: pod(3)})
	wait(t, p, "a pod after all that", func(u Update) bool { return u.Pods["uid-3"] != nil && u.State.Skipped == 5 })
}

// Of 256 KiB of annotations the relevant ones are kept, if they are not too long.
func TestHugeAnnotations(t *testing.T) {
	socket := socketIn(t)
	r := listen(t, socket)
	p := start(t, Options{Socket: socket})
	r.welcome()
	big := pod(1)
	for i := range 300 {
		big.Annotations[fmt.Sprintf("tenant/%d", i)] = strings.Repeat("x", 800)
		big.Annotations[fmt.Sprintf("jettison/%d", i)] = strings.Repeat("x", 100)
	}
	big.Annotations["jettison/never-evict"] = strings.Repeat("t", 200_000)
	r.call("RunPodSandbox", &api.RunPodSandboxRequest{Pod: big})
	u := wait(t, p, "the pod", func(u Update) bool { return u.Pods["uid-1"] != nil })
	if a := u.Pods["uid-1"].Sandboxes[0].Annotations; len(a) < maxAnnotation || len(a) > maxAnnotation+5 || a["jettison/never-evict"] != "" {
		t.Errorf("annotations kept = %d, not as expected", len(a))
	}
}

// Relevant annotations, which mark a pod as static and the like, are kept among any number of
// others.
func TestRelevantAnnotationsAreKept(t *testing.T) {
	decide := []string{"kubernetes.io/config.source", "kubernetes.io/config.mirror", "jettison/priority", "jettison/memory-request", "jettison/never-evict"}
	var others []string
	for i := range 1000 {
		others = append(others, fmt.Sprintf("jettison/%d", i), fmt.Sprintf("kubernetes.io/config.%d", i), fmt.Sprintf("io.kubernetes.%d", i))
	}
	half := len(others) / 2
	for order, keys := range map[string][]string{
		"last": slices.Concat(others, decide), "first": slices.Concat(decide, others), "between": slices.Concat(others[:half], decide, others[half:]),
	} {
		var b []byte
		for _, key := range keys {
			entry := appendString(appendString(nil, 1, key), 2, "v")
			b = protowire.AppendBytes(protowire.AppendTag(b, 6, protowire.BytesType), entry)
		}
		var p cri.PodSandbox
		if err := parsePod(field{isLen: true, bytes: b}, &p); err != nil {
			t.Fatal(err)
		}
		for _, key := range decide {
			if p.Annotations[key] != "v" {
				t.Errorf("%s: %s is dropped, of %d annotations %d are kept", order, key, len(keys), len(p.Annotations))
			}
		}
		if len(p.Annotations) > maxAnnotation+len(decide) {
			t.Errorf("order %s: %d annotations are kept, above the limit", order, len(p.Annotations))
		}
	}
}

// Events of unknown objects: ends are ignored, other events add the object.
func TestEventsForUnknownPods(t *testing.T) {
	socket := socketIn(t)
	r := listen(t, socket)
	p := start(t, Options{Socket: socket})
	r.welcome()
	r.call("StopPodSandbox", &api.StopPodSandboxRequest{Pod: pod(1)})
	r.call("RemovePodSandbox", &api.RemovePodSandboxRequest{Pod: pod(1)})
	r.call("StopContainer", &api.StopContainerRequest{Pod: pod(2), Container: container(2, 1, 0)})
	r.call("RemoveContainer", &api.RemoveContainerRequest{Pod: pod(3), Container: container(3, 1, 0)})
	r.call("RemoveContainer", &api.RemoveContainerRequest{})
	r.call("RunPodSandbox", &api.RunPodSandboxRequest{Pod: &api.PodSandbox{Id: "x"}})
	r.call("RunPodSandbox", &api.RunPodSandboxRequest{Pod: &api.PodSandbox{Uid: "x"}})
	r.call("PostStartContainer", &api.PostStartContainerRequest{Container: container(5, 1, 0)})
	r.call("PostUpdateContainer", &api.PostUpdateContainerRequest{Pod: pod(7), Container: container(7, 1, api.ContainerState_CONTAINER_STOPPED)})
	r.call("PostStartContainer", &api.PostStartContainerRequest{Pod: pod(4), Container: container(4, 1, 0)})
	// Requests of runtimes without a call for each event.
	r.call("StateChange", &api.StateChangeEvent{Event: api.Event_RUN_POD_SANDBOX, Pod: pod(6)})
	r.call("StateChange", &api.StateChangeEvent{Event: api.Event_UNKNOWN})
	u := wait(t, p, "the last pod", func(u Update) bool { return u.Pods["uid-6"] != nil })
	if len(u.Pods) != 2 || len(u.Pods["uid-4"].Containers) != 1 || !u.Pods["uid-4"].Containers[0].Running {
		t.Errorf("pods after the events = %v, not as expected", u.Pods)
	}
}

// A Synchronize that breaks off is discarded, and the plugin reconnects.
func TestConnectionBreaksDuringSynchronize(t *testing.T) {
	socket := socketIn(t)
	r := listen(t, socket)
	p := start(t, Options{Socket: socket})
	r.accept()
	r.call("Configure", &api.ConfigureRequest{RuntimeName: "hand"})
	r.call("Synchronize", &api.SynchronizeRequest{Pods: []*api.PodSandbox{pod(1), {Id: strings.Repeat("i", maxName+1)}}, More: true})
	if err := r.ask(rawRequest("nri.pkg.api.v1alpha1.Plugin", "RunPodSandbox", []byte("\x0a\xff"))); err != nil { // skipped
		t.Error(err)
	}
	b, err := proto.Marshal(&api.SynchronizeRequest{Pods: []*api.PodSandbox{pod(2)}})
	check(t, err)
	half := rawMessage(99, typeRequest, rawRequest("nri.pkg.api.v1alpha1.Plugin", "Synchronize", b))
	r.frame(pluginConn, half[:len(half)/2])
	r.c.Close()
	u := wait(t, p, "a lost connection", func(u Update) bool {
		if u.Pods != nil {
			t.Errorf("pods of an incomplete Synchronize are known: %v", u.Pods)
		}
		return u.State.Err != nil
	})
	if text := u.State.Err.Error(); !strings.Contains(text, "connection lost") {
		t.Error(text)
	}
	r.accept()
	r.call("Configure", &api.ConfigureRequest{})
	r.call("Synchronize", &api.SynchronizeRequest{Pods: []*api.PodSandbox{pod(3)}})
	u = wait(t, p, "pods", synced)
	if len(u.Pods) != 1 || u.Pods["uid-3"] == nil || u.State.Err != nil || u.State.Runtime != "unknown" || u.State.Skipped != 0 {
		t.Errorf("update has pods %v and state %+v", u.Pods, u.State)
	}
	r.c.Close()
	if u = wait(t, p, "the loss", func(u Update) bool { return u.State.Err != nil }); u.Pods != nil {
		t.Error("pods are known although their events were missed")
	}
}

// If the runtime exits during the handshake, rejects the plugin, or speaks another protocol, the
// plugin reconnects. It ends with its context.
func TestRuntimeBreaksHandshake(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	socket := socketIn(t)
	l, err := net.Listen("unix", socket)
	check(t, err)
	defer l.Close()
	r := &peer{t: t, l: l, stream: 1}
	p, err := New(Options{Socket: socket})
	check(t, err)
	p.firstRetry, p.maxRetry = time.Millisecond, time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		p.Run(ctx)
		close(done)
	}()
	refusal := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType),
		appendString(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 2), 2, "no room"))
	for want, after := range map[string]func(){
		"connection lost": func() {},
		"EOF":             func() { r.frame(runtimeConn, rawMessage(1, typeResponse, nil)) }, // after the registration, before Configure
		"no room":         func() { r.frame(runtimeConn, rawMessage(1, typeResponse, refusal)) },
		"speak NRI":       func() { _, _ = r.c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) },
		"malformed":       func() { _ = r.frameOnly("Synchronize", []byte("\xff")) },
	} {
		r.accept()
		after()
		r.c.Close()
		wait(t, p, want, func(u Update) bool { return u.State.Err != nil && strings.Contains(u.State.Err.Error(), want) })
	}
	r.accept() // and the peer hangs after that
	cancel()
	<-done
	r.c.Close()
}

// frameOnly sends a request and does not read the answer.
func (r *peer) frameOnly(method string, payload []byte) error {
	b := rawMessage(3, typeRequest, rawRequest("nri.pkg.api.v1alpha1.Plugin", method, payload))
	h := binary.BigEndian.AppendUint32(nil, pluginConn)
	_, err := r.c.Write(append(binary.BigEndian.AppendUint32(h, uint32(len(b))), b...))
	return err
}

// The plugin disconnects from a runtime that does not read the answers.
func TestRuntimeDoesNotRead(t *testing.T) {
	socket := socketIn(t)
	r := listen(t, socket)
	p := start(t, Options{Socket: socket})
	r.welcome()
	for r.frameOnly("Shutdown", nil) == nil { // until the plugin closes the connection
	}
	wait(t, p, "a timeout", func(u Update) bool { return u.State.Err != nil && strings.Contains(u.State.Err.Error(), "timeout") })
	r.accept()
}

func TestLimitsOfTheIndex(t *testing.T) {
	l := &listing{}
	for i := range maxPods + 10 {
		l.pods = append(l.pods, cri.PodSandbox{ID: fmt.Sprint("s", i), UID: fmt.Sprint("u", i), PID: 1})
	}
	for i := range maxContainers + 10 {
		l.containers = append(l.containers, cri.Container{ID: fmt.Sprint("c", i), SandboxID: "s0"})
	}
	x := synchronized(l)
	if len(x.current) != maxPods || x.containers != maxContainers || x.skipped != 20 {
		t.Errorf("index has %d pods, %d containers, %d skipped", len(x.current), x.containers, x.skipped)
	}
	x.drop("s0")
	x.put(cri.PodSandbox{ID: "new", UID: "u1"})
	if pods := x.snapshot(); len(pods) != maxPods-1 || len(pods["u1"].Sandboxes) != 2 || x.containers != 0 {
		t.Errorf("index has %d pods and %d containers", len(pods), x.containers)
	}
	x.put(cri.PodSandbox{ID: "new", UID: "u2"})
	if pods := x.snapshot(); len(pods["u1"].Sandboxes) != 1 || len(pods["u2"].Sandboxes) != 2 {
		t.Error("one sandbox belongs to two pods")
	}
}

// The decoders do not panic on any input, and keep a bounded amount of it.
func FuzzDecode(f *testing.F) {
	for _, m := range []proto.Message{
		&api.StateChangeEvent{Event: api.Event_RUN_POD_SANDBOX, Pod: pod(1), Container: container(1, 1, 3)},
		&api.CreateContainerRequest{Pod: pod(1), Container: container(1, 1, 3)},
		&api.SynchronizeRequest{Pods: []*api.PodSandbox{pod(1)}, Containers: []*api.Container{container(1, 1, 3)}, More: true},
	} {
		b, err := proto.Marshal(m)
		check(f, err)
		f.Add(b)
		f.Add(rawRequest("nri.pkg.api.v1alpha1.Plugin", "RunPodSandbox", b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, _ := parseEvent(b)
		if len(e.pod.Annotations) > maxAnnotation+5 || len(e.pod.UID) > maxName {
			t.Error("index exceeds its limits")
		}
		_, _, _ = parseStateChange(b)
		_, _ = parseRequest(b)
		_ = parseResponse(b)
		p, err := New(Options{})
		check(t, err)
		p.configure(b)
		var l listing
		if _, err := parseSync(b, &l); err == nil {
			synchronized(&l)
		}
		for kind := range uint64(13) {
			p.apply(time.Time{}, kind, e)
		}
		p.index.snapshot()
	})
}

// Any input, cut anywhere into frames, results in messages or an error.
func FuzzWire(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x01\x01\x00"))
	f.Add([]byte("\x00\x00\x00\x02\x00\x00\x00\x0b\x00\x50\x00\x00\x00\x00\x00\x01\x01\x00x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = theirs.Write(b)
			theirs.Close()
		}()
		w := newWire(ours)
		for {
			m, err := w.next(time.Time{})
			if err != nil {
				break
			}
			if len(m.body) > maxMessage {
				t.Error("decoded text exceeds its limit")
			}
		}
		ours.Close()
	})
}

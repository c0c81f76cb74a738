package limits

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	godbus "github.com/godbus/dbus/v5"

	"jettison/cgroup"
)

// fakeBus answers on a socket as systemd does, or as a bus in front of systemd, and records the
// calls.
type fakeBus struct {
	mute    bool   // accepts connections and does not answer
	refuses string // properties of this unit
	mu      sync.Mutex
	calls   []*godbus.Message
}

func startBus(t *testing.T, socket string, b *fakeBus) *fakeBus {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { b.serve(conn) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return b
}

func (b *fakeBus) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	for !b.mute {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		switch line = strings.Trim(line, "\x00\r\n"); {
		case line == "BEGIN":
			b.messages(conn, in)
			return
		case line == "AUTH":
			_, _ = conn.Write([]byte("REJECTED EXTERNAL\r\n"))
		case line == "AUTH EXTERNAL":
			_, _ = conn.Write([]byte("DATA\r\n"))
		default: // authentication
			_, _ = conn.Write([]byte("OK 1234deadbeef\r\n"))
		}
	}
	_, _ = in.ReadBytes(0xff) // until the other end closes
}

func (b *fakeBus) messages(conn net.Conn, in *bufio.Reader) {
	for serial := uint32(1); ; serial++ {
		m, err := godbus.DecodeMessage(in)
		if err != nil {
			return
		}
		b.mu.Lock()
		b.calls = append(b.calls, m)
		b.mu.Unlock()
		reply := &godbus.Message{Type: godbus.TypeMethodReply, Headers: map[godbus.HeaderField]godbus.Variant{
			godbus.FieldReplySerial: godbus.MakeVariant(m.Serial()),
		}}
		if b.member(m) == "Hello" {
			reply.Body = []any{":1.1"}
			reply.Headers[godbus.FieldSignature] = godbus.MakeVariant(godbus.SignatureOf(":1.1"))
		}
		if b.member(m) == "SetUnitProperties" && m.Body[0] == b.refuses {
			reply.Type = godbus.TypeError
			reply.Headers[godbus.FieldErrorName] = godbus.MakeVariant("org.freedesktop.systemd1.NoSuchUnit")
		}
		if reply.EncodeTo(conn, binary.LittleEndian) != nil {
			return
		}
	}
}

func (b *fakeBus) member(m *godbus.Message) string {
	name, _ := m.Headers[godbus.FieldMember].Value().(string)
	return name
}

// updatedUnits returns the units with properties that were set.
func (b *fakeBus) updatedUnits() (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.calls {
		if b.member(m) == "SetUnitProperties" {
			out = append(out, m.Body[0].(string))
		}
	}
	return out
}

var oneUnit = []Unit{{Name: "kubepods.slice", Files: map[cgroup.LimitFile]cgroup.Limit{cgroup.FileMemoryMax: {Bytes: 7 << 30}}}}

// Systemd is updated through the sockets below the host's root, not a container's: its private
// socket first, else the bus.
func TestTellSystemdBelowHostRoot(t *testing.T) {
	for _, name := range []string{"run/systemd/private", "run/dbus/system_bus_socket"} {
		root := t.TempDir()
		b := startBus(t, filepath.Join(root, name), &fakeBus{})
		if err := SystemdUpdater(root)(t.Context(), oneUnit, func(Unit) {}); err != nil {
			t.Errorf("update of systemd through %s: error %v", name, err)
		}
		if got := b.updatedUnits(); len(got) != 1 || got[0] != "kubepods.slice" {
			t.Errorf("names of units updated through %s = %v", name, got)
		}
	}
}

// A unit that systemd rejects does not prevent the update of others.
func TestRejectedUnit(t *testing.T) {
	root := t.TempDir()
	startBus(t, filepath.Join(root, "run/systemd/private"), &fakeBus{refuses: "b.slice"})
	var took []string
	err := SystemdUpdater(root)(t.Context(), []Unit{{Name: "a.slice"}, {Name: "b.slice"}, {Name: "c.slice"}}, func(u Unit) { took = append(took, u.Name) })
	if err == nil || !strings.Contains(err.Error(), "set properties of b.slice: ") || strings.Join(took, " ") != "a.slice c.slice" {
		t.Errorf("units that systemd accepted = %v, error %v", took, err)
	}
}

// If neither socket answers, SystemdUpdater fails soon and names both.
func TestUnreachableSystemd(t *testing.T) {
	root := t.TempDir()
	err := SystemdUpdater(root)(t.Context(), oneUnit, func(Unit) {})
	if err == nil || !strings.Contains(err.Error(), root+"/run/systemd/private") || !strings.Contains(err.Error(), root+"/run/dbus/system_bus_socket") {
		t.Errorf("error of an unreachable systemd = %v, want both sockets", err)
	}
	startBus(t, filepath.Join(root, "run/systemd/private"), &fakeBus{mute: true})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if err := SystemdUpdater(root)(ctx, oneUnit, func(Unit) {}); !errors.Is(err, context.Canceled) { // its own timeout gives another error
		t.Errorf("error of a silent bus = %v, want the end of the caller's context", err)
	}
}

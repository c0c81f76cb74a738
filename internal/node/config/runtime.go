package config

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"jettison/cri"
)

// Environment variables, shared with crictl.
const (
	envRuntime = "CONTAINER_RUNTIME_ENDPOINT"
	envImages  = "IMAGE_SERVICE_ENDPOINT"
)

// Socket is a usual socket of a container runtime.
type Socket struct{ Runtime, Path string }

func (s *Socket) endpoint() string { return "unix://" + s.Path }

// usualSockets are in crictl's order (kubernetes-sigs/cri-tools cmd/crictl/main_unix.go
// defaultRuntimeEndpoints), followed by that of k3s, which crictl does not try.
var usualSockets = []Socket{
	{"containerd", "/run/containerd/containerd.sock"},
	{"CRI-O", "/run/crio/crio.sock"},
	{"cri-dockerd", "/run/cri-dockerd.sock"},
	{"k3s", "/run/k3s/containerd/containerd.sock"},
}

// dialLimit bounds one connection to a local socket.
const dialLimit = time.Second

// override applies the environment and flags, and finds the runtime's socket if no layer names it.
func (l *Loaded) override(ctx context.Context, o Places) error {
	for _, v := range []struct {
		name, field string
		into        *string
	}{{envRuntime, endpointField, &l.ContainerRuntimeEndpoint}, {envImages, "imageServiceEndpoint",
		&l.ImageServiceEndpoint}} {
		value := os.Getenv(v.name)
		if value == "" {
			continue
		}
		if _, err := cri.ParseEndpoint(value); err != nil {
			return fmt.Errorf("config: environment variable %s: %w", v.name, err)
		}
		*v.into = value
		l.endpointCleared = l.endpointCleared && v.field != endpointField
		l.setOrigin(v.field, Origin{SourceEnvironment, v.name})
	}
	if o.Record != "" {
		l.Record = o.Record
		l.setOrigin("record", Origin{SourceFlag, "--record"})
	}
	sockets := o.Sockets
	if sockets == nil {
		sockets = usualSockets
	}
	l.sockets = sockets
	l.findRuntime(ctx)
	return nil
}

const endpointField = "containerRuntimeEndpoint"

// findRuntime sets the runtime's socket if no layer names it: the first of the usual ones that
// accepts connections, else the first that exists, else the default. A kubelet that names none uses
// its default.
func (l *Loaded) findRuntime(ctx context.Context) {
	switch {
	case !l.endpointUnset():
		l.EndpointFrom = l.origin(endpointField).String()
		return
	case l.Kubelet || l.Kind == KindKubelet:
		l.EndpointFrom = "the kubelet's default"
		return
	}
	switch there, open := probeSockets(ctx, l.sockets); {
	case len(open) > 0:
		l.selectSocket(open, "accepts connections")
	case len(there) > 0:
		l.selectSocket(there, "exists, but accepts no connections")
	default:
		l.EndpointFrom = "the default: none of the usual sockets exists (" + paths(l.sockets) + ")"
	}
}

// RefindRuntime searches again for the runtime's socket if no layer names it and no runtime has
// answered yet, because a runtime that starts later may use another socket. It reports whether the
// socket changed. A socket that accepts connections is kept.
func (l *Loaded) RefindRuntime(ctx context.Context) bool {
	if !l.endpointUnset() || l.Kubelet || l.Kind == KindKubelet {
		return false
	}
	_, open := probeSockets(ctx, l.sockets)
	if len(open) == 0 || slices.ContainsFunc(open,
		func(s Socket) bool { return s.endpoint() == l.ContainerRuntimeEndpoint }) {
		return false
	}
	l.selectSocket(open, "accepts connections now")
	return true
}

// probeSockets returns the sockets that exist, and those that accept connections.
func probeSockets(ctx context.Context, usual []Socket) (there, open []Socket) {
	for _, s := range usual {
		if info, err := os.Stat(s.Path); err != nil || info.Mode()&os.ModeSocket == 0 {
			continue
		}
		there = append(there, s)
		if conn, err := (&net.Dialer{Timeout: dialLimit}).DialContext(ctx, "unix", s.Path); err == nil {
			_ = conn.Close()
			open = append(open, s)
		}
	}
	return there, open
}

// selectSocket selects the first of some sockets.
func (l *Loaded) selectSocket(of []Socket, why string) {
	l.ContainerRuntimeEndpoint, l.EndpointFrom = of[0].endpoint(),
		"found: the usual socket of "+of[0].Runtime+" "+why
	if rest := of[1:]; len(rest) > 0 {
		l.EndpointFrom += fmt.Sprintf(
			"; so does that of %s, which is later in crictl's order: set %[2]s to use it",
			names(rest), endpointField)
	}
	l.setOrigin(endpointField, Origin{SourceFound, of[0].Path})
}

func paths(all []Socket) string {
	var out []string
	for _, s := range all {
		out = append(out, s.Path)
	}
	return strings.Join(out, ", ")
}

func names(all []Socket) string {
	var out []string
	for _, s := range all {
		out = append(out, s.Runtime)
	}
	return strings.Join(out, ", ")
}

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

// Variables of the environment that crictl has, too.
const (
	envRuntime = "CONTAINER_RUNTIME_ENDPOINT"
	envImages  = "IMAGE_SERVICE_ENDPOINT"
)

// Socket is where a runtime usually listens.
type Socket struct{ Runtime, Path string }

func (s *Socket) endpoint() string { return "unix://" + s.Path }

// usualSockets are in the order of crictl (kubernetes-sigs/cri-tools cmd/crictl/main_unix.go
// defaultRuntimeEndpoints). After them comes that of k3s, for which crictl has to be told.
var usualSockets = []Socket{
	{"containerd", "/run/containerd/containerd.sock"},
	{"CRI-O", "/run/crio/crio.sock"},
	{"cri-dockerd", "/run/cri-dockerd.sock"},
	{"k3s", "/run/k3s/containerd/containerd.sock"},
}

// dialLimit is for one connection to a socket of this machine.
const dialLimit = time.Second

// override takes what the environment and flags say over what files do, and finds the runtime where
// nobody says which.
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
		l.unset = l.unset && v.field != endpointField
		l.tell(v.field, Origin{SourceEnvironment, v.name})
	}
	if o.Record != "" {
		l.Record = o.Record
		l.tell("record", Origin{SourceFlag, "--record"})
	}
	sockets := o.Sockets
	if sockets == nil {
		sockets = usualSockets
	}
	l.usual = sockets
	l.findRuntime(ctx)
	return nil
}

const endpointField = "containerRuntimeEndpoint"

// findRuntime says where the runtime's socket comes from. Where no file and nobody else names it,
// it is the first of the usual ones that takes connections, else the first that is there, else the
// default. A kubelet that names none has the default.
func (l *Loaded) findRuntime(ctx context.Context) {
	switch {
	case !l.foundRuntime():
		l.EndpointFrom = l.origin(endpointField).String()
		return
	case l.Kubelet || l.Kind == KindKubelet:
		l.EndpointFrom = "the kubelet's default"
		return
	}
	switch there, open := look(ctx, l.usual); {
	case len(open) > 0:
		l.take(open, "takes connections")
	case len(there) > 0:
		l.take(there, "is there, and takes no connection")
	default:
		l.EndpointFrom = "the default: none of the usual sockets is there (" + paths(l.usual) + ")"
	}
}

// FindRuntimeAgain looks once more for the runtime where nobody says which it is and it has not
// answered yet: one that is installed, or begins, after this program may be another than was waited
// for. It reports whether that is so. A socket that takes connections is not left for another one.
func (l *Loaded) FindRuntimeAgain(ctx context.Context) bool {
	if !l.foundRuntime() || l.Kubelet || l.Kind == KindKubelet {
		return false
	}
	_, open := look(ctx, l.usual)
	if len(open) == 0 || slices.ContainsFunc(open,
		func(s Socket) bool { return s.endpoint() == l.ContainerRuntimeEndpoint }) {
		return false
	}
	l.take(open, "takes connections now")
	return true
}

// look says which sockets are there, and which of them take connections.
func look(ctx context.Context, usual []Socket) (there, open []Socket) {
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

// take takes the first of some sockets.
func (l *Loaded) take(of []Socket, why string) {
	l.ContainerRuntimeEndpoint, l.EndpointFrom = of[0].endpoint(),
		"found: of the usual sockets that of "+of[0].Runtime+" "+why
	if rest := of[1:]; len(rest) > 0 {
		l.EndpointFrom += fmt.Sprintf(
			"; so does that of %s, which crictl would take later, too: name it (%s) to have it",
			names(rest), endpointField)
	}
	l.tell(endpointField, Origin{SourceFound, of[0].Path})
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

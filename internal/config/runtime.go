package config

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"jettison/cri"
)

// Variables of the environment that crictl has, too.
const (
	envRuntime = "CONTAINER_RUNTIME_ENDPOINT"
	envImages  = "IMAGE_SERVICE_ENDPOINT"
)

// socket is where a runtime usually listens.
type socket struct{ runtime, path string }

// usualSockets are in the order of crictl (kubernetes-sigs/cri-tools cmd/crictl/main_unix.go defaultRuntimeEndpoints). After them comes
// that of k3s, for which crictl has to be told.
var usualSockets = []socket{
	{"containerd", "/run/containerd/containerd.sock"},
	{"CRI-O", "/run/crio/crio.sock"},
	{"cri-dockerd", "/run/cri-dockerd.sock"},
	{"k3s", "/run/k3s/containerd/containerd.sock"},
}

// dialLimit is for one connection to a socket of this machine.
const dialLimit = time.Second

// override takes what the environment and flags say over what files do, and finds the runtime where nobody says which.
func (l *Loaded) override(ctx context.Context, o Places) error {
	for _, v := range []struct {
		name, field string
		into        *string
	}{{envRuntime, "containerRuntimeEndpoint", &l.ContainerRuntimeEndpoint}, {envImages, "imageServiceEndpoint", &l.ImageServiceEndpoint}} {
		value := os.Getenv(v.name)
		if value == "" {
			continue
		}
		if _, err := cri.ParseEndpoint(value); err != nil {
			return fmt.Errorf("config: environment variable %s: %w", v.name, err)
		}
		*v.into = value
		l.tell(v.field, Origin{SourceEnvironment, v.name})
	}
	if o.Record != "" {
		l.Record = o.Record
		l.tell("record", Origin{SourceFlag, "--record"})
	}
	sockets := o.sockets
	if sockets == nil {
		sockets = usualSockets
	}
	l.findRuntime(ctx, sockets)
	return nil
}

// findRuntime says where the runtime's socket comes from. Where no file and nobody else names it, it is the first of the usual ones that
// takes connections, else the first that is there, else the default. A kubelet that names none has the default.
func (l *Loaded) findRuntime(ctx context.Context, usual []socket) {
	const field = "containerRuntimeEndpoint"
	origin := l.origin(field)
	if origin.Source != SourceDefault && !l.unset {
		l.EndpointFrom = origin.String()
		return
	}
	if l.Kubelet || l.Kind == KindKubelet {
		l.EndpointFrom = "the kubelet's default"
		return
	}
	var there, open []socket
	for _, s := range usual {
		if info, err := os.Stat(s.path); err != nil || info.Mode()&os.ModeSocket == 0 {
			continue
		}
		there = append(there, s)
		if conn, err := (&net.Dialer{Timeout: dialLimit}).DialContext(ctx, "unix", s.path); err == nil {
			_ = conn.Close()
			open = append(open, s)
		}
	}
	why := "takes connections"
	if len(open) == 0 {
		open, why = there, "is there, and takes no connection"
	}
	if len(open) == 0 {
		l.EndpointFrom = "the default: none of the usual sockets is there (" + paths(usual) + ")"
		return
	}
	l.ContainerRuntimeEndpoint, l.EndpointFrom = "unix://"+open[0].path, "found: of the usual sockets that of "+open[0].runtime+" "+why
	if rest := open[1:]; len(rest) > 0 {
		l.EndpointFrom += fmt.Sprintf("; so does that of %s, which crictl would take later, too: name it (%s) to have it", names(rest), field)
	}
	l.tell(field, Origin{SourceFound, open[0].path})
}

func paths(all []socket) string {
	var out []string
	for _, s := range all {
		out = append(out, s.path)
	}
	return strings.Join(out, ", ")
}

func names(all []socket) string {
	var out []string
	for _, s := range all {
		out = append(out, s.runtime)
	}
	return strings.Join(out, ", ")
}

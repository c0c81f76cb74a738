package config

import (
	"context"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"jettison/cri"
)

// Salvage is for commands that must work beside a file which cannot be taken: the defaults, with
// the places (socket, stateDir, cgroupRoot, and the runtime's sockets) that the file at path
// (empty: DefaultPath) names, as far as it can be read at all. ok is false where there is no file:
// of a pipe nothing is left.
func Salvage(ctx context.Context, path string) (l *Loaded, ok bool) {
	l = &Loaded{Config: Default(), Kind: KindAgent, From: FromDefaults}
	// What the environment has wrong is left as it is, and the usual sockets of runtimes are not
	// looked for then.
	defer func() { _ = l.override(ctx, Places{}) }()
	if path == "" {
		path = DefaultPath
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return l, false
	}
	p, err := readParts(ctx, path)
	if err != nil || p == nil {
		return l, true
	}
	endpoint := func(value string) bool {
		_, err := cri.ParseEndpoint(value)
		return err == nil
	}
	for _, f := range []struct {
		field string
		into  *string
		fits  func(string) bool
	}{
		{"socket", &l.Socket, filepath.IsAbs}, {"stateDir", &l.StateDir, filepath.IsAbs},
		{"cgroupRoot", &l.CgroupRoot, func(string) bool { return true }},
		{"containerRuntimeEndpoint", &l.ContainerRuntimeEndpoint, endpoint},
		{"imageServiceEndpoint", &l.ImageServiceEndpoint, endpoint},
	} {
		v := valueOf(p.root, f.field)
		if v != nil && v.Kind == yaml.ScalarNode && v.ShortTag() == "!!str" && f.fits(v.Value) {
			*f.into = v.Value
			l.tell(f.field, Origin{SourceOwn, path})
		}
	}
	return l, true
}

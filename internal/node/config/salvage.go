package config

import (
	"context"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"jettison/cri"
)

// Salvage loads a configuration for commands that must work although the file is invalid: the
// defaults, with the fields socket, stateDir, cgroupRoot and the runtime's sockets of the file at
// path (empty: DefaultPath), as far as they can be read. ok is false if no regular file exists: a
// pipe cannot be read again.
func Salvage(ctx context.Context, path string) (l *Loaded, ok bool) {
	l = &Loaded{Config: Default(), Kind: KindAgent, From: FromDefaults}
	// An invalid environment variable is ignored, and then the usual sockets are not searched.
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
			l.setOrigin(f.field, Origin{SourceOwn, path})
		}
	}
	return l, true
}

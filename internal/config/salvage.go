package config

import (
	"context"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"
)

// Salvage is for commands that must work beside a file which cannot be taken: the defaults, with the places (socket, stateDir, cgroupRoot)
// that the file at path (empty: DefaultPath) names, as far as it can be read at all. ok is false where there is no file: of a pipe nothing is
// left.
func Salvage(ctx context.Context, path string) (l *Loaded, ok bool) {
	l = &Loaded{Config: Default(), Kind: KindAgent, From: FromDefaults}
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
	for _, f := range []struct {
		field string
		into  *string
		path  bool
	}{{"socket", &l.Socket, true}, {"stateDir", &l.StateDir, true}, {"cgroupRoot", &l.CgroupRoot, false}} {
		v := valueOf(p.root, f.field)
		if v != nil && v.Kind == yaml.ScalarNode && v.ShortTag() == "!!str" && (!f.path || filepath.IsAbs(v.Value)) {
			*f.into = v.Value
		}
	}
	return l, true
}

package vm

import (
	"context"
	"encoding/json"
	"path/filepath"
	"runtime"
	"strings"

	"jettison/e2e/build"
)

// BringPackage builds the agent's Debian package as a version ("0.0.1"), copies it to the guest's
// disk and returns its path there.
func (n *Node) BringPackage(ctx context.Context, version string) (string, error) {
	root, err := build.ModuleRoot(ctx)
	if err != nil {
		return "", err
	}
	preparing.Lock() // concurrent builds would write the same file
	defer preparing.Unlock()
	if _, err := build.Run(ctx, root, nil, "make", "-s", "deb", "VERSION="+version, "ARCHES="+runtime.GOARCH); err != nil {
		return "", err
	}
	name := "jettison_" + version + "_" + runtime.GOARCH + ".deb"
	to := "/var/tmp/" + name
	return to, n.Upload(ctx, filepath.Join(root, "dist", name), to)
}

// ServiceLog returns the service's log lines since the boot, as far as they are JSON.
func (n *Node) ServiceLog(ctx context.Context) (out []LogLine, err error) {
	text, err := n.Shell(ctx, "journalctl --unit=jettison --output=cat --no-pager --quiet")
	for raw := range strings.Lines(text) {
		raw = strings.TrimSpace(raw)
		line := LogLine{Msg: raw}
		if json.Unmarshal([]byte(raw), &line.Fields) == nil {
			_ = json.Unmarshal([]byte(raw), &line)
		}
		out = append(out, line)
	}
	return out, err
}

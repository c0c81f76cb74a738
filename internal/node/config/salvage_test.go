package config

import (
	"path/filepath"
	"testing"
)

// Salvage reads the valid paths of an invalid file.
func TestSalvage(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"field": own + "evictionHrad: {}\nsocket: /s/a.sock\nstateDir: /s/state\ncgroupRoot: /x\ncontainerRuntimeEndpoint: unix:///s/r.sock\n",
		"place": own + "socket: s.sock\nstateDir: [1]\ncontainerRuntimeEndpoint: http://far\n",
		"none":  "socket: {\n",
	})
	for name, want := range map[string][4]string{
		"field": {"/s/a.sock", "/s/state", "/x", "unix:///s/r.sock"},
		"place": {Default().Socket, Default().StateDir, Default().CgroupRoot, ""},
		"none":  {Default().Socket, Default().StateDir, Default().CgroupRoot, ""},
	} {
		l, ok := Salvage(t.Context(), filepath.Join(dir, name))
		if want[3] == "" { // of the usual ones, if this machine has any
			want[3] = l.ContainerRuntimeEndpoint
			if l.EndpointFrom == "" || want[3] == "http://far" {
				t.Errorf("%s: the runtime's socket is %q, from %q, want the file's", name, want[3], l.EndpointFrom)
			}
		}
		if got := [4]string{l.Socket, l.StateDir, l.CgroupRoot, l.ContainerRuntimeEndpoint}; !ok || got != want {
			t.Errorf("%s: salvaged %q, ok %v, want %q", name, got, ok, want)
		}
	}
	if _, ok := Salvage(t.Context(), filepath.Join(dir, "nowhere")); ok {
		t.Error("a missing file was salvaged: ok is true")
	}
}

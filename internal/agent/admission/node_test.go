package admission

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"jettison/stats"
)

// The node has its host's name only if this process shares the host's UTS namespace.
func TestHostname(t *testing.T) {
	own, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	for name, c := range map[string]struct {
		self, first string
		want        string
	}{
		"shared":      {"uts:[1]", "uts:[1]", strings.ToLower(own)},
		"its own":     {"uts:[2]", "uts:[1]", ""},
		"not visible": {"uts:[1]", "", ""},
	} {
		proc := t.TempDir()
		for dir, target := range map[string]string{"self": c.self, "1": c.first} {
			if err := os.MkdirAll(filepath.Join(proc, dir, "ns"), 0o755); err != nil {
				t.Fatal(err)
			}
			if target != "" {
				if err := os.Symlink(target, filepath.Join(proc, dir, "ns/uts")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := Hostname(proc); got != c.want {
			t.Errorf("%s namespace: hostname %q, want %q", name, got, c.want)
		}
	}
}

func TestAppArmor(t *testing.T) {
	for text, want := range map[string]stats.Opt[bool]{"Y\n": stats.Some(true), "N\n": stats.Some(false), "": stats.Some(false)} {
		sys := t.TempDir()
		if text != "" {
			dir := filepath.Join(sys, "module/apparmor/parameters")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "enabled"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := AppArmor(sys); got != want {
			t.Errorf("AppArmor for parameter %q = %+v, want %+v", text, got, want)
		}
	}
	if got := AppArmor(string([]byte{'/', 0})); got.OK {
		t.Errorf("AppArmor from an unreadable file = %+v, want unknown", got)
	}
}

// Without the node's name, or next to a kubelet, labels are unknown and reject no pod.
func TestLabels(t *testing.T) {
	for _, c := range []struct {
		node    Node
		kubelet bool
		want    string // of the host's name; -: no labels are known
	}{
		{Node{Name: "n"}, false, "n"},
		{Node{}, false, "-"},
		{Node{Configured: map[string]string{"disk": "ssd"}}, false, "-"},
		{Node{Configured: map[string]string{v1.LabelHostname: "m"}}, false, "m"},
		{Node{Name: "n", Configured: map[string]string{v1.LabelHostname: "m"}}, true, "-"},
	} {
		got, known := "-", c.node.state(c.kubelet)
		if known.Labels != nil {
			got = known.Labels[v1.LabelHostname]
		}
		if got != c.want {
			t.Errorf("hostname label of %+v, kubelet %v = %s, want %s", c.node, c.kubelet, got, c.want)
		}
	}
}

package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// writeFiles writes files below a directory.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// hardThresholds returns evictionHard as "SIGNAL<VALUE".
func hardThresholds(l *Loaded) (out []string) {
	for signal, value := range l.EvictionHard {
		out = append(out, signal+"<"+value)
	}
	slices.Sort(out)
	return out
}

// Drop-ins are merged over a kubelet's file in the kubelet's order, by its rules.
func TestDropins(t *testing.T) {
	for _, c := range []struct {
		name  string
		base  string
		files map[string]string // "!": without a kind
		want  string            // evictionHard, or with an ! the error
	}{
		{"none", "evictionHard: {memory.available: 1Gi}\n", nil, "memory.available<1Gi"},
		{
			"one field", "evictionHard: {memory.available: 1Gi, nodefs.available: 5%}\n",
			map[string]string{"10.conf": "evictionHard: {memory.available: 300Mi}\n"}, "memory.available<300Mi nodefs.available<5%",
		},
		{"the last one wins, folders in their order", "evictionHard: {}\n", map[string]string{
			"20.conf": "evictionHard: {memory.available: 2Mi}\n", "10.conf": "evictionHard: {memory.available: 1Mi, nodefs.available: 1%}\n",
			"15.d/30.conf": "evictionHard: {nodefs.available: 2%}\n", "30.yaml": "evictionHard: {memory.available: 9Mi}\n",
		}, "memory.available<2Mi nodefs.available<2%"},
		{
			"a null takes away", "evictionHard: {memory.available: 1Gi, nodefs.available: 5%}\n",
			map[string]string{"10.conf": "evictionHard: {memory.available: null}\n"}, "nodefs.available<5%",
		},
		{
			"the defaults come before", "", map[string]string{"10.conf": "evictionHard: {memory.available: 300Mi, imagefs.available: null}\n"},
			"imagefs.inodesFree<5% memory.available<300Mi nodefs.available<10% nodefs.inodesFree<5%",
		},
		{
			"merged before", "mergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 1Gi}\n",
			map[string]string{"10.conf": "evictionHard: {imagefs.available: null, imagefs.inodesFree: null}\n"},
			"memory.available<1Gi nodefs.available<10% nodefs.inodesFree<5%",
		},
		{"all taken away", "", map[string]string{"10.conf": "evictionHard: null\nmergeDefaultEvictionSettings: true\n"}, ""},
		{
			"an anchor", "evictionHard: &x {}\n", map[string]string{"10.conf": "x: &a {memory.available: 1Mi}\nevictionHard: *a\n"},
			"memory.available<1Mi",
		},
		{"an anchor that holds itself", "x: &a {b: *a}\nevictionHard: {}\n", map[string]string{"10.conf": "x: &a {b: *a}\n", "11.conf": "x: &a {b: *a}\n"}, ""},
		{"no kind", "", map[string]string{"10.conf": "!"}, `!/drop/10.conf:1: apiVersion "", kind "": want kubelet.config.k8s.io/v1beta1, KubeletConfiguration`},
		{"another kind", "", map[string]string{"10.conf": "!" + own}, `!/drop/10.conf:2: apiVersion "jettison/v1alpha1", kind "AgentConfiguration"`},
		{"empty", "", map[string]string{"10.conf": "!#"}, "!/drop/10.conf:1: the file is empty"},
		{"not YAML", "", map[string]string{"10.conf": "a: [1\n"}, "!/drop/10.conf:3: not YAML"},
		{"a wrong value, over a good one", "evictionHard: {memory.available: 1Gi}\n", map[string]string{
			"10.conf": "evictionHard: {nodefs.available: 1%}\n", "11.conf": "\n\nevictionHard:\n  memory.available: 1Mx\n",
		}, "!/drop/11.conf:6: evictionHard: memory.available: quantities must"},
		{"a wrong value, below a good one", "evictionHard: {memory.available: 1Mx}\n", map[string]string{
			"10.conf": "evictionHard: {nodefs.available: 1%}\n",
		}, "!/kubelet.yaml:3: evictionHard: memory.available: quantities must"},
		{"a wrong type", "", map[string]string{"10.conf": "evictionHard: 3\n"}, "!/drop/10.conf:3: evictionHard: want a mapping"},
		{"a relative path", "", map[string]string{"10.conf": "staticPodPath: a\n"}, `!/drop/10.conf:3: staticPodPath: "a": want an absolute path`},
		{"a link to nowhere", "", map[string]string{"10.conf": "->"}, "!/drop/10.conf: no such file or directory"},
		{"a folder that is called so", "", map[string]string{"10.conf/x": ""}, "memory.available"},
		{"too many", "", tooManyDropins(), "!more than 1000 files"},
		{"too large", "", map[string]string{"10.conf": strings.Repeat("#", maxSize)}, "!/drop/10.conf: larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFiles(t, dir, map[string]string{"kubelet.yaml": kubelet + c.base, "drop/README": ""})
			for name, text := range c.files {
				if text == "->" {
					if err := os.Symlink("/nowhere/at/all", filepath.Join(dir, "drop", name)); err != nil {
						t.Fatal(err)
					}
					continue
				}
				if bare, ok := strings.CutPrefix(text, "!"); !ok {
					text = kubelet + text
				} else if text = bare; text == "" {
					text = "x: 1\n"
				}
				writeFiles(t, dir, map[string]string{"drop/" + name: text})
			}
			l, err := Find(t.Context(), Places{Path: filepath.Join(dir, "kubelet.yaml"), Dir: filepath.Join(dir, "drop")})
			if want, fails := strings.CutPrefix(c.want, "!"); fails {
				if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error of the drop-ins = %v, want %q", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(hardThresholds(l), " "); got != c.want && c.name != "a folder that is called so" {
				t.Errorf("merged evictionHard = %q, want %q", got, c.want)
			}
			for _, w := range l.Warnings {
				if strings.Contains(w, "not acted on") || strings.Contains(w, "second time") {
					t.Error(w)
				}
			}
		})
	}
}

func tooManyDropins() map[string]string {
	out := map[string]string{}
	for i := range maxDropins {
		out[fmt.Sprint(i)] = ""
	}
	return out
}

// Drop-ins need a kubelet's file and a readable folder. Both paths may be relative.
func TestInvalidDropins(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"own.yaml": own, "kubelet.yaml": kubelet})
	for want, p := range map[string]Places{
		"kind AgentConfiguration has no drop-ins":          {Path: filepath.Join(dir, "own.yaml"), Dir: dir},
		"--config-dir: set --config to the kubelet's file": {Dir: dir},
		"config: --config-dir: open the host's":            {Path: filepath.Join(dir, "kubelet.yaml"), Dir: filepath.Join(dir, "none")},
		"list drop-ins: ":                                  {Path: filepath.Join(dir, "kubelet.yaml"), Dir: filepath.Join(dir, "own.yaml")},
	} {
		if _, err := Find(t.Context(), p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("find %+v: error %v, want %q", p, err, want)
		}
	}
	t.Chdir(dir)
	writeFiles(t, dir, map[string]string{"drop/1.conf": kubelet + "podLogsDir: /x\n"})
	if l, err := Find(t.Context(), Places{Path: "kubelet.yaml", Dir: "drop"}); err != nil || l.PodLogsDir != "/x" || l.From != "kubelet.yaml, with 1 drop-ins" {
		t.Errorf("relative paths of file and folder: got %+v, error %v, want podLogsDir /x", l, err)
	}
}

func FuzzOverlay(f *testing.F) {
	f.Add("evictionHard: {a: 1}\n", "evictionHard: {a: null, b: &x {c: *x}}\n")
	f.Add("staticPodPath: x\n", "staticPodPath: []\n")
	f.Fuzz(func(t *testing.T, base, patch string) {
		var nodes []*yaml.Node
		for _, s := range []string{base, patch, patch} {
			root, err := parseDocument([]byte(kubelet + s))
			if err != nil {
				return
			}
			nodes = append(nodes, root)
		}
		p := &parts{root: nodes[0], dir: "/x", dropins: []dropin{{"1", nodes[1]}, {"2", nodes[2]}}, names: []string{"a", "1", "2"}}
		if _, err := p.load(); err != nil && strings.Contains(p.addPlace(err).Error(), "\n") {
			t.Errorf("error %q has more than one line", err)
		}
	})
}

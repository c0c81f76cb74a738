package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func probeNode(t *testing.T, kernel string) (dir string, f *Features) {
	t.Helper()
	// The probes do not read the groups of pods.
	dir, cgroups := recordedTree(t, kernel, func(name string) bool { return strings.Count(name, "/") <= 2 || !strings.HasPrefix(name, "cgroup/") })
	rewrite(t, filepath.Join(dir, "proc/self/mountinfo"), func(text string) string {
		return strings.ReplaceAll(text, " "+DefaultMount+" ", " "+cgroups.Mount()+" ")
	})
	return dir, NewFeatures(cgroups, filepath.Join(dir, "proc"), filepath.Join(dir, "sys"))
}

func rewrite(t *testing.T, path string, change func(string) string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(change(string(text))), 0o644); err != nil {
		t.Fatal(err)
	}
}

func find(t *testing.T, f *Features, name string) Feature {
	t.Helper()
	features := f.Probe()
	i := slices.IndexFunc(features, func(f Feature) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("feature %s is missing in %v", name, features)
	}
	return features[i]
}

func TestProbeOfRecordedNodes(t *testing.T) {
	want := []Feature{
		{"cgroup.kill", Yes, ""},
		{"memory.reclaim", Yes, ""},
		{"memory.peak", Yes, ""},
		{"psi", Yes, ""},
		{"psi windows below 2 s", Unknown, "not a cgroup v2 hierarchy: nothing is written to it"},
		{"hugetlb controller", Yes, ""},
		{"swap", No, "0 kB"},
		{"memory.swap.current", Yes, ""},
		{"mglru", Yes, "0x0007"},
		{"memory_recursiveprot", No, "rw"},
	}
	for _, kernel := range kernels {
		_, f := probeNode(t, kernel)
		for i, got := range f.Probe() {
			w := want[i]
			if kernel == "6.1" && w.Name == "mglru" {
				w.Answer, w.Detail = No, "0x0000"
			}
			if got != w {
				t.Errorf("kernel %s: feature = %+v, want %+v", kernel, got, w)
			}
		}
	}
}

// Each case changes one thing on the recorded node.
func TestProbeAnswers(t *testing.T) {
	remove := func(t *testing.T, dir, glob string) {
		for _, glob := range strings.Fields(glob) {
			paths, err := filepath.Glob(filepath.Join(dir, glob))
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range paths {
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	set := func(path string, old, text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			rewrite(t, filepath.Join(dir, path), func(all string) string {
				if !strings.Contains(all, old) {
					t.Fatalf("text %q is not in the recorded file %s", old, path)
				}
				return strings.Replace(all, old, text, 1)
			})
		}
	}
	without := func(glob string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { remove(t, dir, glob) }
	}
	for _, c := range []struct {
		name    string
		change  func(t *testing.T, dir string)
		feature string
		want    Answer
	}{
		{"kernel before v5.14", without("cgroup/*/cgroup.kill"), "cgroup.kill", No},
		{"no group below the root", without("cgroup/system cgroup/kubepods"), "cgroup.kill", Unknown},
		{"no group below the root", without("cgroup/system cgroup/kubepods"), "memory.peak", Unknown},
		{"no group below the root, but the root has it", without("cgroup/system cgroup/kubepods"), "memory.reclaim", Yes},
		{"in a cgroup namespace the root is a group", func(t *testing.T, dir string) {
			remove(t, dir, "cgroup/system cgroup/kubepods")
			for _, name := range []string{"cgroup.events", "cgroup.kill", "memory.current"} {
				if err := os.WriteFile(filepath.Join(dir, "cgroup", name), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}, "cgroup.kill", Yes},
		{"the first group has no memory controller", without("cgroup/kubepods/memory.*"), "memory.peak", Yes},
		{"no group has the memory controller", without("cgroup/*/memory.*"), "memory.peak", Unknown},
		{"kernel before v5.19", without("cgroup/*/memory.peak"), "memory.peak", No},
		{"kernel before v5.19", without("cgroup/memory.reclaim cgroup/*/memory.reclaim"), "memory.reclaim", No},
		{"no memory controller at all", without("cgroup/memory.* cgroup/*/memory.*"), "memory.reclaim", Unknown},
		{"no swap accounting", without("cgroup/*/memory.swap.*"), "memory.swap.current", No},
		{"no pressure", without("cgroup/memory.pressure"), "psi", No},
		{"malformed pressure", set("cgroup/memory.pressure", "avg10=", "avg10=x"), "psi", Unknown},
		{"another set of controllers", set("cgroup/cgroup.controllers", "hugetlb ", ""), "hugetlb controller", No},
		{"no list of controllers", without("cgroup/cgroup.controllers"), "hugetlb controller", Unknown},
		{"swap space", set("proc/meminfo", "SwapTotal:             0 kB", "SwapTotal:       1048576 kB"), "swap", Yes},
		{"malformed meminfo", set("proc/meminfo", "SwapTotal:             0 kB", "SwapTotal: much"), "swap", Unknown},
		{"no swap line", set("proc/meminfo", "SwapTotal:", "Other:"), "swap", Unknown},
		{"no meminfo", without("proc/meminfo"), "swap", Unknown},
		{"switched off", set("sys/kernel/mm/lru_gen/enabled", "0x0007", "0x0006"), "mglru", No},
		{"malformed switch", set("sys/kernel/mm/lru_gen/enabled", "0x0007", "on"), "mglru", Unknown},
		{"kernel without it", without("sys/kernel/mm/lru_gen"), "mglru", No},
		{"no /sys", without("sys"), "mglru", Unknown},
		{"mounted with the option", set("proc/self/mountinfo", "- cgroup2 cgroup2 rw", "- cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot"), "memory_recursiveprot", Yes},
		{"not mounted there", set("proc/self/mountinfo", "- cgroup2 ", "- tmpfs "), "memory_recursiveprot", Unknown},
		{"no mountinfo", without("proc/self"), "memory_recursiveprot", Unknown},
	} {
		dir, f := probeNode(t, "6.12")
		c.change(t, dir)
		if got := find(t, f, c.feature); got.Answer != c.want || got.Answer == Unknown && got.Detail == "" {
			t.Errorf("probe with %s = %+v, want answer %v", c.name, got, c.want)
		}
	}
}

// Conclusive answers are kept; unknown ones, and features that can change, are probed again.
func TestProbeRemembersWhatIsConclusive(t *testing.T) {
	dir, f := probeNode(t, "6.12")
	moved := filepath.Join(dir, "moved")
	controllers := filepath.Join(dir, "cgroup/cgroup.controllers")
	if err := os.Rename(controllers, moved); err != nil {
		t.Fatal(err)
	}
	if got := find(t, f, "hugetlb controller"); got.Answer != Unknown {
		t.Errorf("probe without cgroup.controllers = %+v, want Unknown", got)
	}
	if err := os.Rename(moved, controllers); err != nil {
		t.Fatal(err)
	}
	if got := find(t, f, "hugetlb controller"); got.Answer != Yes {
		t.Errorf("probe after cgroup.controllers is back = %+v, want Yes", got)
	}
	if err := os.RemoveAll(filepath.Join(dir, "cgroup")); err != nil {
		t.Fatal(err)
	}
	rewrite(t, filepath.Join(dir, "sys/kernel/mm/lru_gen/enabled"), func(string) string { return "0x0000\n" })
	for name, want := range map[string]Answer{"hugetlb controller": Yes, "cgroup.kill": Yes, "psi": Yes, "mglru": No, "psi windows below 2 s": Unknown} {
		if got := find(t, f, name); got.Answer != want {
			t.Errorf("probe after the cgroup tree is gone = %+v, want answer %v", got, want)
		}
	}
}

func TestMountOptions(t *testing.T) {
	const mountinfo = `25 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
32 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,first
33 24 0:28 / /sys/fs/cgroup rw,nosuid shared:4 master:5 - cgroup2 cgroup2 rw,under
34 24 0:29 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,over
35 24 0:30 / /with\040space rw - cgroup2 cgroup2 rw,space
`
	for _, c := range []struct {
		path   string
		device uint64
		want   string
	}{
		{"/elsewhere", unix.Mkdev(0, 28), "rw,under"},
		{"/sys/fs/cgroup", unix.Mkdev(8, 1), "rw,over"},
		{"/sys/fs/cgroup", unix.Mkdev(0, 28), "rw,under"},
		{"/with space", 0, "rw,space"},
		{"/", unix.Mkdev(254, 0), ""},
	} {
		if got, ok, err := mountOptions(strings.NewReader(mountinfo), c.path, c.device); got != c.want || ok != (c.want != "") || err != nil {
			t.Errorf("mountOptions(%s, device %d) returned %q, %v with error %v", c.path, c.device, got, ok, err)
		}
	}
	far := "700 24 0:60 /" + strings.Repeat("d", 100<<10) + " /m rw - tmpfs tmpfs rw\n" // a tenant that may write to a mounted directory can make it
	if got, _, err := mountOptions(strings.NewReader(far+mountinfo), "/sys/fs/cgroup", 0); got != "rw,over" || err != nil {
		t.Errorf("mountOptions with a long line = %q, error %v", got, err)
	}
	if _, _, err := mountOptions(strings.NewReader("short - cgroup2\n"), "/", 0); err == nil {
		t.Error("mountOptions accepted a malformed line, want an error")
	}
}

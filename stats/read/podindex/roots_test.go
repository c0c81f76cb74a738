package podindex

import (
	"slices"
	"testing"

	"jettison/stats"
)

func TestParsePodCgroup(t *testing.T) {
	const uid = "12345678-1234-1234-1234-123456789abc"
	const escaped = "12345678_1234_1234_1234_123456789abc"
	for _, c := range []struct {
		parent, name string
		uid          string // empty: not a pod's cgroup
		qos          stats.QOSClass
	}{
		{"kubepods", "pod" + uid, uid, stats.Guaranteed},
		{"kubepods/burstable", "pod" + uid, uid, stats.Burstable},
		{"kubepods/besteffort", "pod" + uid, uid, stats.BestEffort},
		{"my/root/kubepods/besteffort", "pod" + uid, uid, stats.BestEffort},
		{"kubepods.slice", "kubepods-pod" + escaped + ".slice", uid, stats.Guaranteed},
		{"kubepods.slice/kubepods-burstable.slice", "kubepods-burstable-pod" + escaped + ".slice", uid, stats.Burstable},
		{"kubepods.slice/kubepods-besteffort.slice", "kubepods-besteffort-pod" + escaped + ".slice", uid, stats.BestEffort},
		{"a.slice/a-pod.slice/a-pod-kubepods.slice", "a-pod-kubepods-pod" + escaped + ".slice", uid, stats.Guaranteed},
		{"kubepods/besteffort", "pod0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef", stats.BestEffort}, // static

		{"kubepods", "burstable", "", ""},
		{"kubepods", "pod", "", ""},
		{"kubepods.slice", "kubepods-burstable.slice", "", ""},
		{"kubepods.slice", "kubepods-pod.slice", "", ""},
		{"kubepods.slice", "system-pod" + escaped + ".slice", "", ""}, // another parent's
		{"kubepods/burstable", "crio-0123.scope", "", ""},
	} {
		got, ok := stats.ParsePodCgroup(c.parent, c.name)
		if ok != (c.uid != "") || ok && (got.UID != c.uid || got.QOSClass != c.qos || got.Path != c.parent+"/"+c.name) {
			t.Errorf("ParsePodCgroup of %s/%s returned %+v with ok %v", c.parent, c.name, got, ok)
		}
	}
}

func TestCgroupOfParent(t *testing.T) {
	for parent, want := range map[string]string{
		"":                                   "",
		"/kubepods/besteffort/podA":          "kubepods/besteffort/podA",
		"kubepods-burstable-podA_B.slice":    "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podA_B.slice",
		"kubepods-podA.slice":                "kubepods.slice/kubepods-podA.slice",
		"kubepods.slice/kubepods-podA.slice": "kubepods.slice/kubepods-podA.slice", // a path already
		"a--b.slice":                         "",                                   // not a slice's name
	} {
		if got := CgroupOfParent(parent); got != want {
			t.Errorf("cgroup of parent %q = %q, want %q", parent, got, want)
		}
	}
}

func TestPodRoots(t *testing.T) {
	for root, want := range map[string]string{
		"":      "kubepods.slice/kubepods-burstable.slice",
		"/":     "kubepods.slice/kubepods-burstable.slice",
		"/a/b":  "a.slice/a-b.slice/a-b-kubepods.slice/a-b-kubepods-burstable.slice",
		"/a-b/": "a_b.slice/a_b-kubepods.slice/a_b-kubepods-burstable.slice",
	} {
		if got := PodRoots(root); !slices.Contains(got, want) || len(got) != 6 {
			t.Errorf("pod roots below %q = %v, want %s among six", root, got, want)
		}
	}
	if got := PodRoots("/a/b"); !slices.Contains(got, "a/b/kubepods/besteffort") {
		t.Errorf("pod roots with the cgroupfs driver = %v", got)
	}
}

// For any names, the parser does not panic, and a pod has a UID.
func FuzzParsePodCgroup(f *testing.F) {
	f.Add("kubepods.slice", "kubepods-pod1.slice")
	f.Add("kubepods/burstable", "pod1")
	f.Fuzz(func(t *testing.T, parent, name string) {
		if p, ok := stats.ParsePodCgroup(parent, name); ok && p.UID == "" {
			t.Errorf("%q/%q: a pod without a UID", parent, name)
		}
		CgroupOfParent(name)
	})
}

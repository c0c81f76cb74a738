package reclaim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"jettison/stats"
)

func TestContainerOfLink(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for name, want := range map[string]string{
		"web-0_default_main-" + id + ".log":              id,
		"a-b-c_kube-system_x-y-" + id + ".log":           id,
		"web_default_main-" + id[:32] + ".log":           id[:32],
		"web_default_main-" + id[:31] + ".log":           "",
		"web_default_main-" + id:                         "",
		"web_default_main-" + id + ".log.1":              "",
		"web_default_main-" + strings.ToUpper(id):        "",
		"web_main-" + id + ".log":                        "",
		"a_b_c_d-" + id + ".log":                         "",
		"-" + id + ".log":                                "",
		id + ".log":                                      "",
		".log":                                           "",
		"":                                               "",
		strings.Repeat("x", 300) + "_a_b-" + id + ".log": "",
	} {
		if got := ContainerOfLink(name); got != want {
			t.Errorf("ContainerOfLink(%q) = %q, want %q", name, got, want)
		}
	}
}

// The plan lists spare images too, because sizes are predictions. Available is the target.
func TestSpareImages(t *testing.T) {
	l := &Look{ImageFs: stats.Some(ImageFsSize{CapacityBytes: 1000, AvailableBytes: 50}), Records: Records{}}
	for _, id := range []string{"a", "b", "c", "d"} {
		l.Images = append(l.Images, Image{ID: id, Bytes: stats.Some(uint64(100)), Pinned: id == "d"})
		l.Records[id] = ImageRecord{FirstDetected: now.Add(-time.Hour)}
	}
	p := DefaultPolicy().Plan(now, l)
	if got := p.IDs(RemoveImage); !slices.Equal(got, []string{"a", "b"}) || len(p.Spare) != 1 || p.Spare[0].ID != "c" || p.Available != stats.Some(uint64(200)) || p.Short != "" {
		t.Errorf("images to remove %v, spare %+v, available %+v, short %q: not as expected", got, p.Spare, p.Available, p.Short)
	}
	l.ImageFs.V.AvailableBytes = 500
	if p := DefaultPolicy().Plan(now, l); len(p.Steps)+len(p.Spare) > 0 || p.Available.OK {
		t.Errorf("plan without a shortage = %+v, want no images", p)
	}
	l.ImageFs.V.AvailableBytes = 50
	l.Sandboxes = []Sandbox{{ID: "s", PodUID: "u", CreatedAt: now}}
	if p := DefaultPolicy().Plan(now, l); len(p.Steps)+len(p.Spare) > 0 || p.Available.OK || len(p.Errors) != 1 {
		t.Errorf("plan with a young sandbox = %+v, want no images", p)
	}
}

// A pod with a populated cgroup is not quiet.
func TestPodIsQuietWithEmptyCgroup(t *testing.T) {
	l := &Look{Cgroups: []PodCgroup{{Path: "kubepods/podu", PodUID: "u", Populated: true}, {Path: "kubepods/podv", PodUID: "v"}}}
	q := Quiet{}.Update(now, l)
	if _, ok := q["u"]; ok || !q["v"].Equal(now) {
		t.Errorf("quiet pods = %v, want only those with an empty cgroup", q)
	}
	if p := Phases(now.Add(time.Hour), l, q, nil, time.Minute); p["u"] != Active || p["v"] != Gone {
		t.Errorf("phases = %v, want only the pods with an empty cgroup gone", p)
	}
}

// Volumes that were moved aside are removed for any pod, even before all pods are known.
func TestVolumesMovedAside(t *testing.T) {
	l := &Look{MovedAside: []string{"b", "a", "b"}, Pods: map[string]Phase{"a": Active}}
	p := DefaultPolicy().Plan(now, l)
	if got := p.IDs(RemoveVolumes); !slices.Equal(got, []string{"a", "b"}) || len(p.Steps) != 2 || p.Steps[0].Action.String() != "remove volumes" {
		t.Errorf("steps = %+v, want one per pod with volumes moved aside", p.Steps)
	}
}

package reclaim

import (
	"maps"
	"strings"
	"testing"
	"time"
)

const uidOfLogs = "00000000-0000-0000-0000-000000000654"

func TestQuietPodsAreGoneLater(t *testing.T) {
	l := &Look{
		Sandboxes: []Sandbox{{ID: "s1", PodUID: "ready"}, {ID: "s2", PodUID: "dead", NotReady: true}, {ID: "s3", PodUID: "runs", NotReady: true}, {ID: "s4", PodUID: "untold", NotReady: true},
			{ID: "s5", PodUID: "named", NotReady: true}},
		Containers: []Container{{PodUID: "ready", State: Exited}, {PodUID: "dead", State: Unknown}, {SandboxID: "s3", State: Running}, {PodUID: "untold"}, {PodUID: "alone", State: Exited}, {State: Exited}},
		LogDir:     []string{"default_a_" + uidOfLogs, "lost+found"},
	}
	q := Quiet{"forgotten": now, "ready": now}.Update(now, l)
	want := Quiet{"dead": now, "alone": now, "named": now, uidOfLogs: now}
	if !maps.Equal(q, want) {
		t.Fatalf("quiet pods = %v, want %v", q, want)
	}
	later := now.Add(5 * time.Minute)
	if got := q.Update(later, l); !maps.Equal(got, want) {
		t.Errorf("quiet since = %v, want %v", got, want)
	}
	named := map[string]Phase{"named": Active, "ready": Gone, "far": Terminated}
	for _, test := range []struct {
		at   time.Time
		want Phase
	}{{later.Add(-1), Active}, {later, Gone}} {
		got := Phases(test.at, l, q, named, 5*time.Minute)
		want := map[string]Phase{"named": Active, "ready": Gone, "far": Terminated, "dead": test.want, "alone": test.want, uidOfLogs: test.want, "untold": Active, "runs": Active}
		if !maps.Equal(got, want) {
			t.Errorf("phases after %v = %v, want %v", test.at.Sub(now), got, want)
		}
	}
	l.Sandboxes[1].NotReady = false
	if _, ok := q.Update(later, l)["dead"]; ok {
		t.Error("a pod that runs again is still quiet")
	}
	if got := (Quiet{"alone": later}).Update(now, l)["alone"]; !got.Equal(now) {
		t.Errorf("quiet since %v after the clock was set back, want %v", got, now)
	}
}

// A pod with a running container is active even if its object is terminated: its files are not
// garbage. A ready sandbox alone does not make it active: without a kubelet the sandbox of an ended
// pod stays ready.
func TestRunningPodIsActive(t *testing.T) {
	l := &Look{
		Sandboxes: []Sandbox{{ID: "s1", PodUID: "evicted"}, {ID: "s2", PodUID: "gone"}, {ID: "s3", PodUID: "terminated"}, {ID: "s4", PodUID: "over"}},
		Containers: []Container{
			{PodUID: "evicted", State: Running}, {SandboxID: "s2", State: Running}, {PodUID: "terminated", State: Exited},
			{PodUID: "terminated", State: Running}, {PodUID: "over", State: Exited},
		},
	}
	named := map[string]Phase{"evicted": Evicted, "gone": Gone, "terminated": Terminated, "over": Evicted}
	got := Phases(now, l, Quiet{}, named, time.Minute)
	if want := map[string]Phase{"evicted": Active, "gone": Active, "terminated": Active, "over": Evicted}; !maps.Equal(got, want) {
		t.Errorf("phases = %v, want %v", got, want)
	}
	if named["evicted"] != Evicted {
		t.Error("Phases() changed its argument")
	}
}

func TestLogDirNames(t *testing.T) {
	const uid = "00000000-0000-0000-0000-000000000654"
	for name, want := range map[string]string{
		"default_a_" + uid: uid, "kube-system_a.b-1_" + uid: uid, "n_etcd_0123456789abcdef0123456789abcdef": "0123456789abcdef0123456789abcdef",
		"": "", uid: "", "_" + uid: "", "a_" + uid: "", "a__" + uid: "", "a_b_" + uid + "\n": "", "a_b_c_" + uid: "", "a.b_c_" + uid: "",
		"a_b_0123456789abcdef0123456789abcde": "", "a_.._" + uid: "", "a_b..c_" + uid: "", "a_-b_" + uid: "", "a_b-_" + uid: "", "a-_b_" + uid: "", "a_b_0000000000000-0000-0000-000000000654-": "",
		strings.Repeat("a", 64) + "_b_" + uid: "", "a_" + strings.Repeat("b", 217) + "_" + uid: "", "a_" + strings.Repeat("b", 216) + "_" + uid: uid, "../a_b_" + uid: "", "a_b/../c_" + uid: "", "a_b_" + uid + "/": "", "A_b_" + uid: "", "a_b_0000000G-0000-0000-0000-000000000654": "",
	} {
		if got := PodOfLogDir(name); got != want {
			t.Errorf("PodOfLogDir(%q) = %q, want %q", name, got, want)
		}
	}
}

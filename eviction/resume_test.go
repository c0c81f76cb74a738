package eviction

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"jettison/stats"
)

// onFile is what is left of a value after it lay in a file.
func onFile[T any](t interface{ Fatal(...any) }, v T) (out T) {
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// restarted is a manager after a restart that took no time: what was saved came through a file, what is met the next look tells at once.
func restarted(t *rapid.T, m *Manager, now time.Time) *Manager {
	again := NewManager(m.config)
	alive, dropped := again.Resume(now, onFile(t, m.Save()))
	if len(dropped) > 0 {
		t.Fatalf("dropped of what was saved: %v", dropped)
	}
	n := 0
	for _, p := range m.pending {
		if !p.died {
			n++
		}
	}
	if len(alive) != n {
		t.Fatalf("%d of %d evictions are alive", len(alive), n)
	}
	again.layout, again.watched = m.layout, slices.Clone(m.watched)
	again.conditionAt, again.conditions, again.reported = m.conditionAt, m.conditions, m.reported
	return again
}

// Resume(Save()) decides the same as a manager that was never ended, whatever comes before and after.
func TestResumeDecidesTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, now := managerOf(t, 30*time.Second, append(hardLines, softLines...)...), epoch
		one.config.Breaker = rapid.Bool().Draw(t, "breaker")
		two := one
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20000).Draw(t, "ms")) * time.Millisecond)
			if two == one || rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
				two = restarted(t, one, now)
			}
			look := Input{Summary: &stats.Summary{Node: anyNode(t, now)}}
			look.Summary.Pods, look.Pods = anyPods(t)
			for i := range look.Summary.Pods {
				p := &look.Summary.Pods[i]
				p.Cgroup, p.CgroupID = "kubepods/pod"+p.PodRef.UID, stats.CgroupID{Dev: 1, Ino: rapid.Uint64Range(1, 2).Draw(t, "cgroup")}
				p.SandboxIDs = []string{rapid.SampledFrom([]string{"x", "y"}).Draw(t, "sandbox")}
			}
			maps.DeleteFunc(look.Pods, func(uid string, _ *Pod) bool { // one that is not there has nothing to be killed by
				return !slices.ContainsFunc(look.Summary.Pods, func(p stats.PodStats) bool { return p.PodRef.UID == uid })
			})
			later := Input{Summary: &stats.Summary{Node: anyNode(t, now), Pods: look.Summary.Pods}, Pods: look.Pods}
			a, b := both(t, one, now, look, later), both(t, two, now, look, later)
			if diff := cmp.Diff(a.text(false), b.text(false)); diff != "" {
				t.Fatalf("after a restart it decides otherwise:\n%s", diff)
			}
			level := rapid.Uint64Range(0, 4<<30).Draw(t, "level")
			for i, e := range a.Evictions {
				uid, fate := e.Pod.PodRef.UID, rapid.IntRange(0, 3).Draw(t, "fate")
				one.Begin(e, level)
				two.Begin(b.Evictions[i], level)
				for _, m := range []*Manager{one, two} {
					if fate > 0 {
						m.Done(now, uid, fate > 1)
					}
					if fate > 2 {
						m.Cleaned(now, uid)
					}
				}
			}
			if diff := cmp.Diff(one.Save(), two.Save()); diff != "" {
				t.Fatalf("after a restart it remembers otherwise:\n%s", diff)
			}
		}
	})
}

// Times in the far future hold up nobody for longer than what begins now would.
func TestResumeClamps(t *testing.T) {
	m, far := managerOf(t, 0, append(hardLines, softLines...)...), epoch.Add(1000*time.Hour)
	pod := SavedPod{UID: "a", SandboxIDs: []string{"s"}}
	alive, dropped := m.Resume(epoch, Saved{
		Pending: []SavedPending{
			{Eviction: SavedEviction{Pod: pod, Signal: "memory.available", Hard: true, GracePeriodSeconds: 99}, Level: math.MaxUint64, Died: true, Until: far, Ended: far},
			{Eviction: SavedEviction{Pod: SavedPod{UID: "b", SandboxIDs: []string{"s"}}, Signal: "memory.available", GracePeriodSeconds: math.MaxInt64, Returns: math.MaxUint64}, Until: far},
		},
		Aside:   []SavedAside{{"c", far, 1}, {"d", far, math.MaxInt}, {"e", epoch.Add(time.Second), 2}},
		Evicted: []SavedEvicted{{"f", math.MaxInt, far}},
		Futile:  map[string]int{"memory": math.MaxInt},
	})
	if len(alive) != 1 || alive[0].Pod.PodRef.UID != "b" || alive[0].GracePeriodSeconds != 600 || alive[0].Returns != 0 {
		t.Errorf("alive: %+v", alive)
	}
	a, b := m.pending[0], m.pending[1]
	if a.level != 0 || !a.until.Equal(epoch.Add(settleLimit)) || !a.ended.Equal(epoch) || a.e.GracePeriodSeconds != 1 || !b.until.IsZero() {
		t.Errorf("pending: %+v, %+v", a, b)
	}
	for uid, want := range map[string]time.Duration{"c": 30 * time.Second, "d": 5 * time.Minute, "e": time.Second} {
		if got := m.aside[uid].until.Sub(epoch); got != want {
			t.Errorf("%s is set aside for %v, want %v", uid, got, want)
		}
	}
	if m.evicted["f"] != (evicted{maxTimes, epoch}) || m.futile[kindMemory] != breakerLimit {
		t.Errorf("evicted %+v, futile %v", m.evicted, m.futile)
	}
	if len(dropped) != 4 {
		t.Errorf("said: %v", dropped)
	}
	m.Done(epoch, "e", false)
	if got := m.aside["e"].until.Sub(epoch); got != 2*time.Minute {
		t.Errorf("the third time it is set aside for %v", got)
	}
}

// What cannot be true of an eviction is dropped, with a reason: above all no cgroup is killed that is not the pod's own.
func TestResumeDropsNonsense(t *testing.T) {
	fine := SavedEviction{Signal: "memory.available", Pod: SavedPod{UID: "1-2", Cgroup: "kubepods.slice/kubepods-pod1_2.slice", CgroupIno: 7}}
	if _, err := fine.Eviction(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*SavedEviction){
		"is no signal":                  func(s *SavedEviction) { s.Signal = "memory" },
		"a UID is missing":              func(s *SavedEviction) { s.Pod.UID = "" },
		"is not a UID":                  func(s *SavedEviction) { s.Pod.UID = "1-2\nx" },
		"a UID of 1000 bytes":           func(s *SavedEviction) { s.Pod.UID = strings.Repeat("x", 1000) },
		"is not a name":                 func(s *SavedEviction) { s.Pod.Name = "a b" },
		"is not a namespace":            func(s *SavedEviction) { s.Pod.Namespace = "../x" },
		"is no QoS class":               func(s *SavedEviction) { s.Pod.QOSClass = "Best" },
		"65 sandboxes":                  func(s *SavedEviction) { s.Pod.SandboxIDs = make([]string, 65) },
		"the ID of a sandbox is missin": func(s *SavedEviction) { s.Pod.SandboxIDs = []string{""} },
		"neither its cgroup nor":        func(s *SavedEviction) { s.Pod.Cgroup = "" },
		"which cgroup":                  func(s *SavedEviction) { s.Pod.CgroupIno = 0 },
		`"kubepods" is not its cgroup`:  func(s *SavedEviction) { s.Pod.Cgroup = "kubepods" },
		`"kubepods/pod2" is not its`:    func(s *SavedEviction) { s.Pod.Cgroup = "kubepods/pod2" },
		`"/kubepods/pod1-2" is no path`: func(s *SavedEviction) { s.Pod.Cgroup = "/kubepods/pod1-2" },
		`"../pod1-2" is no path`:        func(s *SavedEviction) { s.Pod.Cgroup = "../pod1-2" },
		`"a/../b/pod1-2" is no path`:    func(s *SavedEviction) { s.Pod.Cgroup = "a/../b/pod1-2" },
	} {
		s := fine
		change(&s)
		if _, err := s.Eviction(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
		m := managerOf(t, 0, hardLines...)
		if alive, dropped := m.Resume(epoch, Saved{Pending: []SavedPending{{Eviction: s}}}); len(alive)+len(m.pending) > 0 || len(dropped) != 1 {
			t.Errorf("%s: resumed %v, dropped %v", want, alive, dropped)
		}
	}
	var many Saved
	for i := range 3000 {
		uid := fmt.Sprint(i)
		many.Pending = append(many.Pending, SavedPending{Eviction: SavedEviction{Signal: "pid.available", Pod: SavedPod{UID: uid, SandboxIDs: []string{uid}}}})
		many.Aside, many.Evicted = append(many.Aside, SavedAside{uid, epoch, 1}), append(many.Evicted, SavedEvicted{uid, 1, epoch})
	}
	m := managerOf(t, 0, hardLines...)
	if _, dropped := m.Resume(epoch, many); len(m.pending) != maxPending || len(m.aside) != maxRemembered || len(m.evicted) != maxRemembered || len(dropped) != 3 {
		t.Errorf("%d, %d, %d, %v", len(m.pending), len(m.aside), len(m.evicted), dropped)
	}
	if s := m.Save(); len(s.Pending) != maxPending || len(s.Aside) != maxRemembered {
		t.Error("it does not save what it has")
	}
}

// Whatever a file says: no panic, nobody is held up for longer than the clamps allow, and what was resumed can be saved again.
func FuzzResume(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"pending":[{"eviction":{"pod":{"uid":"a","cgroup":"kubepods/poda","cgroupIno":3},"signal":"memory.available","hard":true},"level":18446744073709551615,"died":true,"until":"9999-01-01T00:00:00Z"}]}`))
	f.Add([]byte(`{"setAside":[{"uid":"a","until":"2999-01-01T00:00:00Z","times":-1},{"uid":"b","until":"2999-01-01T00:00:00Z","times":9}],"evicted":[{"uid":"a","times":1}],"futile":{"memory":9,"x":1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s Saved
		if json.Unmarshal(text, &s) != nil {
			return
		}
		m := managerOf(t, time.Minute, append(hardLines, softLines...)...)
		m.config.Breaker = true
		alive, dropped := m.Resume(epoch, s)
		for _, err := range dropped {
			if strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 2000 {
				t.Errorf("%q", err)
			}
		}
		for uid, until := range m.SetAside(epoch) {
			if until.Sub(epoch) > setAsideMax {
				t.Errorf("%s is set aside until %v", uid, until)
			}
		}
		for _, e := range alive {
			if c := e.Pod.Cgroup; c != "" && (!strings.Contains(c, strings.ReplaceAll(e.Pod.PodRef.UID, "-", "_")) && !strings.Contains(c, e.Pod.PodRef.UID) || e.Pod.CgroupID.Ino == 0) {
				t.Errorf("it would kill %q for pod %q", c, e.Pod.PodRef.UID)
			}
			m.Done(epoch, e.Pod.PodRef.UID, true)
		}
		again := managerOf(t, time.Minute, hardLines...)
		if _, dropped := again.Resume(epoch, onFile(t, m.Save())); len(dropped) > 0 {
			t.Errorf("what it saves itself it drops: %v", dropped)
		}
		short := Input{Summary: &stats.Summary{Pods: []stats.PodStats{{PodRef: stats.PodReference{UID: "zz"}}}}}
		short.Summary.Node.Memory = stats.NodeMemoryStats{CapacityBytes: stats.Some(uint64(16 << 30)), KernelAvailableBytes: stats.Some(uint64(1))}
		m.config.Breaker = false
		m.Step(epoch, short)
		if d := m.Step(epoch.Add(settleLimit+time.Second), short); len(d.Evictions) != 1 {
			t.Errorf("memory is short, and nobody goes: %s", d.Reason)
		}
	})
}

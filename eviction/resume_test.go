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

// throughFile returns a value after it was written to a file and read back.
func throughFile[T any](t interface{ Fatal(...any) }, v T) (out T) {
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// restartedManager returns a manager after a restart that took no time: the saved state went
// through a file, and the next look evaluates the thresholds immediately.
func restartedManager(t *rapid.T, m *Manager, now time.Time) *Manager {
	restored := NewManager(*m.config)
	if dropped := restored.Resume(now, throughFile(t, m.Save())); len(dropped) > 0 {
		t.Fatalf("Resume dropped saved state: %v", dropped)
	}
	phases := func(m *Manager) (out []string) {
		for _, l := range m.Lives() {
			out = append(out, l.e.Pod.PodRef.UID+" "+phaseWords[l.Phase()])
		}
		return out
	}
	if diff := cmp.Diff(phases(m), phases(restored)); diff != "" {
		t.Fatalf("phases of evictions after a restart differ (-want +got):\n%s", diff)
	}
	restored.watch.disks.layout, restored.watch.all = m.watch.disks.layout, slices.Clone(m.watch.all)
	e := &restored.explain // pending looks and reasons are computed again
	e.quietLookDue, e.quietLookSince, e.lastQuietLook, e.remeasureSince = m.explain.quietLookDue, m.explain.quietLookSince, m.explain.lastQuietLook, m.explain.remeasureSince
	restored.conditions = m.conditions
	restored.softHold = m.softHold // begins again after a restart
	return restored
}

// Resume(Save()) decides the same as a manager without a restart, whatever happens before and
// after.
func TestResumeDecidesTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, now := managerOf(t, 30*time.Second, append(hardLines, softLines...)...), epoch
		one.config.Breaker, one.config.Replay = rapid.Bool().Draw(t, "breaker"), rapid.Bool().Draw(t, "replay")
		one.config.Explain = rapid.Bool().Draw(t, "explain")
		two := one
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20000).Draw(t, "ms")) * time.Millisecond)
			if two == one || rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
				two = restartedManager(t, one, now)
			}
			look := Input{Summary: &stats.Summary{Node: anyNode(t, now)}}
			look.Summary.Pods, look.Pods = anyPods(t)
			for i := range look.Summary.Pods {
				p := &look.Summary.Pods[i]
				p.Cgroup, p.CgroupID = "kubepods/pod"+p.PodRef.UID, stats.CgroupID{Dev: 1, Ino: rapid.Uint64Range(1, 2).Draw(t, "cgroup")}
				p.SandboxIDs = []string{rapid.SampledFrom([]string{"x", "y"}).Draw(t, "sandbox")}
			}
			// a pod that is missing has nothing to kill
			maps.DeleteFunc(look.Pods, func(uid string, _ *Pod) bool {
				return !slices.ContainsFunc(look.Summary.Pods, func(p stats.PodStats) bool { return p.PodRef.UID == uid })
			})
			later := Input{Summary: &stats.Summary{Node: anyNode(t, now), Pods: look.Summary.Pods}, Pods: look.Pods}
			a, b := stepWithReclaim(t, one, now, look, later), stepWithReclaim(t, two, now, look, later)
			if diff := cmp.Diff(a.text(false), b.text(false)); diff != "" {
				t.Fatalf("decision after a restart differs (-want +got):\n%s", diff)
			}
			if len(look.Summary.Pods) > 0 && rapid.IntRange(0, 3).Draw(t, "for a critical pod") == 0 {
				for _, m := range []*Manager{one, two} {
					if p := &look.Summary.Pods[0]; m.Life(p.PodRef.UID) == nil {
						m.Begin(Stamp{Time: now}, Preempted(p, look.Pods[p.PodRef.UID], "Preempting", ""), Met{})
					}
				}
			}
			level := rapid.Uint64Range(0, 4<<30).Draw(t, "level")
			for i, e := range a.Evictions {
				fate, at := rapid.IntRange(0, 4).Draw(t, "fate"), Stamp{Time: now, Monotonic: time.Duration(now.UnixNano())}
				for j, m := range []*Manager{one, two} {
					e, d := []Eviction{e, b.Evictions[i]}[j], []Decision{a, b}[j]
					l := m.Begin(at, e, metBy(d, &e))
					l.level = level
					switch fate {
					case 1:
						m.MarkUndying(now, l)
					case 2:
						m.Killed(at, l)
					case 3:
						m.Emptied(at, l)
					case 4:
						m.Emptied(at, l)
						m.Cleaned(at, l)
					}
				}
			}
			if diff := cmp.Diff(one.Save(), two.Save()); diff != "" {
				t.Fatalf("saved state after a restart differs (-want +got):\n%s", diff)
			}
			if rapid.Bool().Draw(t, "told") {
				for _, m := range []*Manager{one, two} {
					m.Ready(now)
					m.Acknowledge()
				}
			}
		}
	})
}

// Times in the far future delay nothing longer than an eviction that begins now.
func TestResumeClamps(t *testing.T) {
	m, far := managerOf(t, 0, append(hardLines, softLines...)...), epoch.Add(1000*time.Hour)
	pod := SavedPod{UID: "a", SandboxIDs: []string{"s"}}
	to := Stamp{Time: far, Monotonic: -5}
	dropped := m.Resume(epoch, Saved{
		Lives: []SavedLife{
			{Eviction: SavedEviction{Pod: pod, Signal: "memory.available", Hard: true, GracePeriodSeconds: 99}, Level: math.MaxUint64, Killed: to, Emptied: to, Clean: true, Cleaned: to},
			{Eviction: SavedEviction{Pod: SavedPod{UID: "b", SandboxIDs: []string{"s"}}, Signal: "memory.available", GracePeriodSeconds: math.MaxInt64, Returns: math.MaxUint64}, Deadline: far, Settled: true, Outcome: "back"},
		},
		Aside:   []SavedAside{{"c", far, 1}, {"d", far, math.MaxInt}, {"e", epoch.Add(time.Second), 2}},
		Evicted: []SavedEvicted{{"f", math.MaxInt, far}},
		Futile:  map[string]int{"memory": math.MaxInt},
	})
	a, b, now := m.evictions.lives[0], m.evictions.lives[1], Stamp{Time: epoch}
	if a.level != 0 || a.killed != now || a.emptied != now || a.cleaned != now || a.began.Time != epoch || a.e.GracePeriodSeconds != 1 {
		t.Errorf("restored dead victim = %+v, want times at most now", a)
	}
	if b.Phase() != Stopping || b.settled || b.outcome != OutcomeUnknown || b.e.GracePeriodSeconds != 600 || b.e.Returns != 0 || !b.deadline.Equal(epoch.Add(maxSavedGrace*time.Second)) {
		t.Errorf("restored live victim = %+v, want it stopping with a bounded grace period", b)
	}
	for uid, want := range map[string]time.Duration{"c": 30 * time.Second, "d": 5 * time.Minute, "e": time.Second} {
		if got := m.evictions.history.aside[uid].until.Sub(epoch); got != want {
			t.Errorf("%s is set aside for %v, want %v", uid, got, want)
		}
	}
	if m.evictions.history.evicted["f"] != (evicted{maxTimes, epoch}) || m.breakers.byThreshold[breakerKey{"memory.available", true}].futile != breakerLimit {
		t.Errorf("evicted %+v, breakers %v, want bounded counts", m.evictions.history.evicted, m.breakers.byThreshold)
	}
	if len(dropped) != 5 {
		t.Errorf("Resume dropped %v, want 5 errors", dropped)
	}
	m.SetPodAside(epoch, "e")
	if got := m.evictions.history.aside["e"].until.Sub(epoch); got != 2*time.Minute {
		t.Errorf("set aside for %v the third time, want 2m", got)
	}
}

// An implausible eviction is dropped with a reason: above all, no cgroup is killed that is not the
// pod's own.
func TestResumeDropsNonsense(t *testing.T) {
	fine := SavedEviction{Signal: "memory.available", Pod: SavedPod{UID: "1-2", Cgroup: "kubepods.slice/kubepods-pod1_2.slice", CgroupIno: 7}}
	if _, err := fine.Eviction(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*SavedEviction){
		"unknown signal":                          func(s *SavedEviction) { s.Signal = "memory" },
		"a UID is missing":                        func(s *SavedEviction) { s.Pod.UID = "" },
		"is not a UID":                            func(s *SavedEviction) { s.Pod.UID = "1-2\nx" },
		"a UID of 1000 bytes is too long":         func(s *SavedEviction) { s.Pod.UID = strings.Repeat("x", 1000) },
		"is not a name":                           func(s *SavedEviction) { s.Pod.Name = "a b" },
		"is not a namespace":                      func(s *SavedEviction) { s.Pod.Namespace = "../x" },
		"unknown QoS class":                       func(s *SavedEviction) { s.Pod.QOSClass = "Best" },
		"too many sandboxes (65)":                 func(s *SavedEviction) { s.Pod.SandboxIDs = make([]string, 65) },
		"the ID of a sandbox is missin":           func(s *SavedEviction) { s.Pod.SandboxIDs = []string{""} },
		"neither its cgroup nor":                  func(s *SavedEviction) { s.Pod.Cgroup = "" },
		"has no inode number":                     func(s *SavedEviction) { s.Pod.CgroupIno = 0 },
		`"kubepods" is not the pod's cgroup`:      func(s *SavedEviction) { s.Pod.Cgroup = "kubepods" },
		`"kubepods/pod2" is not the pod's`:        func(s *SavedEviction) { s.Pod.Cgroup = "kubepods/pod2" },
		`"/kubepods/pod1-2" is not a cgroup path`: func(s *SavedEviction) { s.Pod.Cgroup = "/kubepods/pod1-2" },
		`"../pod1-2" is not a cgroup path`:        func(s *SavedEviction) { s.Pod.Cgroup = "../pod1-2" },
		`"a/../b/pod1-2" is not a cgroup path`:    func(s *SavedEviction) { s.Pod.Cgroup = "a/../b/pod1-2" },
	} {
		s := fine
		change(&s)
		if _, err := s.Eviction(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error = %v, want %q in it, on one line", err, want)
		}
		m := managerOf(t, 0, hardLines...)
		if dropped := m.Resume(epoch, Saved{Lives: []SavedLife{{Eviction: s}}}); len(m.evictions.lives) > 0 || len(dropped) != 1 {
			t.Errorf("%s: resumed %v, dropped %v, want one dropped", want, m.evictions.lives, dropped)
		}
	}
	var many Saved
	for i := range 3000 {
		uid := fmt.Sprint(i)
		many.Lives = append(many.Lives, SavedLife{Eviction: SavedEviction{Signal: "pid.available", Pod: SavedPod{UID: uid, SandboxIDs: []string{uid}}}})
		many.Aside, many.Evicted = append(many.Aside, SavedAside{uid, epoch, 1}), append(many.Evicted, SavedEvicted{uid, 1, epoch})
	}
	m := managerOf(t, 0, hardLines...)
	if dropped := m.Resume(epoch, many); len(m.evictions.lives) != maxLives || len(m.evictions.history.aside) != maxRemembered || len(m.evictions.history.evicted) != maxRemembered || len(dropped) != 3 {
		t.Errorf("resumed %d evictions, %d set aside, %d evicted, dropped %v, want the bounds and 3 errors", len(m.evictions.lives), len(m.evictions.history.aside), len(m.evictions.history.evicted), dropped)
	}
	if s := m.Save(); len(s.Lives) != maxLives || len(s.Aside) != maxRemembered {
		t.Errorf("saved %d evictions and %d set aside, want the bounds", len(s.Lives), len(s.Aside))
	}
}

// Whatever a file contains: no panic, no delay longer than the bounds allow, and the restored state
// can be saved again.
func FuzzResume(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"lives":[{"eviction":{"pod":{"uid":"a","cgroup":"kubepods/poda","cgroupIno":3},"signal":"memory.available","hard":true},"level":18446744073709551615,"emptied":{"time":"9999-01-01T00:00:00Z"}}]}`))
	f.Add([]byte(`{"setAside":[{"uid":"a","until":"2999-01-01T00:00:00Z","times":-1},{"uid":"b","until":"2999-01-01T00:00:00Z","times":9}],"evicted":[{"uid":"a","times":1}],"futile":{"memory":9,"x":1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s Saved
		if json.Unmarshal(text, &s) != nil {
			return
		}
		m := managerOf(t, time.Minute, append(hardLines, softLines...)...)
		m.config.Breaker = true
		dropped := m.Resume(epoch, s)
		for _, err := range dropped {
			if strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 2000 {
				t.Errorf("error = %q, want one short printable line", err)
			}
		}
		for uid, until := range m.SetAside(epoch) {
			if until.Sub(epoch) > setAsideMax {
				t.Errorf("%s is set aside until %v, want at most %v", uid, until, setAsideMax)
			}
		}
		for _, l := range m.Lives() {
			e := l.Eviction()
			if c := e.Pod.Cgroup; c != "" && (!strings.Contains(c, strings.ReplaceAll(e.Pod.PodRef.UID, "-", "_")) && !strings.Contains(c, e.Pod.PodRef.UID) || e.Pod.CgroupID.Ino == 0) {
				t.Errorf("eviction of pod %q has cgroup %q, want its own", e.Pod.PodRef.UID, c)
			}
			m.Abandon(epoch, l)
		}
		restored := managerOf(t, time.Minute, hardLines...)
		if dropped := restored.Resume(epoch, throughFile(t, m.Save())); len(dropped) > 0 {
			t.Errorf("Resume dropped its own saved state: %v", dropped)
		}
		m.config.Breaker = false
		m.Step(epoch, Input{Summary: &stats.Summary{}})
		short := Input{Summary: &stats.Summary{Pods: []stats.PodStats{{PodRef: stats.PodReference{UID: "zz"}}}}}
		short.Summary.Node.Memory = stats.NodeMemoryStats{CapacityBytes: stats.Some(uint64(16 << 30)), KernelAvailableBytes: stats.Some(uint64(1))}
		m.config.Breaker = false
		m.Step(epoch, short)
		if d := m.Step(epoch.Add(settleLimit+time.Second), short); len(d.Evictions) != 1 {
			t.Errorf("memory is short: %d evictions, want one: %s", len(d.Evictions), d.Reason)
		}
	})
}

// A victim may take DieLimit to die, counted from the kill also after a restart, and by the clock that
// is never set if both times have it.
func TestDieWithin(t *testing.T) {
	at := func(wall, monotonic time.Duration) Stamp { return Stamp{Time: epoch.Add(wall), Monotonic: monotonic} }
	for name, c := range map[string]struct {
		killed, now Stamp
		want        time.Duration
	}{
		"just killed":         {at(0, time.Hour), at(0, time.Hour), DieLimit},
		"killed long ago":     {at(0, time.Hour), at(time.Minute, time.Hour+time.Minute), settleLimit},
		"killed 3 s ago":      {at(0, time.Hour), at(3*time.Second, time.Hour+3*time.Second), DieLimit - 3*time.Second},
		"clock set forward":   {at(0, time.Hour), at(time.Hour, time.Hour+time.Second), DieLimit - time.Second},
		"wall clock only":     {Stamp{Time: epoch}, at(3*time.Second, time.Hour), DieLimit - 3*time.Second},
		"killed after now":    {at(0, time.Hour), at(0, time.Minute), DieLimit},
		"time of kill absent": {Stamp{}, at(0, time.Hour), DieLimit},
	} {
		if got := (&Life{killed: c.killed}).DieWithin(c.now); got != c.want {
			t.Errorf("%s: time left = %v, want %v", name, got, c.want)
		}
	}
}

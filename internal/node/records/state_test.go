package records

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"jettison/api"
	"jettison/eviction"
	"jettison/stats"
)

// inProgress returns the eviction in progress of a pod with its own cgroup.
func inProgress(uid string) eviction.SavedLife {
	return eviction.SavedLife{
		Record: "r-" + uid, Began: eviction.Stamp{Time: epoch, Monotonic: 5}, Deadline: epoch.Add(30 * time.Second), RemoveFiles: true,
		Eviction: eviction.SavedEviction{
			Signal: "memory.available", GracePeriodSeconds: 30,
			Pod: eviction.SavedPod{UID: uid, Namespace: "ns", Name: "pod", QOSClass: stats.Burstable, Cgroup: "kubepods/burstable/pod" + uid, CgroupDev: 1, CgroupIno: 2, SandboxIDs: []string{"s"}},
		},
	}
}

func load(t *testing.T, dir string, now time.Time, boot string) (s State, running []api.Record, warnings string) {
	t.Helper()
	s, kept, errs := Load(dir, now, boot)
	for _, err := range errs {
		if strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("warning %q contains a line break or an escape, want one plain line", err)
		}
		warnings += strings.ReplaceAll(err.Error(), dir, "DIR") + "\n"
	}
	return s, runningRecords(kept), warnings
}

// A restart restores the saved state. After a boot it restores only the hold-offs.
func TestAStateComesBack(t *testing.T) {
	w, _ := start(t, Options{BootID: "boot"})
	dir := w.o.Dir
	if s, running, warnings := load(t, dir, epoch, "boot"); warnings != "" || running != nil || !cmp.Equal(s, State{}) {
		t.Errorf("before the first start: %+v, %q", s, warnings)
	}
	want := State{
		Manager: eviction.Saved{
			Lives: []eviction.SavedLife{inProgress("a"), inProgress("b"), {Eviction: inProgress("c").Eviction, Emptied: eviction.Stamp{Time: epoch}}},
			Aside: []eviction.SavedAside{{UID: "x", Until: epoch.Add(time.Minute), Times: 2}},
		},
		HoldOffs:    []HoldOff{{"a", epoch.Add(time.Minute), "memory was short", 1, stats.SignalMemoryAvailable, Owner{"DaemonSet", "d", "n", "p"}}},
		Descheduled: []Descheduled{{"a", epoch.Add(-time.Hour)}},
	}
	w.Save(want)
	w.Begin(begun(1))
	w.Begin(begun(2))
	r := begun(1)
	r.Outcome = api.OutcomeNotBack
	w.Update(r)
	stop(t, w)
	s, running, warnings := load(t, dir, epoch, "boot")
	if s.Time.IsZero() || warnings != "" || len(running) != 1 || running[0].ID != begun(2).ID {
		t.Errorf("running = %v, warnings %q, want one record without warnings", running, warnings)
	}
	want.Version, want.BootID, want.Time = StateVersion, "boot", s.Time
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
	for _, boot := range []string{"another", ""} {
		s, _, warnings := load(t, dir, epoch, boot)
		if len(s.Manager.Lives)+len(s.Manager.Aside) > 0 || !cmp.Equal(s.HoldOffs, want.HoldOffs) || !cmp.Equal(s.Descheduled, want.Descheduled) || warnings != "" {
			t.Errorf("state of another boot = %+v, warnings %q, want only hold-offs and descheduled pods", s, warnings)
		}
	}
	unknown, _ := start(t, Options{}) // two unknown boots do not count as the same
	unknown.Save(State{Manager: want.Manager})
	stop(t, unknown)
	if s, _, _ := load(t, unknown.o.Dir, epoch, ""); len(s.Manager.Lives) > 0 {
		t.Errorf("of an unknown boot: %+v", s)
	}
	if s, _, _ := load(t, dir, epoch.Add(time.Minute), "boot"); len(s.HoldOffs) > 0 {
		t.Error("a hold-off that is over")
	}
}

// Missing, corrupt and implausible parts of a state are left out, with a warning each.
func TestAStateThatCannotBe(t *testing.T) {
	far := epoch.Add(1000 * time.Hour)
	odd := inProgress("odd")
	odd.Began.Time, odd.Killed.Monotonic, odd.Deadline = far, -5, far
	foreign := inProgress("foreign")
	foreign.Eviction.Pod.Cgroup = "kubepods"
	noID := inProgress("noid")
	noID.Record = "a b"
	text, err := json.Marshal(State{Version: StateVersion, BootID: "boot", Manager: eviction.Saved{Lives: []eviction.SavedLife{odd, foreign, inProgress("odd"), noID}}, HoldOffs: []HoldOff{{UID: "a", Until: far, Reason: "x\ny", Signal: "memory\n.available"}, {UID: "", Until: far}, {UID: "a", Until: far}},
		Descheduled: []Descheduled{{"a", far}, {"b/c", epoch}, {"d", time.Time{}}}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, StateFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(string(text))
	s, _, warnings := load(t, dir, epoch, "boot")
	manager := eviction.NewManager(eviction.Config{MaxPodGracePeriodSeconds: 60})
	for _, err := range manager.Resume(epoch, s.Manager) {
		warnings += err.Error() + "\n"
	}
	want := `DIR/state.json: eviction with invalid record ID "a b" ignored
DIR/state.json: hold-off of pod a ends too late, at 2026-02-11T16:00:00Z: reduced to 5m0s from now
DIR/state.json: hold-off of UID "" ignored: invalid or duplicate
DIR/state.json: hold-off of UID "a" ignored: invalid or duplicate
DIR/state.json: descheduled pod "b/c" ignored: invalid
DIR/state.json: descheduled pod "d" ignored: invalid
grace period of pod odd ends at 2026-02-11T16:00:00Z, which is too far ahead: shortened to 30 s from now
eviction: pod foreign: "kubepods" is not the pod's cgroup
eviction: pod odd occurs twice
`
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Error(diff)
	}
	if l := manager.Lives(); len(l) != 1 || l[0].Killed().Monotonic != 0 || !l[0].Began().Time.Equal(epoch) || !l[0].Deadline().Equal(epoch.Add(30*time.Second)) {
		t.Errorf("resumed evictions = %+v, want one with a clamped deadline", l)
	}
	if len(s.HoldOffs) != 1 || !s.HoldOffs[0].Until.Equal(epoch.Add(5*time.Minute)) || s.HoldOffs[0].Reason != "x?y" || s.HoldOffs[0].Signal != "memory?.available" || s.HoldOffs[0].Times != 1 {
		t.Errorf("hold-offs = %+v, want one with clamped values", s.HoldOffs)
	}
	if want := []Descheduled{{"a", epoch}}; !cmp.Equal(s.Descheduled, want) {
		t.Errorf("descheduled pods = %v, want %v", s.Descheduled, want)
	}
	for text, want := range map[string]string{
		"":                              "state.json: unexpected end of JSON input (starting with empty state)",
		"{\"version\":1":                "state.json: unexpected end of JSON input (starting with empty state)",
		"{}":                            "state.json: unsupported version 0, want 2 (starting with empty state)",
		"{\"version\":3}":               "state.json: unsupported version 3, want 2 (starting with empty state)",
		"{\"version\":\"\x1b\"}":        "state.json: invalid character",
		"{\"version\":1,\"time\":1}":    "(starting with empty state)",
		strings.Repeat(" ", maxState+1): "state.json: larger than 2097152 bytes (starting with empty state)",
	} {
		put(text)
		if s, _, warnings := load(t, dir, epoch, "boot"); !strings.Contains(warnings, want) || strings.Count(warnings, "\n") != 1 || !cmp.Equal(s, State{}) {
			t.Errorf("state of text %.40q = %+v, warnings %q, want an empty state and %q", text, s, warnings, want)
		}
	}
	var many State
	for i := range 3000 {
		many.Manager.Lives, many.HoldOffs = append(many.Manager.Lives, inProgress(fmt.Sprint(i))), append(many.HoldOffs, HoldOff{UID: fmt.Sprint(i), Until: epoch.Add(time.Second)})
	}
	said := 0
	if many.check(epoch, func(string, ...any) { said++ }); len(many.HoldOffs) != maxHoldOffs || said != 1 {
		t.Errorf("%d hold-offs kept with %d warnings, want %d with 1", len(many.HoldOffs), said, maxHoldOffs)
	}
	manager = eviction.NewManager(eviction.Config{})
	if errs := manager.Resume(epoch, many.Manager); len(errs) != 1 || len(manager.Lives()) != 128 {
		t.Errorf("%d evictions resumed with errors %v, want 128 with one error", len(manager.Lives()), errs)
	}
	many.Manager = manager.Save()
	if text, err := many.encode(); err != nil || len(text) > maxState/2 {
		t.Errorf("size of the state = %d, %v, want at most %d", len(text), err, maxState/2)
	}
}

// A state from before hold-offs had a signal is read: the signal is unknown.
func TestAnOlderStateIsRead(t *testing.T) {
	dir := t.TempDir()
	old := `{"version":1,"bootId":"boot","time":"2026-01-01T00:00:00Z","manager":{},"holdOffs":[{"uid":"a","until":"` + epoch.Add(time.Minute).Format(time.RFC3339) + `","reason":"memory was short","times":2}]}`
	if err := os.WriteFile(filepath.Join(dir, StateFile), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _, warnings := load(t, dir, epoch, "boot")
	want := []HoldOff{{UID: "a", Until: epoch.Add(time.Minute), Reason: "memory was short", Times: 2}}
	if diff := cmp.Diff(want, s.HoldOffs); diff != "" || warnings != "" {
		t.Errorf("hold-offs differ from the saved ones, warnings %q:\n%s", warnings, diff)
	}
}

// An upgrade in the middle of evictions loses no state. The agent before version 2 wrote the state of version 1 and the records in
// testdata, with an eviction in each phase; it ended at epoch.
func TestTheStateOfTheVersionBeforeIsRead(t *testing.T) {
	s, running, warnings := load(t, filepath.Join("testdata", "v1"), epoch, "boot")
	thresholds, _, errs := eviction.Settings{OwnSignals: true, EvictionHard: map[string]string{"memory.available": "100Mi", "nodefs.available": "10%", "memory.pressure.full": "20%/1s"},
		EvictionSoft: map[string]string{"memory.available": "200Mi"}, EvictionSoftGracePeriod: map[string]string{"memory.available": "1m"}}.Parse()
	if warnings != "" || len(running) != 2 || len(errs) > 0 {
		t.Fatalf("%d running records, errors %v, warnings %q, want 2 without errors and warnings", len(running), errs, warnings)
	}
	m := eviction.NewManager(eviction.Config{Thresholds: thresholds, MaxPodGracePeriodSeconds: 600, Breaker: true})
	for _, err := range m.Resume(epoch, s.Manager) {
		t.Error(err)
	}
	phases := [...]string{eviction.Stopping: "stopping", eviction.Killed: "killed", eviction.Emptied: "emptied", eviction.Undying: "undying"}
	var got strings.Builder
	for _, l := range m.Lives() {
		e := l.Eviction()
		fmt.Fprintf(&got, "%s %s %s hard=%v returns=%d record=%s began=%v", e.Pod.PodRef.UID, e.Signal, phases[l.Phase()], e.Hard(), e.Returns>>20, l.Record, l.Began().Time.Sub(epoch))
		for _, f := range []struct {
			name string
			at   eviction.Stamp
		}{{"killed", l.Killed()}, {"emptied", l.Emptied()}, {"cleaned", l.Cleaned()}} {
			if !f.at.Time.IsZero() {
				fmt.Fprintf(&got, " %s=%v/%v", f.name, f.at.Time.Sub(epoch), f.at.Monotonic)
			}
		}
		if !l.Deadline().IsZero() {
			fmt.Fprintf(&got, " deadline=%v", l.Deadline().Sub(epoch))
		}
		if l.RemoveFiles {
			got.WriteString(" removeFiles")
		}
		if met := l.Met(); met.Observed.OK {
			fmt.Fprintf(&got, " met=%v observed=%s since=%v", &met.Threshold, met.ObservedText(), met.Since.Sub(epoch))
		}
		got.WriteString("\n")
	}
	want := `stopping memory.available stopping hard=false returns=400 record=r-stopping began=-5s deadline=25s
killed memory.available killed hard=true returns=300 record=r-killed began=-3s killed=-2.9s/1m37.1s met=memory.available<100Mi observed=90Mi since=-3.01s
emptied memory.available emptied hard=true returns=300 record=r-emptied began=-2s killed=-1.9s/1m38.1s emptied=-500ms/1m39.5s
shared memory.available emptied hard=true returns=300 record=r-shared began=-2s killed=-1.9s/1m38.1s emptied=-500ms/1m39.5s
disk nodefs.available stopping hard=true returns=5120 record=r-disk began=-200ms deadline=800ms removeFiles
removing nodefs.available emptied hard=true returns=5120 record=r-removing began=-40s emptied=-39s/1m1s deadline=-39s removeFiles
local ephemeralpodfs.limit stopping hard=false returns=0 record=r-local began=-1s deadline=0s removeFiles
stranger memory.pressure.full killed hard=true returns=0 record= began=-100ms killed=-100ms/1m39.9s
slow memory.available emptied hard=true returns=300 record=r-slow began=-1m0s killed=-59.9s/40.1s emptied=-59s/41s
undying memory.available undying hard=true returns=300 record=r-undying began=-30s killed=-29.9s/1m10.1s
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
	// The evictions that others wait for, for how long, and the state of the breaker and of the
	// pods' memory.
	saved := m.Save()
	if len(saved.Aside) != 1 || saved.Aside[0].UID != "undying" || len(saved.Evicted) != 5 || len(saved.Breaker) == 0 || saved.Breaker[0].Futile != 2 {
		t.Errorf("saved manager state = %+v, want the values of version 1", saved)
	}
	var old state1
	if text, err := os.ReadFile(filepath.Join("testdata", "v1", StateFile)); err != nil || json.Unmarshal(text, &old) != nil || len(old.Evictions) != 10 {
		t.Fatal(err, len(old.Evictions))
	}
	for _, u := range old.Evictions {
		at := slices.IndexFunc(saved.Lives, func(l eviction.SavedLife) bool { return l.Eviction.Pod.UID == u.Eviction.Pod.UID })
		if diff := cmp.Diff(u.Eviction, saved.Lives[at].Eviction); diff != "" {
			t.Error(diff)
		}
	}
	var settled, shared, gone []string
	for _, l := range saved.Lives {
		for _, f := range []struct {
			is bool
			of *[]string
		}{{l.Settled, &settled}, {l.Shared, &shared}, {l.Gone, &gone}} {
			if f.is {
				*f.of = append(*f.of, fmt.Sprint(l.Eviction.Pod.UID, " ", l.Level))
			}
		}
	}
	if diff := cmp.Diff([][]string{{"slow 0", "undying 0"}, {"shared 94371840"}, {"measured 1073741824"}}, [][]string{settled, shared, gone}); diff != "" {
		t.Error(diff)
	}
	if len(s.HoldOffs) != 2 || s.HoldOffs[0].Signal != stats.SignalMemoryAvailable || s.HoldOffs[1].Signal != stats.SignalNodeFsAvailable {
		t.Errorf("hold-offs = %+v, want two with their signals", s.HoldOffs)
	}
}

// A state file that is a symbolic link is ignored: the creator of a link must not control the agent.
func TestAStateBehindALink(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{StateFile, File} {
		if err := os.Symlink("/dev/zero", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, warnings := load(t, dir, epoch, "boot"); strings.Count(warnings, "is a symbolic link, not followed") != 2 {
		t.Error(warnings)
	}
}

// With any state file: no panic, no cgroup that is not the pod's, no time beyond the limits, and
// Resume accepts the rest.
func FuzzState(f *testing.F) {
	text, _ := json.Marshal(State{Version: StateVersion, BootID: "boot", Manager: eviction.Saved{Lives: []eviction.SavedLife{inProgress("a")}}, HoldOffs: []HoldOff{{UID: "a", Until: epoch.Add(time.Hour)}}})
	f.Add(text)
	f.Add([]byte(`{"version":1,"bootId":"boot","manager":{"setAside":[{"uid":"a","until":"2999-01-01T00:00:00Z","times":3}]},"evictions":[{}]}`))
	if old, err := os.ReadFile("testdata/v1/state.json"); err == nil {
		f.Add(old)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		warn := func(format string, args ...any) {
			if text := fmt.Errorf(format, args...).Error(); strings.ContainsAny(text, "\n\x1b") || len(text) > 2000 {
				t.Errorf("warning = %q, want one line of at most 2000 bytes", text)
			}
		}
		s, err := parseState(text, warn)
		if err != nil {
			return
		}
		s.check(epoch, warn)
		m := eviction.NewManager(eviction.Config{})
		m.Resume(epoch, s.Manager)
		for _, l := range m.Lives() {
			e := l.Eviction()
			if e.Pod.Cgroup != "" && (e.Pod.CgroupID.Ino == 0 || strings.Contains(e.Pod.Cgroup, "..")) || l.Began().Time.After(epoch) {
				t.Errorf("parsed eviction = %+v, want a valid cgroup and no start in the future", l)
			}
		}
		for _, h := range s.HoldOffs {
			if h.Until.Sub(epoch) > maxHoldOff || h.Times < 1 {
				t.Errorf("parsed hold-off = %+v, want a bounded end and Times >= 1", h)
			}
		}
	})
}

// A hold-off of an owner has no UID. An invalid one is left out with a warning and affects no other.
func TestHoldOffsOfOwners(t *testing.T) {
	until := epoch.Add(time.Minute)
	good := Owner{"StatefulSet", "s", "shop", "db-0"}
	s := State{HoldOffs: []HoldOff{
		{Owner: good, Until: until}, {Owner: good, Until: until}, {UID: "u", Owner: good, Until: until}, {Until: until},
		{Owner: Owner{Kind: "StatefulSet"}, Until: until}, {Owner: Owner{"K", "s", "a/b", "c"}, Until: until},
		{UID: "v", Owner: Owner{"K", "s", "a\nb", "c"}, Until: until}, {UID: "a/b", Owner: good, Until: until},
	}}
	said := 0
	s.check(epoch, func(string, ...any) { said++ })
	if len(s.HoldOffs) != 2 || s.HoldOffs[0].Owner != good || s.HoldOffs[1].UID != "u" || said != 6 {
		t.Errorf("%d warnings, hold-offs = %+v, want 6 warnings and two hold-offs", said, s.HoldOffs)
	}
}

package records

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"jettison/eviction"
	"jettison/stats"
)

// underway is the eviction of a pod that lies in a cgroup of its own.
func underway(uid string) Underway {
	return Underway{
		Record: "r-" + uid, Began: Stamp{epoch, 5}, Deadline: epoch.Add(30 * time.Second), RemoveFiles: true,
		Eviction: eviction.SavedEviction{
			Signal: "memory.available", GracePeriodSeconds: 30,
			Pod: eviction.SavedPod{UID: uid, Namespace: "ns", Name: "pod", QOSClass: stats.Burstable, Cgroup: "kubepods/burstable/pod" + uid, CgroupDev: 1, CgroupIno: 2, SandboxIDs: []string{"s"}},
		},
	}
}

func load(t *testing.T, dir string, now time.Time, boot string) (s State, running []Record, warnings string) {
	t.Helper()
	s, running, errs := Load(dir, now, boot)
	for _, err := range errs {
		if strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("not one line: %q", err)
		}
		warnings += strings.ReplaceAll(err.Error(), dir, "DIR") + "\n"
	}
	return s, running, warnings
}

// A restart takes back what was saved; the same after a boot only who is held off.
func TestAStateComesBack(t *testing.T) {
	w, _ := start(t, Options{BootID: "boot"})
	dir := w.o.Dir
	if s, running, warnings := load(t, dir, epoch, "boot"); warnings != "" || running != nil || !cmp.Equal(s, State{}) {
		t.Errorf("before the first start: %+v, %q", s, warnings)
	}
	want := State{
		Evictions: []Underway{underway("a"), underway("b")},
		Manager:   eviction.Saved{Pending: []eviction.SavedPending{{Eviction: underway("b").Eviction}, {Eviction: underway("c").Eviction, Died: true}}, Aside: []eviction.SavedAside{{UID: "x", Until: epoch.Add(time.Minute), Times: 2}}},
		HoldOffs:  []HoldOff{{"a", epoch.Add(time.Minute), "memory was short", 1, stats.SignalMemoryAvailable}},
	}
	w.Save(want)
	w.Begin(begun(1))
	w.Begin(begun(2))
	r := begun(1)
	r.Outcome = NotBack
	w.Update(r)
	stop(t, w)
	s, running, warnings := load(t, dir, epoch, "boot")
	if s.Time.IsZero() || warnings != "" || len(running) != 1 || running[0].ID != begun(2).ID {
		t.Errorf("running %v, warnings %q", running, warnings)
	}
	want.Version, want.BootID, want.Time = Version, "boot", s.Time
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
	for _, boot := range []string{"another", ""} {
		s, _, warnings := load(t, dir, epoch, boot)
		if len(s.Evictions)+len(s.Manager.Aside) > 0 || !cmp.Equal(s.HoldOffs, want.HoldOffs) || warnings != "" {
			t.Errorf("of another boot: %+v, %q", s, warnings)
		}
	}
	unknown, _ := start(t, Options{}) // no boot is known to be the same as another one that is not known
	unknown.Save(State{Evictions: want.Evictions})
	stop(t, unknown)
	if s, _, _ := load(t, unknown.o.Dir, epoch, ""); len(s.Evictions) > 0 {
		t.Errorf("of an unknown boot: %+v", s)
	}
	if s, _, _ := load(t, dir, epoch.Add(time.Minute), "boot"); len(s.HoldOffs) > 0 {
		t.Error("a hold-off that is over")
	}
}

// What is missing, corrupt or cannot be true is left out, and said.
func TestAStateThatCannotBe(t *testing.T) {
	far := epoch.Add(1000 * time.Hour)
	odd := underway("odd")
	odd.Began.Time, odd.Killed.Monotonic, odd.Deadline = far, -5, far
	foreign := underway("foreign")
	foreign.Eviction.Pod.Cgroup = "kubepods"
	noID := underway("noid")
	noID.Record = "a b"
	text, err := json.Marshal(State{Version: Version, BootID: "boot", Evictions: []Underway{odd, foreign, underway("odd"), noID}, Manager: eviction.Saved{Pending: []eviction.SavedPending{{Eviction: foreign.Eviction}}}, HoldOffs: []HoldOff{{UID: "a", Until: far, Reason: "x\ny", Signal: "memory\n.available"}, {UID: "", Until: far}, {UID: "a", Until: far}}})
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
	want := `DIR/state.json: the grace period of pod odd ends at 2026-02-11T16:00:00Z, which is too far: 30 s from now
DIR/state.json: an eviction: pod foreign: "kubepods" is not its cgroup
DIR/state.json: an eviction: pod odd comes twice
DIR/state.json: an eviction: "a b" is no ID of a record
DIR/state.json: the eviction of pod "foreign" is awaited, and nobody carries it out
DIR/state.json: the hold-off of pod a ends at 2026-02-11T16:00:00Z, which is too far: 5m0s from now
DIR/state.json: a hold-off of "", which is no UID or comes twice
DIR/state.json: a hold-off of "a", which is no UID or comes twice
`
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Error(diff)
	}
	if len(s.Evictions) != 1 || s.Evictions[0].Killed.Monotonic != 0 || !s.Evictions[0].Began.Time.Equal(epoch) || !s.Evictions[0].Deadline.Equal(epoch.Add(30*time.Second)) {
		t.Errorf("%+v", s.Evictions)
	}
	if len(s.HoldOffs) != 1 || !s.HoldOffs[0].Until.Equal(epoch.Add(5*time.Minute)) || s.HoldOffs[0].Reason != "x?y" || s.HoldOffs[0].Signal != "memory?.available" || s.HoldOffs[0].Times != 1 {
		t.Errorf("%+v", s.HoldOffs)
	}
	for text, want := range map[string]string{
		"":                              "is no state, starting afresh: unexpected end of JSON input",
		"{\"version\":1":                "is no state, starting afresh: unexpected end of JSON input",
		"{}":                            "is no state, starting afresh: version 0, want 1",
		"{\"version\":2}":               "is no state, starting afresh: version 2, want 1",
		"{\"version\":\"\x1b\"}":        "is no state, starting afresh: invalid character",
		"{\"version\":1,\"time\":1}":    "is no state, starting afresh: ",
		strings.Repeat(" ", maxState+1): "cannot be read, starting afresh: larger than 2097152 bytes",
	} {
		put(text)
		if s, _, warnings := load(t, dir, epoch, "boot"); !strings.Contains(warnings, want) || strings.Count(warnings, "\n") != 1 || !cmp.Equal(s, State{}) {
			t.Errorf("%.40q: %+v, %q, want %q", text, s, warnings, want)
		}
	}
	var many State
	for i := range 3000 {
		many.Evictions, many.HoldOffs = append(many.Evictions, underway(fmt.Sprint(i))), append(many.HoldOffs, HoldOff{UID: fmt.Sprint(i), Until: epoch.Add(time.Second)})
	}
	said := 0
	if many.check(epoch, func(string, ...any) { said++ }); len(many.Evictions) != maxUnderway || len(many.HoldOffs) != maxHoldOffs || said != 2 {
		t.Errorf("%d, %d, %d", len(many.Evictions), len(many.HoldOffs), said)
	}
	if text, err := many.encode(); err != nil || len(text) > maxState/2 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// A state that was written before hold-offs had a signal is read: what it does not say is not known.
func TestAnOlderStateIsRead(t *testing.T) {
	dir := t.TempDir()
	old := `{"version":1,"bootId":"boot","time":"2026-01-01T00:00:00Z","manager":{},"holdOffs":[{"uid":"a","until":"` + epoch.Add(time.Minute).Format(time.RFC3339) + `","reason":"memory was short","times":2}]}`
	if err := os.WriteFile(filepath.Join(dir, StateFile), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _, warnings := load(t, dir, epoch, "boot")
	want := []HoldOff{{UID: "a", Until: epoch.Add(time.Minute), Reason: "memory was short", Times: 2}}
	if diff := cmp.Diff(want, s.HoldOffs); diff != "" || warnings != "" {
		t.Errorf("%s%s", warnings, diff)
	}
}

// A state that lies behind a link is none: whoever can lay one there says nothing to the agent.
func TestAStateBehindALink(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{StateFile, File} {
		if err := os.Symlink("/dev/zero", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, warnings := load(t, dir, epoch, "boot"); strings.Count(warnings, "is a symbolic link, which is not followed") != 2 {
		t.Error(warnings)
	}
}

// Whatever a state file holds: no panic, no cgroup that is not the pod's, no time beyond the clamps, and Resume takes what is left.
func FuzzState(f *testing.F) {
	text, _ := json.Marshal(State{Version: Version, BootID: "boot", Evictions: []Underway{underway("a")}, HoldOffs: []HoldOff{{UID: "a", Until: epoch.Add(time.Hour)}}})
	f.Add(text)
	f.Add([]byte(`{"version":1,"bootId":"boot","manager":{"setAside":[{"uid":"a","until":"2999-01-01T00:00:00Z","times":3}]},"evictions":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseState(text)
		if err != nil {
			return
		}
		s.check(epoch, func(format string, args ...any) {
			if text := fmt.Errorf(format, args...).Error(); strings.ContainsAny(text, "\n\x1b") || len(text) > 2000 {
				t.Errorf("%q", text)
			}
		})
		for _, u := range s.Evictions {
			e, err := u.Eviction.Eviction()
			if err != nil || e.Pod.Cgroup != "" && (e.Pod.CgroupID.Ino == 0 || strings.Contains(e.Pod.Cgroup, "..")) || u.Began.Time.After(epoch) {
				t.Errorf("%+v, %v", u, err)
			}
		}
		for _, h := range s.HoldOffs {
			if h.Until.Sub(epoch) > maxHoldOff || h.Times < 1 {
				t.Errorf("%+v", h)
			}
		}
		eviction.NewManager(eviction.Config{}).Resume(epoch, s.Manager)
	})
}

package kubeletdetect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jettison/internal/node/bootid"
)

// newTestPresence returns a Presence in a boot of that name that began *now ago, on a node without
// a kubelet.
func newTestPresence(t *testing.T, stateDir, boot string, now *time.Duration) *Presence {
	t.Helper()
	proc := t.TempDir()
	file := filepath.Join(proc, "sys/kernel/random/boot_id")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(boot+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := OpenPresence(PresenceOptions{ProcMount: proc})
	if err != nil || p.boot != boot {
		t.Fatalf("boot of the new Presence = %q, error %v", p.boot, err)
	}
	p.uptime, p.kubelet = func() time.Duration { return *now }, func() (bool, string) { return false, "" }
	if stateDir != "" {
		p.file = filepath.Join(stateDir, presenceFile)
	}
	return p
}

// monotonic is a clock that time.Sleep advances, also in fake time.
func monotonic() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

// life is one process of the agent with its searches.
type life struct {
	t    *testing.T
	dir  string
	boot string
	now  time.Duration
	p    *Presence
	err  error // of the last start
}

func (l *life) start() {
	l.t.Helper()
	l.p = newTestPresence(l.t, l.dir, l.boot, &l.now)
	l.err = l.p.load(l.p.file)
}

// look waits, searches and saves.
func (l *life) look(after time.Duration, here bool) bool {
	l.t.Helper()
	l.now += after
	l.p.kubelet = func() (bool, string) {
		if here {
			return true, "process 7 is a kubelet"
		}
		return false, ""
	}
	found, why := l.p.Look()
	if found != (why != "") {
		l.t.Errorf("kubelet found = %v with evidence %q, want both or neither", found, why)
	}
	if l.p.Save(); l.p.SaveError() != nil {
		l.t.Error(l.p.SaveError())
	}
	return found
}

func newLife(t *testing.T) *life {
	l := &life{t: t, dir: filepath.Join(t.TempDir(), "state"), boot: "one", now: time.Hour}
	l.start()
	if l.err != nil {
		t.Error(l.err)
	}
	return l
}

// A kubelet counts as gone after 10 minutes of absence, no earlier, regardless of restarts of the
// agent.
func TestKubeletIsGoneAfterTenMinutes(t *testing.T) {
	for name, restarts := range map[string]int{"one process": 1 << 30, "restarts": 1} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t)
			if l.look(0, false) || l.look(time.Second, false) {
				t.Error("a kubelet counts as present before any was seen")
			}
			if _, err := os.Stat(l.p.file); err == nil {
				t.Error("kubelet.json exists before a kubelet was seen")
			}
			if !l.look(time.Second, true) {
				t.Error("the running kubelet was not found")
			}
			for i := range 59 {
				if i%(restarts+1) == restarts {
					l.start()
				}
				if !l.look(10*time.Second, false) {
					t.Fatalf("kubelet counts as gone after %d s, want 10 minutes", 10*(i+1))
				}
			}
			if l.look(10*time.Second, false) {
				t.Error("kubelet counts as present after 10 minutes")
			}
			if l.start(); l.look(time.Second, false) {
				t.Error("kubelet counts as present again after a restart")
			}
			if !l.look(0, true) || !l.look(time.Second, false) {
				t.Error("the kubelet that started again was not found")
			}
		})
	}
}

// Time without searches does not count as absence: the agent was stopped, or the machine suspended.
func TestTimeWithoutSearches(t *testing.T) {
	l := newLife(t)
	l.look(0, true)
	if !l.look(24*time.Hour, false) {
		t.Error("kubelet counts as gone at the first search")
	}
	l.start()
	for range 3 {
		if !l.look(time.Hour, false) {
			t.Fatalf("kubelet counts as gone after time without searches")
		}
	}
	if l.look(maxGap, false) {
		t.Error("kubelet still counts as present in the end")
	}
}

// After a boot the kubelet may start after the agent, so the absence restarts. Times of another
// boot are ignored.
func TestAnotherBoot(t *testing.T) {
	for _, up := range []time.Duration{time.Second, 100 * time.Hour} {
		l := newLife(t)
		l.look(0, true)
		for range 9 {
			l.look(time.Minute, false)
		}
		l.boot, l.now = "two", up
		l.start()
		if l.err != nil {
			t.Error(l.err)
		}
		for i := range 9 {
			if !l.look(time.Minute, false) {
				t.Fatalf("uptime %v: kubelet counts as gone after %d minutes", up, i+1)
			}
		}
		if l.look(time.Minute, false) {
			t.Errorf("uptime %v: kubelet counts as present after 10 minutes", up)
		}
	}
}

// A malformed file is an error, counts as a seen kubelet, and is replaced.
func TestMalformedPresence(t *testing.T) {
	for _, text := range []string{
		"", "{", "null", "[]", `{"version":2}`, `{"version":1,"absent":-1}`, `{"version":1,"looked":"x"}`, strings.Repeat(" ", maxPresence+1),
	} {
		l := newLife(t)
		l.look(0, true)
		if err := os.WriteFile(l.p.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l.start()
		if l.err == nil || !strings.Contains(l.err.Error(), presenceFile) || !l.look(time.Second, false) {
			t.Errorf("open %.40q: error %v, want one", text, l.err)
		}
		if l.start(); l.err != nil || l.p.absent != time.Second {
			t.Errorf("%.40q was not replaced: error %v, absent %v", text, l.err, l.p.absent)
		}
	}
	l := newLife(t)
	l.look(0, true)
	if err := os.WriteFile(l.p.file, []byte(`{"version":1,"boot":"one","looked":9000000000000000000,"absent":0}`), 0o600); err != nil {
		t.Fatal(err)
	}
	l.start()
	l.look(time.Minute, false)
	if l.p.absent != time.Minute {
		t.Errorf("a time in the future counts as absence: %v", l.p.absent)
	}
}

// A dry run writes nothing, but reads the file. A failed write is reported and not repeated at each
// search.
func TestKeep(t *testing.T) {
	l := newLife(t)
	l.look(0, true)
	before, err := os.ReadFile(l.p.file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := OpenPresence(PresenceOptions{StateDir: l.dir, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	p.kubelet = func() (bool, string) { return false, "" }
	if found, why := p.Look(); !found || why != "a kubelet was seen less than 10m0s ago" || p.Unsaved() {
		t.Errorf("read-only Presence: found = %v, evidence %q", found, why)
	}
	p.Save()
	if after, err := os.ReadFile(l.p.file); err != nil || string(after) != string(before) {
		t.Errorf("file after a dry run = %s, was %s; error %v", after, before, err)
	}
	if p.boot != bootid.Read("/proc") || p.uptime() < time.Second || p.uptime() > bootid.Uptime() {
		t.Errorf("real Presence: boot %q, uptime %v", p.boot, p.uptime())
	}

	l.p.file = filepath.Join(l.p.file, "not a directory")
	l.p.kept = presenceState{}
	for range 2 {
		if l.p.Look(); !l.p.Unsaved() {
			t.Error("Unsaved = false before the first write")
		}
		if l.p.Save(); l.p.SaveError() == nil || l.p.Unsaved() {
			t.Errorf("after a failed write: error %v, Unsaved %v, want an error and false", l.p.SaveError(), l.p.Unsaved())
		}
	}
	l.p.file = filepath.Dir(l.p.file)
	if l.look(time.Second, true); l.p.kept.Version == 0 {
		t.Error("the failed write is not tried again after the next search")
	}
}

// Temporary files of a process that died while writing are removed at the next start, except by a
// read-only one.
func TestTemporaryFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, presenceFile+".A.tmp")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, readOnly := range []bool{true, false} {
		if _, err := OpenPresence(PresenceOptions{StateDir: dir, ReadOnly: readOnly}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(left); (err == nil) != readOnly {
			t.Errorf("temporary file with read-only %v: %v", readOnly, err)
		}
	}
}

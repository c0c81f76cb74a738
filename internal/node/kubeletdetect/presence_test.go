package kubeletdetect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jettison/internal/node/bootid"
)

// newTestPresence is one in a boot of that name, that *now ago began, on a node without a kubelet.
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
		t.Fatalf("boot %q, %v", p.boot, err)
	}
	p.uptime, p.kubelet = func() time.Duration { return *now }, func() (bool, string) { return false, "" }
	if stateDir != "" {
		p.file = filepath.Join(stateDir, presenceFile)
	}
	return p
}

// monotonic is a clock that time.Sleep moves on, in a bubble of synctest too.
func monotonic() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

// life is what one process of the agent sees: a kubelet or none, at some times.
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

// look passes some time, looks and keeps.
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
		l.t.Errorf("found %v, %q", found, why)
	}
	if l.p.Keep(); l.p.Failed() != nil {
		l.t.Error(l.p.Failed())
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

// A kubelet that was seen is gone once none was for 10 minutes, and no sooner, however often the agent starts anew meanwhile.
func TestAKubeletIsGoneAfterTenMinutes(t *testing.T) {
	for name, restarts := range map[string]int{"one process": 1 << 30, "restarts": 1} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t)
			if l.look(0, false) || l.look(time.Second, false) {
				t.Error("one that never was is there")
			}
			if _, err := os.Stat(l.p.file); err == nil {
				t.Error("a file, and none was seen")
			}
			if !l.look(time.Second, true) {
				t.Error("it is not seen")
			}
			for i := range 59 {
				if i%(restarts+1) == restarts {
					l.start()
				}
				if !l.look(10*time.Second, false) {
					t.Fatalf("gone after %d s", 10*(i+1))
				}
			}
			if l.look(10*time.Second, false) {
				t.Error("it is there after 10 minutes")
			}
			if l.start(); l.look(time.Second, false) {
				t.Error("it is back after a restart")
			}
			if !l.look(0, true) || !l.look(time.Second, false) {
				t.Error("it came back, and is not seen")
			}
		})
	}
}

// Time in which nobody looked tells of no absence: the agent was stopped, or the machine suspended.
func TestNobodyLooked(t *testing.T) {
	l := newLife(t)
	l.look(0, true)
	if !l.look(24*time.Hour, false) {
		t.Error("gone at the first look")
	}
	l.start()
	for range 3 {
		if !l.look(time.Hour, false) {
			t.Fatalf("gone after looks that nobody made")
		}
	}
	if l.look(mostGap, false) {
		t.Error("never gone")
	}
}

// After a boot the kubelet may come up after the agent: the wait begins anew. The clock of a boot says nothing in another.
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
				t.Fatalf("up for %v: gone after %d minutes", up, i+1)
			}
		}
		if l.look(time.Minute, false) {
			t.Errorf("up for %v: there after 10 minutes", up)
		}
	}
}

// Whatever lies there says at least that a kubelet was seen, is said, and is put right.
func TestAPresenceThatIsMalformed(t *testing.T) {
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
			t.Errorf("%.40q: %v", text, l.err)
		}
		if l.start(); l.err != nil || l.p.absent != time.Second {
			t.Errorf("%.40q: it stays: %v, absent %v", text, l.err, l.p.absent)
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
		t.Errorf("a time to come counts: absent %v", l.p.absent)
	}
}

// A dry run leaves no trace, and sees what was kept. What cannot be written is said, and not tried at every look.
func TestWhatIsKept(t *testing.T) {
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
	if found, why := p.Look(); !found || why != "one was seen less than 10m0s ago" || p.Unkept() {
		t.Errorf("%v, %q", found, why)
	}
	p.Keep()
	if after, err := os.ReadFile(l.p.file); err != nil || string(after) != string(before) {
		t.Errorf("%s, was %s; %v", after, before, err)
	}
	if p.boot != bootid.Read("/proc") || p.uptime() < time.Second || p.uptime() > bootid.Uptime() {
		t.Errorf("boot %q, %v", p.boot, p.uptime())
	}

	l.p.file = filepath.Join(l.p.file, "not a directory")
	l.p.kept = presenceState{}
	for range 2 {
		if l.p.Look(); !l.p.Unkept() {
			t.Error("nothing to write")
		}
		if l.p.Keep(); l.p.Failed() == nil || l.p.Unkept() {
			t.Errorf("%v, to be tried again at once: %v", l.p.Failed(), l.p.Unkept())
		}
	}
	l.p.file = filepath.Dir(l.p.file)
	if l.look(time.Second, true); l.p.kept.Version == 0 {
		t.Error("never tried again")
	}
}

// What a process has left that died while it wrote is removed at the next start, but not by one that only reads.
func TestWhatADeadProcessHasLeftGoes(t *testing.T) {
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
			t.Errorf("read only %v: %v", readOnly, err)
		}
	}
}

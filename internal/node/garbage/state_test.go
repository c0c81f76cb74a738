package garbage

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jettison/reclaim"
)

// The records of images and quiet pods survive a restart.
func TestARestartRemembers(t *testing.T) {
	n := newNode(t)
	n.image("sha256:1", 100)
	n.container("c", "s", uidA, exited, time.Hour, "sha256:1")
	n.sandbox("s", uidA, false, time.Hour)
	n.pass(Everything, reclaim.Periodic)
	first := n.clock
	n.sleep(4 * time.Minute)
	n.open(nil)
	if r := n.records["sha256:1"]; !r.FirstDetected.Equal(first) || !r.LastUsed.Equal(first) {
		t.Errorf("image record = %+v, want both times %v", r, first)
	}
	n.sleep(time.Minute)
	n.want(n.pass(Containers, reclaim.Periodic), "container c", "sandbox s")
}

// Time during which the node was off does not count as quiet time of a pod.
func TestAPodThatWasQuietBeforeABoot(t *testing.T) {
	for _, c := range []struct {
		then, now string
		gone      bool
	}{{"one", "two", false}, {"one", "one", true}, {"", "two", false}, {"one", "", false}} {
		n := newNode(t)
		proc := t.TempDir()
		boot := func(id string) {
			file := filepath.Join(proc, "sys/kernel/random/boot_id")
			err := os.MkdirAll(filepath.Dir(file), 0o700)
			if err == nil {
				err = os.WriteFile(file, []byte(id+"\n"), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			n.open(func(o *Options) { o.ProcMount = proc })
		}
		boot(c.then)
		n.sandbox("s", uidA, false, time.Hour)
		n.pass(Everything, reclaim.Periodic)
		n.sleep(8 * time.Hour)
		boot(c.now)
		r := n.pass(Everything, reclaim.Periodic)
		if gone := r.Count(Removed) > 0; gone != c.gone || len(r.Warnings) > 0 {
			t.Errorf("%+v: removed = %v, problems %q, want removed %v without problems", c, gone, r.Warnings, c.gone)
		}
		n.sleep(5 * time.Minute)
		n.pass(Everything, reclaim.Periodic)
		if len(n.removed()) != 1 {
			t.Errorf("%+v: removed after 5 more minutes = %v, want one object", c, n.removed())
		}
	}
}

// Between two processes the node's clock may be set, by years without a clock battery. The quiet time of a pod uses CLOCK_BOOTTIME, which
// cannot be set.
func TestTheClockIsSetBetweenTwoProcesses(t *testing.T) {
	for what, c := range map[string]struct {
		set, passes time.Duration
		gone        bool
	}{
		"56 years forwards":                     {56 * 365 * 24 * time.Hour, time.Minute, false},
		"an hour back":                          {-time.Hour, time.Minute, false},
		"56 years forwards, and it is time":     {56 * 365 * 24 * time.Hour, 5 * time.Minute, true},
		"an hour back, and it is time":          {-time.Hour, 5 * time.Minute, true},
		"it is not, and it is not time":         {0, 5*time.Minute - time.Second, false},
		"it is not, and it is time":             {0, 5 * time.Minute, true},
		"56 years back, where it began in 1970": {-time.Since(time.Unix(0, 0)), 5 * time.Minute, true},
	} {
		n := newNode(t)
		n.sandbox("s", uidA, false, time.Hour)
		n.pass(Everything, reclaim.Periodic)
		n.clock, n.up = n.clock.Add(c.set+c.passes), n.up+c.passes
		n.open(nil)
		if r := n.pass(Everything, reclaim.Periodic); (r.Count(Removed) > 0) != c.gone {
			t.Errorf("%s: %+v, want gone %v", what, r.Done, c.gone)
		}
	}
}

// After a restart, clients have podGoneAfter to name their pods again, regardless of the time for
// which these were quiet.
func TestAPodThatWasNamedBeforeARestart(t *testing.T) {
	n := newNode(t)
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Terminated}, Synced: true})
	n.sandbox("s", uidA, false, time.Hour)
	n.file("log/pods/default_a_" + uidA + "/main/0.log")
	n.pass(Everything, reclaim.Periodic)
	n.sleep(24 * time.Hour)
	n.pass(Everything, reclaim.Periodic)
	n.known.Store(&Known{Synced: true})
	n.open(nil)
	if r := n.pass(Everything, reclaim.Periodic); len(r.Done) > 0 {
		t.Errorf("steps immediately after the restart = %+v, want none", r.Done)
	}
	n.sleep(5 * time.Minute)
	n.want(n.pass(Containers, reclaim.Periodic), "sandbox s")
}

// A pod that was alive between two looks has another sandbox, and is quiet only since then.
func TestAPodThatLivedMeanwhile(t *testing.T) {
	n := newNode(t)
	n.sandbox("s", uidA, false, time.Hour)
	n.sandbox("t", uidB, false, time.Hour)
	n.pass(Everything, reclaim.Periodic)
	n.sleep(10 * time.Minute)
	n.open(nil)
	n.sandbox("s2", uidA, false, time.Minute)
	n.known.Store(&Known{Synced: true})
	n.want(n.pass(Containers, reclaim.Periodic), "sandbox s", "sandbox t") // s: its pod has a newer one
	if pods, _ := n.Waiting(); pods != 1 {
		t.Errorf("waiting quiet pods = %d, want 1", pods)
	}
}

func TestAStateFileThatIsNone(t *testing.T) {
	for name, c := range map[string]struct {
		text, want string
	}{
		"not JSON":        {"{", "unexpected end"},
		"another version": {`{"version": 2}`, "version 2, want 1"},
		"another kind":    {`[]`, "cannot unmarshal"},
		"a list":          {`{"version": 1, "images": []}`, "cannot unmarshal"},
		"a time":          {`{"version": 1, "images": {"a": {"firstDetected": "x"}}}`, "parsing time"},
		"huge":            {strings.Repeat(" ", maxState+1), "larger than"},
		"empty":           {"", "unexpected end"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			path := filepath.Join(n.state, imagesFile)
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			n.open(nil)
			n.image("sha256:1", 100)
			r := n.pass(Images, reclaim.Periodic)
			if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], path) || !strings.Contains(r.Warnings[0], c.want) || !strings.HasSuffix(r.Warnings[0], "(starting with empty state)") || strings.Contains(r.Warnings[0], "\n") {
				t.Errorf("problems = %q, want one line with the path and the cause", r.Warnings)
			}
			if r := n.pass(Images, reclaim.Periodic); len(r.Warnings) > 0 {
				t.Errorf("problems of the second pass = %q, want none", r.Warnings)
			}
			n.open(nil)
			if len(n.records) != 1 || len(n.warnings) > 0 {
				t.Errorf("records = %v, problems %q, want one new record without problems", n.records, n.warnings)
			}
		})
	}
}

// Nothing is read or written through a symbolic link.
func TestAStateFileThatIsALink(t *testing.T) {
	n := newNode(t)
	elsewhere := n.file("etc/elsewhere")
	for _, name := range []string{imagesFile, podsFile, imagesFile + ".tmp"} {
		if err := os.Symlink(elsewhere, filepath.Join(n.state, name)); err != nil {
			t.Fatal(err)
		}
	}
	n.open(nil)
	if len(n.warnings) != 2 {
		t.Errorf("problems of the state files = %q, want two", n.warnings)
	}
	n.image("sha256:1", 100)
	n.pass(Everything, reclaim.Periodic)
	if info, err := os.Lstat(filepath.Join(n.state, imagesFile)); err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o600 {
		t.Errorf("images.json = %v, %v, want a regular file with mode 0600", info, err)
	}
	if text, err := os.ReadFile(elsewhere); err != nil || len(text) != 5000 {
		t.Errorf("target of the link = %d bytes, %v, want 5000 unchanged", len(text), err)
	}
}

// Of two processes the first owns the files. The second reads them, and takes over after the first
// has ended.
func TestTwoProcesses(t *testing.T) {
	n := newNode(t)
	n.image("sha256:1", 100)
	n.pass(Images, reclaim.Periodic)
	first := n.Collector
	n.Collector = nil
	n.open(nil)
	if !n.Locked() || first.Locked() || len(n.records) != 1 {
		t.Errorf("second locked out: %v, first: %v; it reads %d records", n.Locked(), first.Locked(), len(n.records))
	}
	n.image("sha256:2", 100)
	n.pass(Images, reclaim.Periodic)
	if records, _, _ := openUnlocked(n.state).load(); len(records) != 1 {
		t.Errorf("the second has written: %v", records)
	}
	first.Close()
	n.pass(Images, reclaim.Periodic)
	if records, _, _ := openUnlocked(n.state).load(); len(records) != 2 || n.Locked() {
		t.Errorf("it has not taken over: %v", records)
	}
}

// If too many pods are quiet, those quiet the longest are kept. None of them starts over because of the others, regardless of the length of
// their IDs.
func TestMorePodsAreQuietThanAreRemembered(t *testing.T) {
	for what, id := range map[string]string{"many": "s", "with long IDs": strings.Repeat("s", 1200)} {
		n := newNode(t)
		n.sandbox(id, uidA, false, time.Hour)
		n.pass(Containers, reclaim.Periodic)
		n.sleep(4 * time.Minute)
		for i := range maxQuiet + 100 {
			n.sandbox(fmt.Sprint(id, i), fmt.Sprintf("00000000-0000-0000-0000-%012d", i), false, time.Hour)
		}
		if r := n.Plan(t.Context(), Containers, reclaim.Periodic); r.Err != nil || len(r.Warnings) > 0 {
			t.Errorf("%s: plan = %v, problems %.300q, want no errors", what, r.Err, r.Warnings)
		}
		n.sleep(2 * time.Minute)
		n.open(nil)
		r := n.Plan(t.Context(), Containers, reclaim.Periodic)
		if ids := r.Plan.IDs(reclaim.RemoveSandbox); len(ids) != 1 || ids[0] != id || len(r.Warnings) > 0 {
			t.Errorf("%s: after a restart %d are gone, want the first one; %.300q", what, len(ids), r.Warnings)
		}
		n.sleep(5 * time.Minute)
		if r := n.Plan(t.Context(), Containers, reclaim.Periodic); len(r.Plan.IDs(reclaim.RemoveSandbox)) != maxQuiet+101 {
			t.Errorf("%s: later %d are gone, want all", what, len(r.Plan.IDs(reclaim.RemoveSandbox)))
		}
	}
}

// openUnlocked opens the state of another process without its lock.
func openUnlocked(dir string) *store {
	return &store{dir: dir, written: map[string][sha256.Size]byte{}}
}

// Without a writable state directory garbage is still collected.
func TestAStateDirThatCannotBe(t *testing.T) {
	n := newNode(t)
	file := n.file("a-file")
	n.open(func(o *Options) { o.StateDir = filepath.Join(file, "below") })
	n.image("sha256:1", 100)
	r := n.pass(Images, reclaim.Periodic)
	if r.Err != nil || len(r.Warnings) == 0 || !strings.Contains(strings.Join(r.Warnings, " "), "not a directory") {
		t.Errorf("pass = %v, problems %q, want one about the state directory", r.Err, r.Warnings)
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"version": 1, "images": {"a": {"firstDetected": "2026-01-01T00:00:00Z", "lastUsed": "2026-01-01T00:00:00Z"}}}`))
	f.Add([]byte(`{"version": 1, "pods": {"u": {"since": "2026-01-01T00:00:00Z", "sandboxes": ["s"]}, "v": {"since": "2199-01-01T00:00:00+07:00"}}}`))
	f.Add([]byte(`{"version": 1, "images": {"a": {"firstDetected": "0000-01-01T00:00:00+07:00", "lastUsed": "9999-12-31T23:59:59-07:00"}}}`))
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text []byte) {
		records, err := parseImages(text)
		if err != nil && len(records) > 0 {
			t.Fatal("records beside an error")
		}
		again, err := json.Marshal(encodeImages(records))
		if err != nil {
			t.Fatal(err)
		}
		if back, err := parseImages(again); err != nil || len(back) != len(records) {
			t.Errorf("records %v became %v, %v, want the same number", records, back, err)
		}
		for id, r := range records.Detect(now, []reclaim.Image{{ID: "a"}}, reclaim.Used{}) {
			if r.FirstDetected.After(now) || r.LastUsed.After(now) {
				t.Errorf("record of image %s = %+v, want no times in the future", id, r)
			}
		}
		pods, _ := parsePods(text, "b")
		q := newQuiet()
		q.seen = pods
		q.update(now, time.Hour, &reclaim.Look{Sandboxes: []reclaim.Sandbox{{ID: "s", PodUID: "u", NotReady: true}, {ID: "t", PodUID: "v", NotReady: true}}})
		for uid, since := range q.since {
			if since.After(now) {
				t.Errorf("%s is quiet from %v on", uid, since)
			}
		}
	})
}

// A pod that was restarted and died again between two looks is quiet only from the second look on,
// because its last containers may still be needed.
func TestAPodThatLivedBetweenTwoLooksStartsAnew(t *testing.T) {
	q, now := newQuiet(), time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for i, c := range []struct {
		sandboxes []string
		want      time.Duration // since the first look
	}{{[]string{"s"}, 0}, {[]string{"s"}, 0}, {[]string{"t", "s"}, 2 * time.Minute}, {[]string{"t"}, 2 * time.Minute}} {
		look := &reclaim.Look{}
		for _, id := range c.sandboxes {
			look.Sandboxes = append(look.Sandboxes, reclaim.Sandbox{ID: id, PodUID: "u", NotReady: true})
		}
		q.update(now.Add(time.Duration(i)*time.Minute), time.Hour+time.Duration(i)*time.Minute, look)
		if got := q.since["u"].Sub(now); got != c.want {
			t.Errorf("look %d: quiet from %v on, want %v", i, got, c.want)
		}
	}
}

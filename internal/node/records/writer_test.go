package records

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"jettison/api"
	"jettison/eviction"
	"jettison/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// notices collects the reports of a Writer, in order.
type notices struct {
	mu    sync.Mutex
	all   []Notice
	texts []string      // the same as text
	some  chan struct{} // one slot
}

func (n *notices) report(x Notice) {
	n.mu.Lock()
	n.all = append(n.all, x)
	n.texts = append(n.texts, fmt.Sprintf("%s: %v, lost %d", x.What, x.Err, x.Lost))
	n.mu.Unlock()
	select {
	case n.some <- struct{}{}:
	default:
	}
}

// wait returns the reports when there are that many lines.
func (n *notices) wait(t *testing.T, lines int) string {
	t.Helper()
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	for {
		n.mu.Lock()
		all := strings.Join(n.texts, "\n")
		enough := len(n.texts) >= lines
		n.mu.Unlock()
		if enough {
			return all
		}
		select {
		case <-n.some:
		case <-timer.C:
			t.Fatalf("after 20 s only:\n%s", all)
		}
	}
}

// start starts a Writer with a file in place of the kernel log.
func start(t *testing.T, o Options) (*Writer, *notices) {
	t.Helper()
	n := &notices{some: make(chan struct{}, 1)}
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "state")
	}
	if o.Kmsg == "" {
		o.Kmsg = filepath.Join(t.TempDir(), "kmsg")
		if err := os.WriteFile(o.Kmsg, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.Report = n.report
	w, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	return w, n
}

func stop(t *testing.T, w *Writer) {
	t.Helper()
	if err := w.Close(20 * time.Second); err != nil {
		t.Error(err)
	}
}

func begun(i int) api.Record {
	r := *testRecord(i, api.OutcomeRunning)
	r.Killed = api.Stamp{Time: epoch, Monotonic: 1234567 * time.Microsecond}
	return r
}

// Close writes everything that was queued: the last version of a record, its line in the kernel log
// once, the state.
func TestAWriter(t *testing.T) {
	w, n := start(t, Options{BootID: "boot", Agent: "v1"})
	r := begun(1)
	w.Begin(r)
	r.Outcome = api.OutcomeBack
	w.Update(r)
	w.Save(State{HoldOffs: []HoldOff{{UID: "old"}}})
	w.Save(State{HoldOffs: []HoldOff{{UID: "new"}}})
	stop(t, w)
	stop(t, w) // a second Close has no effect
	w.Begin(begun(2))
	list, err := Read(Path(w.o.Dir))
	if err != nil || len(list.Records) != 1 || list.Records[0].Outcome != api.OutcomeBack || list.Records[0].BootID != "boot" || list.Records[0].Agent != "v1" {
		t.Errorf("list = %+v, %v, want one finished record of this boot and agent", list, err)
	}
	line, err := os.ReadFile(w.o.Kmsg)
	want := "<12>jettison: evicted pod ns/pod uid=1 signal=memory.available killed_at=1.234567 qos=- record=" + r.ID + "\n"
	if string(line) != want || err != nil {
		t.Errorf("kernel log = %q, %v, want %q", line, err, want)
	}
	text, err := os.ReadFile(filepath.Join(w.o.Dir, StateFile))
	if !strings.Contains(string(text), `"uid":"new"`) || !strings.Contains(string(text), `"bootId":"boot"`) || err != nil {
		t.Errorf("state file = %s, %v, want the newest state and the boot ID", text, err)
	}
	if n.texts != nil {
		t.Error(n.texts)
	}
}

// A failing disk is reported once. The newest records stay pending, and the number of dropped ones is reported when writes work again.
func TestADirectoryThatIsNot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w, n := start(t, Options{Dir: dir, Queue: 3, Retry: time.Millisecond})
	for i := range 10 {
		w.Begin(begun(i))
	}
	w.Save(State{})
	n.wait(t, 2)
	for i := range 10 {
		w.Begin(begun(10 + i))
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	n.wait(t, 4)
	stop(t, w)
	lost, errs := 0, 0
	for _, x := range n.all {
		if lost += x.Lost; x.Err != nil {
			errs++
		}
	}
	got, _ := ids(t, Path(dir))
	if len(got) < 3 || len(got)+lost != 20 || got[len(got)-1] != testRecord(19, "").ID+" running" || errs != 2 {
		t.Errorf("records = %v, want the newest of 20 with %d lost and 2 errors; reports:\n%s", got, lost, strings.Join(n.texts, "\n"))
	}
	if _, err := os.Stat(filepath.Join(dir, StateFile)); err != nil {
		t.Error(err)
	}
}

// A failed write is retried without a new record, and the kernel log gets its line once.
func TestItIsTriedAgain(t *testing.T) {
	w, n := start(t, Options{Retry: time.Millisecond})
	full := 5
	w.journal.write = func(f *os.File, b []byte) (int, error) {
		if full--; full >= 0 {
			return 0, unix.ENOSPC
		}
		return f.Write(b)
	}
	w.Begin(begun(1))
	n.wait(t, 2)
	got, _ := ids(t, Path(w.o.Dir))
	stop(t, w)
	line, err := os.ReadFile(w.o.Kmsg)
	if len(got) != 1 || bytes.Count(line, []byte("\n")) != 1 || err != nil || len(n.texts) != 2 {
		t.Errorf("records = %v, kernel log %q, %v, reports %q, want one record, one line and two reports", got, line, err, n.texts)
	}
}

// With a permanently full disk Close returns an error about the unwritten data in time.
func TestCloseOnAFullDisk(t *testing.T) {
	w, n := start(t, Options{Retry: time.Hour})
	w.journal.write = func(*os.File, []byte) (int, error) { return 0, unix.ENOSPC } // nothing was queued yet
	w.Begin(begun(1))
	n.wait(t, 1)
	w.Begin(begun(2))
	if err := w.Close(20 * time.Second); !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
	if len(n.texts) != 1 {
		t.Errorf("said more than once: %q", n.texts)
	}
}

// A disk that hangs blocks no caller, and Close only until its timeout. The newest records stay
// pending.
func TestADiskThatHangs(t *testing.T) {
	w, _ := start(t, Options{Queue: 2})
	hangs, goOn := make(chan struct{}, 1), make(chan struct{})
	w.journal.write = func(f *os.File, b []byte) (int, error) {
		select {
		case hangs <- struct{}{}:
		default:
		}
		<-goOn
		return f.Write(b)
	}
	w.Begin(begun(0))
	<-hangs
	for i := range 1000 {
		w.Begin(begun(1 + i))
		w.Save(State{})
	}
	if err := w.Close(time.Millisecond); err == nil || !strings.Contains(err.Error(), "not finished within") {
		t.Error(err)
	}
	close(goOn)
	stop(t, w)
	got, _ := ids(t, Path(w.o.Dir))
	if len(got) != 3 || !strings.HasPrefix(got[0], testRecord(0, "").ID) || !strings.HasPrefix(got[2], testRecord(1000, "").ID) {
		t.Errorf("records = %v, want three with the first and the newest", got)
	}
}

// A missing kernel log is reported once, and records are still written; without a directory only the kernel log is written.
func TestWithoutOneOfThem(t *testing.T) {
	w, n := start(t, Options{Kmsg: filepath.Join(t.TempDir(), "none")})
	w.Begin(begun(1))
	w.Begin(begun(2))
	stop(t, w)
	if got, _ := ids(t, Path(w.o.Dir)); len(got) != 2 || len(n.texts) != 1 || !strings.Contains(n.texts[0], "kernel log: open") {
		t.Errorf("records = %v, reports %q, want two records and one report about the kernel log", got, n.texts)
	}
	kmsg := filepath.Join(t.TempDir(), "kmsg")
	if err := os.WriteFile(kmsg, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := Start(Options{Kmsg: kmsg})
	if err != nil {
		t.Fatal(err)
	}
	w.Begin(begun(1))
	w.Save(State{})
	stop(t, w)
	if text, _ := os.ReadFile(kmsg); bytes.Count(text, []byte("\n")) != 1 {
		t.Errorf("kernel log = %q, want one line", text)
	}
	for _, o := range []Options{{Dir: "here"}, {Queue: -1}} {
		if _, err := Start(o); err == nil {
			t.Errorf("Start with options %+v = nil, want an error", o)
		}
	}
}

// An unchanged state is not written again.
func TestTheSameState(t *testing.T) {
	w := &Writer{o: Options{Dir: t.TempDir(), Report: func(Notice) {}}}
	writes := 0
	w.journal.write = func(f *os.File, b []byte) (int, error) { writes++; return f.Write(b) }
	for _, s := range []State{{}, {}, {HoldOffs: []HoldOff{{UID: "a"}, {UID: "b"}}}, {HoldOffs: []HoldOff{{UID: "b"}, {UID: "a"}}}, {}} {
		if err := w.writeState(&s); err != nil {
			t.Fatal(err)
		}
	}
	if writes != 3 {
		t.Errorf("%d writes, want 3", writes)
	}
}

// No name can imitate another field or another line of the kernel log.
func TestKmsgLine(t *testing.T) {
	r := begun(1)
	r.Pod = api.Victim{UID: "u id=x", Namespace: "a\nb", Name: "c signal=x\x00é", QOSClass: stats.BestEffort}
	quantity := uint64(50 << 20)
	r.Threshold, r.Decided = "memory.available<100Mi", &api.Reading{Available: &quantity, Text: "50Mi"}
	want := "<12>jettison: evicted pod a?b/c?signal=x?? uid=u?id=x signal=memory.available observed=50Mi threshold=memory.available<100Mi" +
		" killed_at=1.234567 qos=BestEffort record=" + r.ID + "\n"
	if got := string(kmsgLine(&r)); got != want {
		t.Errorf("kernel log line = %q, want %q", got, want)
	}
	r.Killed, r.GracePeriodSeconds, r.Decided = api.Stamp{}, 30, &api.Reading{Reason: "gone"}
	if got := string(kmsgLine(&r)); !strings.Contains(got, "jettison: evicting pod ") || !strings.Contains(got, " grace=30s ") || !strings.Contains(got, " observed=unknown ") {
		t.Errorf("kernel log line = %q, want evicting, a grace period and an unknown observation", got)
	}
	long := strings.Repeat("x", 5000)
	r.Pod, r.ID, r.Threshold, r.Signal = api.Victim{UID: long, Namespace: long, Name: long, QOSClass: stats.QOSClass(long), Cgroup: long}, long, long, stats.Signal(long)
	if got := kmsgLine(&r); len(got) > maxKmsg || !bytes.HasSuffix(got, []byte("\n")) {
		t.Errorf("kernel log line of %d bytes = %q, want at most %d bytes", len(got), got, maxKmsg)
	}
}

// A record contains the basis of the decision, and shares no memory with it.
func TestBegin(t *testing.T) {
	thresholds, _, errs := (&eviction.Settings{EvictionHard: map[string]string{"memory.available": "100Mi"}}).Parse()
	if errs != nil {
		t.Fatal(errs[0])
	}
	m := eviction.NewManager(eviction.Config{Thresholds: thresholds, MemoryAvailable: stats.MemoryAvailableKernel, Policy: eviction.Policy{ProtectedNamespaces: []string{"kube-system"}}})
	s := &stats.Summary{}
	s.Node.Memory = stats.NodeMemoryStats{CapacityBytes: stats.Some(uint64(1 << 30)), KernelAvailableBytes: stats.Some(uint64(50 << 20))}
	for i := range 13 {
		p := stats.PodStats{PodRef: stats.PodReference{UID: fmt.Sprint(i), Namespace: "ns", Name: fmt.Sprint("pod", i)}, QOSClass: stats.BestEffort, Announced: true, SandboxIDs: []string{"s"}}
		p.Memory.WorkingSetBytes = stats.Some(uint64(100-i) << 20)
		switch i {
		case 12:
			p.PodRef.Namespace = "kube-system"
		case 1:
			p.PodRef.Name = ""
		}
		s.Pods = append(s.Pods, p)
	}
	d := m.Step(epoch, eviction.Input{Summary: s})
	if len(d.Evictions) != 1 {
		t.Fatal(d.Reason)
	}
	began := api.Stamp{Time: epoch.Add(2 * time.Millisecond), Monotonic: time.Minute}
	r := Begin(&d, &d.Evictions[0], began, began, func(p stats.PodReference) string { return "named " + p.UID })
	s.Pods[0].PodRef.Name, s.Pods[0].SandboxIDs[0] = "changed", "changed"
	if r.Pod.Title() != "ns/pod0" || r.Pod.SandboxIDs[0] != "s" || r.Threshold != "memory.available<100Mi" || r.Outcome != api.OutcomeRunning || r.GracePeriodSeconds != 1 {
		t.Errorf("record = %+v, want the pod, threshold and grace period of the eviction", r)
	}
	if r.Decided.Text != "50Mi" || *r.Decided.Available != 50<<20 || r.Decided.Monotonic != time.Minute-2*time.Millisecond || !r.Decided.Time.Equal(epoch) {
		t.Errorf("observation of the decision = %+v, want 50Mi at the decision", r.Decided)
	}
	k := r.Ranking
	if len(k.Rows) != 10 || k.More != 2 || k.Protected != 1 || k.Rows[0].Pod != "ns/pod0" || k.Rows[1].Pod != "named 1" || k.Rows[1].DecidedBy == "" || !strings.Contains(k.Rows[0].Keys, "uses 100Mi") {
		t.Errorf("ranking = %+v, want 10 rows, 2 more and 1 protected", k)
	}
	if r.Predicted == nil {
		t.Error("what it returns is not predicted")
	}
	if o := ReadingOf(thresholds[0], stats.Observation{Reason: "blind"}, began); o.Available != nil || o.Text != "" || o.Reason != "blind" {
		t.Errorf("reading without a value = %+v, want only the reason", o)
	}
	if a, b := NewID(epoch, "x"), NewID(epoch.Add(time.Microsecond), "a"); a >= b || !ValidID(a) {
		t.Errorf("IDs = %s, then %s, want them sorted by time", a, b)
	}
}

// Of two agents the first one locks the directory. The second one reads no state there, reports the reason, and takes over after the first
// has ended.
func TestTwoAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		first, _ := start(t, Options{Dir: dir, BootID: "b"})
		first.Save(State{HoldOffs: []HoldOff{{UID: "first"}}})
		first.Begin(api.Record{ID: "first", Outcome: api.OutcomeRunning})
		text := func() string {
			state, _ := os.ReadFile(filepath.Join(dir, StateFile))
			list, _ := os.ReadFile(Path(dir))
			return string(state) + string(list)
		}
		if synctest.Wait(); strings.Count(text(), "first") != 2 {
			t.Fatal(text())
		}
		second, said := start(t, Options{Dir: dir, BootID: "b", Retry: time.Millisecond})
		if first.LockedByOther() != nil || second.LockedByOther() == nil {
			t.Errorf("first locked out: %v, second: %v", first.LockedByOther(), second.LockedByOther())
		}
		second.Save(State{HoldOffs: []HoldOff{{UID: "second"}}})
		second.Begin(api.Record{ID: "second", Outcome: api.OutcomeRunning})
		want := fmt.Sprintf("stateDir %s is locked by another agent (pid %d): stop that agent, or configure another stateDir",
			dir, os.Getpid())
		if got := said.wait(t, 1); !strings.Contains(got, want) {
			t.Errorf("report = %q, want %q", got, want)
		}
		if got := text(); strings.Contains(got, "second") {
			t.Errorf("the second has written: %s", got)
		}
		if err := first.Close(time.Minute); err != nil {
			t.Fatal(err)
		}
		if time.Sleep(10 * time.Millisecond); strings.Count(text(), "second") != 2 { // it tries again each millisecond
			t.Fatal(text())
		}
		if got := said.wait(t, 2); strings.Count(got, "another agent") != 1 {
			t.Errorf("said more than once:\n%s", got)
		}
		if err := second.Close(time.Minute); err != nil {
			t.Error(err)
		}
	})
}

// Temporary files of processes that died while writing are removed at the start.
func TestWhatADeadProcessLeftIsRemoved(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"state.json.tmp", "state.json.ABC.tmp", "records.jsonl.ABC.tmp", "foreign.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w, _ := start(t, Options{Dir: dir})
	if err := w.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(left) != 2 || filepath.Base(left[0]) != lockFile || filepath.Base(left[1]) != "foreign.tmp" {
		t.Errorf("files in the directory = %q, want the lock and the foreign file", left)
	}
}

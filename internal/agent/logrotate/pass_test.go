package logrotate

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

	"jettison/cri"
	"jettison/cri/critest"
	"jettison/stats/read"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

const (
	folder = "shop_web_0f5b6f9e-6c0a-4a57-9d0b-0a3c4f1f7a11/app"
	now    = "0.log.20260131-120000"
)

// node is a test node in a directory, with one container. Its runtime creates the log on reopen.
type node struct {
	*Rotator
	t       testing.TB
	root    string
	dir     string // of the log
	runtime *critest.Runtime
	list    []cri.Container
	opens   func() // called on reopen; nil: creates the file
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{t: t, root: t.TempDir(), runtime: critest.Start(t)}
	n.dir = filepath.Join(n.root, "log/pods", folder)
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	host, err := read.OpenHostRoot(n.root)
	if err != nil {
		t.Fatal(err)
	}
	client, err := cri.Dial(n.runtime.Endpoint(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); host.Close() })
	n.Rotator = &Rotator{Host: host, Runtime: client, PodLogsDir: "/log/pods", MaxSize: 1000, MaxFiles: 5}
	n.container("app", "/log/pods/"+folder+"/0.log")
	n.runtime.Answer["ReopenContainerLog"] = func(m any) any {
		if n.opens != nil {
			n.opens()
		} else {
			n.write("0.log", "")
		}
		return m
	}
	return n
}

func (n *node) container(id, log string) {
	n.runtime.Containers = append(n.runtime.Containers, &runtimev1.Container{Id: id, State: runtimev1.ContainerState_CONTAINER_RUNNING})
	n.list = append(n.list, cri.Container{ID: id, State: cri.Running, Running: true, LogPath: log})
}

func (n *node) write(name, text string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o640); err != nil {
		n.t.Fatal(err)
	}
}

// large returns a log beyond the limit.
func large(words string) string { return strings.Repeat(words+"\n", 1+1000/len(words)) }

func (n *node) pass() Result {
	n.t.Helper()
	result, err := n.Pass(n.t.Context(), noon, n.list)
	if err != nil {
		n.t.Fatal(err)
	}
	return result
}

// has compares the files in the log's directory.
func (n *node) has(want ...string) {
	n.t.Helper()
	entries, err := os.ReadDir(n.dir)
	if err != nil {
		n.t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		n.t.Errorf("files in the log directory\ngot  %v\nwant %v", got, want)
	}
}

func (n *node) read(name string) string {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join(n.dir, name))
	if err == nil && strings.HasSuffix(name, compressSuffix) {
		var r *gzip.Reader
		if r, err = gzip.NewReader(bytes.NewReader(text)); err == nil {
			text, err = io.ReadAll(r)
		}
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return string(text)
}

func (n *node) fails(want ...string) Result {
	n.t.Helper()
	result, err := n.Pass(n.t.Context(), noon, n.list)
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			n.t.Errorf("error of Pass = %v, want it to contain %q", err, w)
		}
	}
	return result
}

// A log follows the kubelet's life cycle: renamed, compressed one rotation later, removed when
// there are too many.
func TestRotation(t *testing.T) {
	n := newNode(t)
	n.MaxFiles = 4
	n.write("0.log", "short")
	if r := n.pass(); r != (Result{}) {
		t.Errorf("result for a short log = %+v, want no change", r)
	}
	for i, want := range [][]string{
		{"0.log", "0.log.20260131-120000"},
		{"0.log", "0.log.20260131-120000.gz", "0.log.20260131-120010"},
		{"0.log", "0.log.20260131-120000.gz", "0.log.20260131-120010.gz", "0.log.20260131-120020"},
		{"0.log", "0.log.20260131-120010.gz", "0.log.20260131-120020.gz", "0.log.20260131-120030"},
	} {
		n.write("0.log", large(fmt.Sprint("round ", i)))
		r, err := n.Pass(t.Context(), noon.Add(time.Duration(i)*10*time.Second), n.list)
		if err != nil || r.Rotated != 1 || r.Compressed != min(i, 1) || r.Removed != max(0, i-2) {
			t.Errorf("round %d: result %+v, %v; want one rotation", i, r, err)
		}
		n.has(want...)
	}
	for i, name := range []string{"0.log.20260131-120010.gz", "0.log.20260131-120020.gz", "0.log.20260131-120030"} {
		if got, want := n.read(name), large(fmt.Sprint("round ", i+1)); got != want {
			t.Errorf("content of %s = %.40q, want %.40q", name, got, want)
		}
	}
	st, err := os.Stat(filepath.Join(n.dir, "0.log.20260131-120010.gz"))
	if err != nil || st.Mode() != 0o640 {
		t.Errorf("mode of a compressed log = %v, %v; want 0640", st.Mode(), err)
	}
	if got := n.runtime.Calls("ReopenContainerLog"); got != 4 {
		t.Errorf("log reopened %d times, want 4", got)
	}
}

// Leftovers of an interrupted pass are cleaned up.
func TestLeftovers(t *testing.T) {
	n := newNode(t)
	n.write("0.log", large("new"))
	n.write("0.log.20260101-000000", "compressed already")
	n.write("0.log.20260101-000000.gz", "is not read")
	n.write("0.log.20260102-000000.tmp", "half")
	n.write("0.log.20260103-000000", "whole")
	n.write("0.log.20260103-000000.tmp", "half")
	if r := n.pass(); r.Removed != 3 || r.Compressed != 1 || r.Rotated != 1 || r.Freed == 0 {
		t.Errorf("result = %+v, want 3 removed, 1 compressed, 1 rotated", r)
	}
	n.has("0.log", "0.log.20260101-000000.gz", "0.log.20260103-000000.gz", now)
	// A directory with the name of a compressed log does not replace it.
	if err := os.Mkdir(filepath.Join(n.dir, now+".gz"), 0o700); err != nil {
		t.Fatal(err)
	}
	n.write("0.log", large("newer"))
	n.fails(now + ".gz")
	if n.read(now) != large("new") {
		t.Error("log lost although its compressed file is a directory")
	}
	if err := os.Remove(filepath.Join(n.dir, now+".gz")); err != nil {
		t.Fatal(err)
	}
	if got := n.read("0.log.20260103-000000.gz"); got != "whole" { // untouched since
		t.Errorf("content of the compressed log = %q, want it unchanged", got)
	}
}

// Leftovers of an earlier attempt at the container, which no pass reads anymore, are removed in the
// next rotation; its other files stay.
func TestLeftoversOfEarlierAttempt(t *testing.T) {
	n := newNode(t)
	n.list[0].LogPath = "/log/pods/" + folder + "/12.log"
	n.opens = func() { n.write("12.log", "") }
	n.write("12.log", large("new"))
	kept := []string{
		"2.log", "2.log.20260101-000000", "2.log.20260102-000000.gz", "13.log.20260103-000000.tmp", "02.log.20260103-000000.tmp",
		"x.log.20260103-000000.tmp", "2.log.20260103-0000000.tmp", "2.log.tmp", ".log.20260103-000000.tmp", "99999999999.log.20260103-000000.tmp",
	}
	for _, name := range append([]string{"2.log.20260103-000000.tmp", "0.log.20260103-000000.tmp"}, kept...) {
		n.write(name, "half")
	}
	if r := n.pass(); r.Removed != 2 || r.Compressed != 0 || r.Rotated != 1 {
		t.Errorf("result = %+v, want 2 removed and 1 rotated", r)
	}
	n.has(append([]string{"12.log", "12.log.20260131-120000"}, kept...)...)
}

// A log that was renamed without a reopen is created again, whatever its size.
func TestMissingLogIsReopened(t *testing.T) {
	n := newNode(t)
	n.write(now, large("x"))
	if r := n.pass(); r.Reopened != 1 || r.Rotated != 0 {
		t.Errorf("result = %+v, want one log reopened", r)
	}
	n.has("0.log", now)
	n.opens = func() {}
	if err := os.Remove(filepath.Join(n.dir, "0.log")); err != nil {
		t.Fatal(err)
	}
	n.fails("rotate log of container app", "0.log\": no such file")
}

// If the runtime does not reopen the log, it gets its name back.
func TestFailedReopenIsReverted(t *testing.T) {
	n := newNode(t)
	n.runtime.Fail["ReopenContainerLog"] = status.Error(codes.Unknown, "no")
	n.write("0.log", large("old"))
	if r := n.fails("reopen log of container app", "no"); r.Rotated != 0 {
		t.Errorf("result = %+v, want no rotation", r)
	}
	n.has("0.log")
	if got := n.read("0.log"); got != large("old") {
		t.Errorf("content of the log = %.40q, want the old one", got)
	}
	// The runtime fails after it has created the new log: both logs are kept.
	n.runtime.Change(func() {
		delete(n.runtime.Fail, "ReopenContainerLog")
		n.runtime.Containers[0].State = runtimev1.ContainerState_CONTAINER_EXITED
	})
	n.Runtime = makesAndFails{n}
	n.fails("late", "the runtime has created a new log nevertheless")
	n.has("0.log", now)
	if n.read("0.log") != "new" || n.read(now) != large("old") {
		t.Error("one of the two logs overwritten")
	}
}

type makesAndFails struct{ *node }

func (m makesAndFails) ContainerStatus(context.Context, string) (cri.Container, error) {
	return cri.Container{}, nil
}

func (m makesAndFails) ReopenContainerLog(context.Context, string) error {
	m.write("0.log", "new")
	return errors.New("late")
}

// Names stay in order and unique, with a clock that was set back and two rotations in one second.
func TestNamesStayInOrder(t *testing.T) {
	n := newNode(t)
	n.write("0.log", large("second"))
	n.write(now+".gz", "")
	n.pass()
	n.has("0.log", now+".gz", "0.log.20260131-120001")
	n.write("0.log", large("third"))
	r, err := n.Pass(t.Context(), noon.AddDate(-1, 0, 0), n.list)
	if err != nil || r.Rotated != 1 {
		t.Errorf("result with an earlier clock = %+v, %v; want one rotation", r, err)
	}
	n.has("0.log", now+".gz", "0.log.20260131-120001.gz", "0.log.20260131-120002")
	n.write("0.log.99991231-235959.gz", "")
	n.write("0.log", large("fourth"))
	n.pass()
	n.has("0.log", now, "0.log.20260131-120001.gz", "0.log.20260131-120002.gz", "0.log.99991231-235959.gz")
}

// Only logs of running containers are rotated. A missing path is requested from the runtime. An
// ended container is no error.
func TestWhichContainers(t *testing.T) {
	n := newNode(t)
	n.write("0.log", large("x"))
	for _, state := range []cri.ContainerState{cri.Created, cri.Exited, cri.Unknown} {
		n.list[0].State = state
		if r := n.pass(); r.Rotated != 0 {
			t.Errorf("container in state %v: result %+v, want no rotation", state, r)
		}
	}
	n.list[0].State = cri.Running
	n.MaxSize = -1
	if r := n.pass(); r.Rotated != 0 {
		t.Errorf("result with rotation off = %+v, want no rotation", r)
	}
	n.MaxSize = 1000
	n.list[0].LogPath = ""
	if r := n.pass(); r.Rotated != 0 {
		t.Errorf("result without a log path = %+v, want no rotation", r)
	}
	n.runtime.Change(func() {
		n.runtime.ContainerStatuses["app"] = &runtimev1.ContainerStatus{Id: "app", State: runtimev1.ContainerState_CONTAINER_RUNNING, LogPath: "/log/pods/" + folder + "/0.log"}
	})
	n.list = append(n.list, cri.Container{ID: "gone", State: cri.Running})
	if r := n.pass(); r.Rotated != 1 {
		t.Errorf("result with the path from the status = %+v, want one rotation", r)
	}
	n.PodLogsDir = "/nowhere"
	if r := n.pass(); r != (Result{}) {
		t.Errorf("result without a log directory = %+v, want no change", r)
	}
}

// The number of reported errors is bounded, and a pass ends with ctx.
func TestManyErrorsAndTheEnd(t *testing.T) {
	n := newNode(t)
	for i := range 30 {
		n.container(fmt.Sprint("c", i), fmt.Sprintf("/elsewhere/%d.log", i))
	}
	n.write("0.log", large("x"))
	_, err := n.Pass(t.Context(), noon, n.list)
	if lines := strings.Split(err.Error(), "\n"); len(lines) != maxErrors+1 || lines[maxErrors] != "rotate logs: 22 further logs failed" {
		t.Errorf("error = %v, want %d lines and the number of the rest", err, maxErrors)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := n.Pass(ctx, noon, n.list); !errors.Is(err, context.Canceled) || r != (Result{}) {
		t.Errorf("result after cancel = %+v, %v; want no change", r, err)
	}
	n.write("0.log.20260101-000000", large("x"))
	l := &log{rotation: &rotation{Rotator: n.Rotator, now: noon}, name: "0.log", ids: []string{"app"}}
	if l.dir, err = unix.Open(n.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(l.dir)
	if err := l.compress(ctx, "20260101-000000"); !errors.Is(err, context.Canceled) {
		t.Errorf("compress after cancel: error %v, want context.Canceled", err)
	}
	n.has("0.log", now, "0.log.20260101-000000") // no partial file
}

// With any file names, a pass keeps foreign files, and the newest MaxFiles of the log with their
// content.
func TestPassesKeepTheNewest(t *testing.T) {
	n := newNode(t)
	rapid.Check(t, func(t *rapid.T) {
		if err := os.RemoveAll(n.dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(n.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		n.MaxFiles = rapid.IntRange(2, 6).Draw(t, "files")
		n.write("0.log", large("current"))
		olds, foreign := map[string]bool{}, []string{}
		for range rapid.IntRange(0, 12).Draw(t, "names") {
			stamp := rapid.SampledFrom([]string{"20250101-000000", "20260101-000000", "20260131-115959", "20260131-120000", "20260131-120001", "bak"}).Draw(t, "stamp")
			suffix := rapid.SampledFrom([]string{"", ".gz", ".tmp", ".x"}).Draw(t, "suffix")
			name := "0.log." + stamp + suffix
			n.write(name, stamp)
			switch {
			case stamp == "bak" || suffix == ".x":
				foreign = append(foreign, name)
			case suffix != ".tmp":
				olds[stamp] = true
			}
		}
		var stamps []string
		for stamp := range olds {
			stamps = append(stamps, stamp)
		}
		slices.Sort(stamps)
		keep := stamps[max(0, len(stamps)-(n.MaxFiles-2)):]
		if _, err := n.Pass(context.Background(), noon, n.list); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(n.dir)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		plain := 0
		for _, e := range entries {
			stamp, suffix, ok := parseOld("0.log", e.Name())
			switch {
			case !ok && e.Name() != "0.log" && !slices.Contains(foreign, e.Name()):
				t.Fatalf("pass created the file %s", e.Name())
			case ok && suffix == tmpSuffix:
				t.Fatalf("pass left the file %s", e.Name())
			case ok:
				if found = append(found, stamp); suffix == "" {
					if plain++; n.read(e.Name()) != large("current") {
						t.Fatalf("older file %s was overwritten", e.Name())
					}
				}
			}
		}
		for _, name := range foreign {
			if _, err := os.Lstat(filepath.Join(n.dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if plain != 1 || len(found) != len(keep)+1 || !slices.Equal(found[:len(keep)], keep) || found[len(keep)] < "20260131-120000" {
			t.Fatalf("pass kept %v of %v with at most %d files, %d not compressed", found, stamps, n.MaxFiles, plain)
		}
	})
}

// If a kubelet started since the pass began, the kubelet rotates.
func TestKubeletStartedDuringPass(t *testing.T) {
	n := newNode(t)
	n.write("0.log", large("words"))
	checks := 0
	n.Kubelet = func() bool { checks++; return true }
	if got := n.pass(); got != (Result{}) || checks != 1 {
		t.Errorf("result with a kubelet = %+v after %d checks, want no change after 1", got, checks)
	}
	n.has("0.log")
	n.Kubelet = func() bool { return false }
	if got := n.pass(); got.Rotated != 1 {
		t.Errorf("result without a kubelet = %+v, want one rotation", got)
	}
}

// Without a kubelet two containers, of one pod or of two, may write to one log. Both must reopen it
// after a rotation, otherwise one continues in a file that is compressed and unlinked. Here the
// runtime fails for the second one at first.
func TestLogSharedByTwoContainers(t *testing.T) {
	for _, fails := range []bool{false, true} {
		n := newNode(t)
		n.container("other", "/log/pods/"+folder+"/0.log")
		n.write("0.log", large("before"))
		files := map[string]*os.File{}
		t.Cleanup(func() {
			for _, f := range files {
				f.Close()
			}
		})
		checkLinked := func(f *os.File) {
			var st unix.Stat_t
			if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Nlink == 0 {
				t.Errorf("fails %v: a container writes to an unlinked file: %v", fails, err)
			}
		}
		open := func(id string) {
			f, err := os.OpenFile(filepath.Join(n.dir, "0.log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
			if err != nil {
				t.Fatal(err)
			}
			if old := files[id]; old != nil {
				checkLinked(old) // the file it wrote to so far
				old.Close()
			}
			files[id] = f
		}
		open("app")
		open("other")
		failed := false
		n.opens = func() {
			last := n.runtime.Reopens[len(n.runtime.Reopens)-1]
			open(last)
			if _, err := os.Lstat(filepath.Join(n.dir, now)); fails && !failed && last == "app" && err == nil {
				failed = true
				n.runtime.Fail["ReopenContainerLog"] = status.Error(codes.Unknown, "not now")
			}
		}
		for step := range 4 {
			result, err := n.Pass(t.Context(), noon.Add(time.Duration(step)*10*time.Second), n.list)
			if (err != nil) != (fails && step == 0) {
				t.Fatal(err)
			}
			n.runtime.Change(func() { clear(n.runtime.Fail) })
			t.Logf("pass %d: %+v, %v, reopened %q", step, result, err, n.runtime.Reopens)
			for _, f := range files {
				_, _ = f.WriteString(large("more"))
				checkLinked(f)
			}
		}
		if failed != fails {
			t.Error("runtime did not fail as planned")
		}
	}
}

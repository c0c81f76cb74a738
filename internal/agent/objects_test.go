package agent

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"jettison/eviction"
	"jettison/reclaim"
	"jettison/stats"
	"jettison/stats/read"
)

// A client hands over a pod object and reads the state, through the loop that owns it.
func TestTheSocketAndTheLoop(t *testing.T) {
	n := newTestNode(t)
	dir, err := os.MkdirTemp("", "s") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n.a.o.Config.Socket = filepath.Join(dir, "s.sock")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stop, err := n.a.serve(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", n.a.o.Config.Socket)
	}}}
	ask := func(method, path, body string) (int, []byte) {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, text
	}
	if status, text := ask("PUT", "/v1/pods", `[{"metadata": {"uid": "`+uid+`", "namespace": "default", "name": "p"}, "spec": {"containers": [{"name": "c", "resources": {"limits": {"ephemeral-storage": "1Gi"}}}]}}]`); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	<-n.a.store.Changed()
	n.a.known(n.a.store.Snapshot())
	periodic := func() bool { n.a.measure(time.Now()); return n.a.ready.Periodic }
	if !n.a.limited || !periodic() {
		t.Error("a pod with a limit on local storage is not looked at")
	}
	n.a.o.Config.Disk = "observe"
	if periodic() {
		t.Error("limits are a kubelet's business")
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		reply := <-n.a.requests
		reply <- n.a.state(time.Now())
	}()
	status, text := ask("GET", "/v1/state", "")
	<-served
	var s State
	if err := json.Unmarshal(text, &s); err != nil || status != http.StatusOK {
		t.Fatalf("%d %v: %s", status, err, text)
	}
	if s.Pods.Objects != 1 || s.Disk != "observe" || len(s.Conditions) != len(eviction.Conditions) || s.Conditions[3].Reason != "KubeletHasSufficientMemory" {
		t.Errorf("state %s", text)
	}
}

// A loop that does not answer costs a client its patience and nobody else anything.
func TestAStateThatNobodyTells(t *testing.T) {
	n := newTestNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := n.a.State(ctx); s != nil || err == nil {
		t.Errorf("%v, %v", s, err)
	}
}

// What grew since memory was last plenty is named, what was there before is not.
func TestGrowth(t *testing.T) {
	n := newTestNode(t)
	n.write("cgroup/system.slice/old.service/memory.current", "500000000\n")
	n.write("cgroup/system.slice/leak.service/memory.current", "1000000\n")
	start := time.Now()
	n.a.growth.watch(start, n.a.Reader, false)
	n.write("cgroup/system.slice/leak.service/memory.current", "301000000\n")
	n.a.growth.watch(start.Add(time.Minute), n.a.Reader, true) // memory is short: what was, is kept
	got := n.a.growth.since(n.a.Reader)
	if len(got) != 1 || got[0] != (eviction.Growth{Cgroup: "system.slice/leak.service", Bytes: 300000000}) {
		t.Errorf("%+v", got)
	}
	n.a.growth.watch(start.Add(2*time.Minute), n.a.Reader, false)
	if got := n.a.growth.since(n.a.Reader); len(got) != 0 {
		t.Errorf("after calm: %+v", got)
	}
}

// Evictions that do not help stop, once aloud; and go on aloud.
func TestTheBreakerIsLoggedOnce(t *testing.T) {
	n := newTestNode(t)
	for range 3 {
		n.a.breaker(&eviction.Decision{Stopped: true, Reason: "3 evictions did not help"})
	}
	if n.a.state(time.Now()).Stopped == "" {
		t.Error("the state does not say that evictions are stopped")
	}
	for range 2 {
		n.a.breaker(&eviction.Decision{Evictions: []eviction.Eviction{{}}})
	}
	for _, line := range []string{"evictions are stopped", "evictions go on"} {
		if got := strings.Count(n.log.String(), line); got != 1 {
			t.Errorf("%q is logged %d times:\n%s", line, got, n.log)
		}
	}
}

// Disk pressure has what pods take of disks measured anew, quickly; only as long as it lasts, and not for a kubelet.
func TestDisksAreMeasuredFasterWhenShort(t *testing.T) {
	n := newTestNode(t)
	fs := stats.FsStats{AvailableBytes: stats.Some[uint64](12), CapacityBytes: stats.Some[uint64](100), Time: time.Now()}
	for available, want := range map[uint64]bool{9: true, 12: true, 60: false} { // the threshold is 10%
		fs.AvailableBytes.V = available
		n.a.node.Fs = stats.Some(fs)
		n.a.measure(time.Now())
		if got := n.a.ready.DisksShort; got != want {
			t.Errorf("%d%% available: short %v", available, got)
		}
	}
}

// A victim for a disk is chosen by figures from after the last one's files were removed: they are waited for, but not for ever.
func TestADiskVictimWaitsForFreshFigures(t *testing.T) {
	n := newTestNode(t)
	n.write("host/var/lib/kubelet/pods/"+uid+"/etc-hosts", "127.0.0.1 localhost\n")
	host, err := read.OpenHostRoot(filepath.Join(n.dir, "host"))
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	n.a.background = read.StartBackground(read.BackgroundOptions{Host: host, Runtime: n.a.Client, NoNetwork: true})
	defer n.a.background.Close()
	if n.a.measuring(time.Now()) {
		t.Error("no disk is short, and something is waited for")
	}
	n.a.background.WaitFirst(t.Context()) // nothing is measured from here until it is asked for
	cleaned := time.Now()
	at := eviction.Stamp{Time: cleaned}
	n.a.manager.Cleaned(at, n.a.manager.Begin(at, eviction.Eviction{Signal: eviction.SignalEphemeralPodFsLimit}, eviction.Met{}))
	if !n.a.measuring(cleaned) {
		t.Error("figures from before the files were removed are good enough")
	}
	if n.a.measuring(cleaned.Add(20 * time.Second)) {
		t.Error("they are waited for for ever")
	}
	for end := time.Now().Add(time.Minute); n.a.measuring(cleaned); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("they are never measured anew")
		}
	}
}

// What a client says of a pod's end is what the collector goes by: of one that was evicted all goes, of one that has merely failed its
// last container and its logs stay.
func TestAnEvictedPodOfAClientIsKnownAsOne(t *testing.T) {
	for want, status := range map[reclaim.Phase]string{
		reclaim.Evicted:    `{"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. "}`,
		reclaim.Terminated: `{"phase": "Failed", "reason": "DeadlineExceeded"}`,
		reclaim.Active:     `{"phase": "Running", "reason": "Evicted"}`,
	} {
		n := newTestNode(t)
		pod := `[{"metadata": {"uid": "` + uid + `", "namespace": "default", "name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}, "status": ` + status + `}]`
		if _, _, err := n.a.store.Put(strings.NewReader(pod), false); err != nil {
			t.Fatal(err)
		}
		if got, named := n.a.namedPods().Pods[uid]; !named || got != want {
			t.Errorf("%s: %v, want %v", status, got, want)
		}
	}
}

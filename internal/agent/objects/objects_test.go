package objects

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"jettison/api"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/node/nodetest"
	"jettison/stats"
	"jettison/stats/read"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const manifest = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": "default"},
	"spec": {"containers": [{"name": "c", "image": "i"}]}}`

// Manifests and clients provide objects; stop ends both.
func TestSourcesOfObjects(t *testing.T) {
	dir, err := os.MkdirTemp("", "o") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	manifests := filepath.Join(dir, "manifests")
	if err := os.Mkdir(manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(manifests, "s.json"), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(manifests, "bad.yaml"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	read, doubted := make(chan struct{}, 8), make(chan time.Time, 8)
	n := nodetest.New(t)
	o := New(Options{
		Socket: filepath.Join(dir, "s.sock"), Manifests: manifests, Log: n.Log, State: func() any { return nil },
		OnManifests: func() { read <- struct{}{} }, OnDoubt: func(at time.Time) { doubted <- at },
	})
	stop, err := o.Start()
	if err != nil {
		t.Fatal(err)
	}
	<-read
	<-doubted
	o.Store().SetRuntime(n.Runs()) // which runs the manifest's pod
	client := api.New(api.Options{Socket: filepath.Join(dir, "s.sock")})
	pod := []any{map[string]any{
		"metadata": map[string]any{"uid": "client", "namespace": "default", "name": "p"},
		"spec": map[string]any{"containers": []any{map[string]any{
			"name": "c", "image": "i", "resources": map[string]any{"limits": map[string]any{"ephemeral-storage": "1Gi"}},
		}}},
	}}
	if _, err := client.PutPods(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	<-o.Changed()
	limited := o.OnChanged()
	if len(limited) != 1 || !limited["client"] || !o.Limited() || o.Pods()[nodetest.UID] == nil || o.Clients() != 1 || len(o.All()) != 2 {
		t.Errorf("limited = %v, pods = %v, clients = %d of %d; want the client's limited pod and the manifest's", limited, o.Pods(), o.Clients(), len(o.All()))
	}
	stop()
	if !strings.Contains(n.Text(), "static pod manifest invalid") {
		t.Errorf("log = %s, want the invalid manifest", n.Text())
	}
	if _, err := os.Stat(filepath.Join(dir, "s.sock")); !os.IsNotExist(err) {
		t.Errorf("socket exists after stop: %v", err)
	}
}

// A socket that cannot be opened fails Start, which then starts nothing.
func TestSocketThatCannotBeOpened(t *testing.T) {
	n := nodetest.New(t)
	o := New(Options{Socket: filepath.Join(n.Dir, strings.Repeat("x", 200)), Manifests: n.Dir, Log: n.Log})
	if _, err := o.Start(); err == nil {
		t.Error("Start with a too long socket path succeeded")
	}
}

// The kubelet's staticPodPath is resolved below the node's root directory.
func TestManifestPath(t *testing.T) {
	for _, c := range []struct{ root, path, want string }{
		{"", "", ""}, {"/host", "", ""}, {"", "/etc/k/manifests", "/etc/k/manifests"}, {"/host", "/etc/k/manifests", "/host/etc/k/manifests"},
	} {
		if got := ManifestPath(c.root, c.path); got != c.want {
			t.Errorf("ManifestPath(%q, %q) = %q, want %q", c.root, c.path, got, c.want)
		}
	}
}

// A rejected object is logged once for each pod, and many of them in few lines.
func TestRejectedObjectIsLoggedOnce(t *testing.T) {
	n := nodetest.New(t)
	o := New(Options{Log: n.Log})
	const mismatched = `{"metadata": {"uid": "` + nodetest.UID + `", "namespace": "default", "name": "other"}}`
	put := func(pods ...string) {
		t.Helper()
		if _, _, err := o.Store().Put(strings.NewReader("["+strings.Join(pods, ",")+"]"), true, podstore.ByRoot); err != nil {
			t.Fatal(err)
		}
		o.OnChanged()
	}
	put(mismatched)
	if o.Refused() != 0 || len(o.Pods()) != 1 || n.Text() != "" {
		t.Errorf("before the runtime's pods are known: %d rejected, log\n%s\nwant none", o.Refused(), n.Text())
	}
	o.Store().SetRuntime(n.Runs())
	for range 3 {
		put(mismatched)
		if o.Refused() != 1 || len(o.Pods()) != 0 || o.Clients() != 0 {
			t.Errorf("%d objects rejected, %d known, want 1 and 0", o.Refused(), len(o.Pods()))
		}
		put()
	}
	if lines := strings.Count(n.Text(), "\n"); lines != 1 || !strings.Contains(n.Text(), "object=default/other runtime=default/pod") {
		t.Errorf("log has %d lines, want one for the pod:\n%s", lines, n.Text())
	}
	index, mismatches := read.Index{}, []string{}
	for i := range 100 {
		uid := fmt.Sprint("u", i)
		index[uid] = &read.Pod{PodRef: stats.PodReference{UID: uid, Namespace: "default", Name: "pod"}}
		mismatches = append(mismatches, strings.Replace(mismatched, nodetest.UID, uid, 1))
	}
	o.Store().SetRuntime(index)
	put(mismatches...)
	if lines := strings.Count(n.Text(), "\n"); lines != 1+maxRefusedLogs+1 || !strings.Contains(n.Text(), "objects=92") {
		t.Errorf("log has %d lines, want %d in total and objects=92:\n%s", lines, 1+maxRefusedLogs+1, n.Text())
	}
}

// Objects of a client that stopped sending still count, and are shown as stale.
func TestStaleClient(t *testing.T) {
	o := New(Options{Log: nodetest.New(t).Log})
	var count api.PodCount
	if o.FillPodCount(time.Now(), &count); count.ClientHeard != nil || count.Stale != 0 {
		t.Errorf("counts without a client = %+v, want no times", count)
	}
	body := `[{"metadata":{"uid":"a","namespace":"n","name":"p"},"spec":{"containers":[{"name":"c"}]}}]`
	if _, _, err := o.Store().Put(strings.NewReader(body), true, podstore.ByMember); err != nil {
		t.Fatal(err)
	}
	o.OnChanged()
	now := time.Now()
	for after, stale := range map[time.Duration]int{0: 0, api.StaleAfter - time.Minute: 0, api.StaleAfter: 1, time.Hour: 1} {
		count = api.PodCount{Clients: o.Clients()}
		o.FillPodCount(now.Add(after), &count)
		if count.Stale != stale || count.ClientSynced == nil || len(o.Pods()) != 1 {
			t.Errorf("counts after %v = %+v, pods %v; want %d stale", after, count, o.Pods(), stale)
		}
	}
}

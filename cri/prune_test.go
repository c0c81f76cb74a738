package cri

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

	"jettison/cri/critest"
)

// chunks splits a message into chunks of a size.
func chunks(b []byte, size int) (out mem.BufferSlice) {
	for len(b) > 0 {
		n := min(size, len(b))
		out = append(out, mem.SliceBuffer(b[:n]))
		b = b[n:]
	}
	return out
}

// decodePruned decodes a message in chunks of a size with the pruning codec.
func decodePruned(t testing.TB, m, into proto.Message, size int) error {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return newPruningCodec().Unmarshal(chunks(b, size), into)
}

// Needed fields are decoded unchanged, regardless of other fields and of the chunks. Fields that a
// tenant fills are omitted.
func TestNeededFieldsOfAList(t *testing.T) {
	sent := &runtimev1.ListPodSandboxResponse{Items: []*runtimev1.PodSandbox{{
		Id: "s", Metadata: &runtimev1.PodSandboxMetadata{Name: "n", Uid: "u", Namespace: "ns", Attempt: 3}, CreatedAt: -5,
		State: runtimev1.PodSandboxState_SANDBOX_NOTREADY, RuntimeHandler: "kata", Labels: map[string]string{"l": strings.Repeat("l", 1<<20)},
		Annotations: map[string]string{
			"tenant/a": strings.Repeat("<", 256<<10), strings.Repeat("k", 10_000): "v", "jettison/priority": "7",
			"jettison/long": strings.Repeat("x", maxText+1), "kubernetes.io/config.source": "api",
		},
	}, {}, {Id: strings.Repeat("i", maxText+1)}, {Id: "last"}}}
	for i := range 500 {
		sent.Items[0].Annotations[fmt.Sprint("jettison/", i)] = "x"
	}
	for _, size := range []int{1, 7, 1 << 30} {
		var got runtimev1.ListPodSandboxResponse
		if err := decodePruned(t, sent, &got, size); err != nil {
			t.Fatal(err)
		}
		s := got.Items[0]
		want := proto.CloneOf(sent.Items[0])
		want.Annotations, want.Labels = s.Annotations, nil
		if len(got.Items) != 4 || !proto.Equal(s, want) || got.Items[2].Id != "" || got.Items[3].Id != "last" {
			t.Errorf("decoded in chunks of %d: %.2000v, want the sent fields", size, &got)
		}
		a := s.Annotations
		if a["jettison/priority"] != "7" || a["kubernetes.io/config.source"] != "api" || a["tenant/a"]+a["jettison/long"] != "" ||
			len(a) < maxEntries || len(a) > maxEntries+2 {
			t.Errorf("decoded in chunks of %d: %d annotations, above the limit: %v", size, len(a), a)
		}
	}
}

// Empty items are two bytes each, and hundreds of bytes when decoded.
func TestTooManyItemsAreTooLarge(t *testing.T) {
	r := critest.Start(t)
	r.Answer["ListContainers"] = func(any) any {
		return &runtimev1.ListContainersResponse{Containers: make([]*runtimev1.Container, maxItems+1)}
	}
	r.Containers, r.Sandboxes = []*runtimev1.Container{{Id: "c"}}, []*runtimev1.PodSandbox{{Id: "s"}}
	if _, err := all(t, dial(t, r.Endpoint())); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error of a list with too many items = %v, want ErrTooLarge", err)
	}
}

// The number of tags of an image is not limited. They must not displace other images from the list,
// which would then never be collected.
func TestImageWithManyTagsIsListed(t *testing.T) {
	sent := &runtimev1.ListImagesResponse{}
	for i := range maxItems/maxWithin + 1 {
		im := &runtimev1.Image{Id: fmt.Sprint("sha256:", i), RepoTags: make([]string, 2*maxWithin)}
		for j := range im.RepoTags {
			im.RepoTags[j] = fmt.Sprintf("r/%d:%d", i, j)
		}
		sent.Images = append(sent.Images, im)
	}
	var got runtimev1.ListImagesResponse
	if err := decodePruned(t, sent, &got, 1<<20); err != nil {
		t.Fatal(err)
	}
	if len(got.Images) != len(sent.Images) {
		t.Fatalf("decoded %d images of %d sent", len(got.Images), len(sent.Images))
	}
	for i, im := range got.Images {
		if !slices.Equal(im.RepoTags, sent.Images[i].RepoTags[:maxWithin]) {
			t.Errorf("image %d has %d tags, from %q on", i, len(im.RepoTags), im.RepoTags[:1])
		}
	}
}

// Each image that a container has as a volume is decoded, regardless of the number of other mounts:
// a missing one would count as unused. Too many image volumes are an error.
func TestImageVolumesAmongManyMounts(t *testing.T) {
	for _, c := range []struct {
		plain, images int
		tooMany       bool
	}{{maxWithin - 1, 1, false}, {maxWithin, 1, false}, {2 * maxItems, maxWithin + 1, false}, {0, maxItems + 1, true}} {
		s := &runtimev1.ContainerStatus{}
		for i := range c.plain {
			m := &runtimev1.Mount{ContainerPath: fmt.Sprint("/m", i), HostPath: "/x"}
			if i%2 > 0 {
				m.Image = &runtimev1.ImageSpec{} // of none
			}
			s.Mounts = append(s.Mounts, m)
		}
		var want []string
		for i := range c.images {
			want = append(want, fmt.Sprint("sha256:", i))
			s.Mounts = append(s.Mounts, &runtimev1.Mount{ContainerPath: "/model", Image: &runtimev1.ImageSpec{Image: want[i]}})
		}
		var got runtimev1.ContainerStatusResponse
		err := decodePruned(t, &runtimev1.ContainerStatusResponse{Status: s}, &got, 1<<20)
		if is := containerDetailOf(&got).imageVolumes; !c.tooMany && (err != nil || !slices.Equal(is, want)) || c.tooMany != errors.Is(err, errTooMany) {
			t.Errorf("%d mounts before %d of images: %d images, %v", c.plain, c.images, len(is), err)
		}
	}
}

// Pruning does not change the result for messages without long fields and fields of tenants.
func TestPruningKeepsNeededFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 64).Draw(t, "size")
		same := func(whole, thinned any) {
			if !reflect.DeepEqual(whole, thinned) {
				t.Errorf("decoded with and without pruning:\nwhole  %+v\npruned %+v", whole, thinned)
			}
		}
		ours := map[string]string{"jettison/a": "1", "io.kubernetes.b": "2", "memory.low": "3"}
		var l runtimev1.ListContainersResponse
		c := random(t, &runtimev1.Container{})
		c.Labels = ours
		thinned(t, &runtimev1.ListContainersResponse{Containers: []*runtimev1.Container{c}}, &l, size)
		same(containerOf(c), containerOf(l.Containers[0]))
		var images runtimev1.ListImagesResponse
		i := random(t, &runtimev1.Image{})
		thinned(t, &runtimev1.ListImagesResponse{Images: []*runtimev1.Image{i}}, &images, size)
		same(imageOf(i), imageOf(images.Images[0]))
		var stats runtimev1.ListContainerStatsResponse
		s := random(t, &runtimev1.ContainerStats{})
		thinned(t, &runtimev1.ListContainerStatsResponse{Stats: []*runtimev1.ContainerStats{s}}, &stats, size)
		same(containerStatsOf(s), containerStatsOf(stats.Stats[0]))
		var status runtimev1.ContainerStatusResponse
		cs := random(t, &runtimev1.ContainerStatusResponse{})
		cs.Info = map[string]string{"info": rapid.SampledFrom([]string{"", "{", crioContainer, containerdSandbox}).Draw(t, "info"), "other": "x"}
		if cs.Status != nil {
			cs.Status.Labels = ours
		}
		if linux := cs.GetStatus().GetResources().GetLinux(); linux != nil {
			linux.Unified = ours
		}
		thinned(t, cs, &status, size)
		same(containerStatusOf(cs), containerStatusOf(&status))
	})
}

func thinned(t *rapid.T, from, into proto.Message, size int) {
	b, err := proto.Marshal(from)
	if err == nil {
		err = newPruningCodec().Unmarshal(chunks(b, size), into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Any input is decoded or an error, and takes at most a few times its size.
func FuzzThin(f *testing.F) {
	for _, m := range []proto.Message{
		&runtimev1.ContainerStatusResponse{Status: &runtimev1.ContainerStatus{Id: "c"}, Info: map[string]string{"info": crioContainer}},
		&runtimev1.ContainerStatusResponse{Info: map[string]string{"info": `{"pid":1,"a":[{"b":"\""}]}`, "x": "y"}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint8(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		var whole, thinned runtimev1.ContainerStatusResponse
		err := newPruningCodec().Unmarshal(chunks(b, int(size)+1), &thinned)
		if wholeErr := proto.Unmarshal(b, &whole); wholeErr == nil && err == nil {
			if whole.GetStatus().GetStartedAt() != thinned.GetStatus().GetStartedAt() {
				t.Errorf("decoded whole = %v, pruned = %v, want them equal", &whole, &thinned)
			}
		}
	})
}

// Pruned JSON decodes to the same result, and invalid JSON stays invalid.
func FuzzThinJSON(f *testing.F) {
	for _, seed := range []string{
		containerdSandbox, crioContainer, "", "{", "{}", `{"pid":1`, `{"pid":1}x`, ` { "pid" : 7 , "x" : [ 1 , { "a" : "}" } ] } `,
		`{"pid":null,"config":null,"runtimeSpec":[]}`, `{"pid":1,"pid":2,"config":{"linux":{"cgroup_parent":"a\"b\\"}}}`, `{"x":"\\","pid":3}`,
		`{"config":{"linux":{"resources":{"unified":{"a":"b","c":{}}}}}}`, `[]`, `7`, `"text"`,
	} {
		f.Add(seed, uint8(2))
	}
	f.Fuzz(func(t *testing.T, text string, size uint8) {
		if len(text) > maxText || strings.ContainsAny(text, "\x00") {
			return
		}
		p := pruner{chunks: chunks([]byte(text), int(size)+1)}
		short := string(p.json(len(text), info["info"], nil))
		if !json.Valid([]byte(text)) || hasOddNames(text) {
			return
		}
		if want, got := parseVerbose(map[string]string{"info": text}), parseVerbose(map[string]string{"info": short}); !reflect.DeepEqual(want, got) {
			t.Errorf("%q became %q: %+v, want %+v", text, short, got, want)
		}
	})
}

// hasOddNames reports names in another case or with escapes, which encoding/json accepts and no
// runtime writes.
func hasOddNames(text string) bool {
	return strings.Contains(text, `\u`) || strings.ContainsFunc(text, func(r rune) bool { return r > 126 }) || text != lowerNames(text)
}

func lowerNames(text string) string {
	for _, name := range []string{"sandboxID", "pid", "image", "config", "linux", "cgroup_parent", "resources", "oom_score_adj",
		"memory_limit_in_bytes", "cpu_shares", "unified", "runtimeSpec", "process", "oomScoreAdj", "cgroupsPath", "memory", "limit", "cpu", "shares"} {
		at := strings.Index(strings.ToLower(text), strings.ToLower(`"`+name+`"`))
		if at >= 0 && text[at+1:at+1+len(name)] != name {
			return ""
		}
	}
	return text
}

// A container with a verbose status that is too large gets its plain status, then and later, and
// has its request. One with a plain status that is also too large is Refused, and not requested by
// each List.
func TestTooLargeStatus(t *testing.T) {
	r := critest.Start(t)
	huge := `{"runtimeSpec":{"process":{"env":["` + strings.Repeat(`\u003c`, maxStatus/6) + `"],"oomScoreAdj":900}}}`
	for _, id := range []string{"large", "larger", "ordinary"} {
		r.Containers = append(r.Containers, &runtimev1.Container{Id: id, PodSandboxId: "s", State: runtimev1.ContainerState_CONTAINER_RUNNING})
		r.Info[id] = huge
		r.ContainerStatuses[id] = &runtimev1.ContainerStatus{Id: id, LogPath: "/log",
			Resources: &runtimev1.ContainerResources{Linux: &runtimev1.LinuxContainerResources{OomScoreAdj: 900, MemoryLimitInBytes: 4096}}}
	}
	r.ContainerStatuses["large"].Message = strings.Repeat("m", 5<<20) // as mounts make it
	r.ContainerStatuses["larger"].Message = strings.Repeat("m", maxMessage)
	r.Info["ordinary"] = crioContainer
	r.Sandboxes = []*runtimev1.PodSandbox{{Id: "s", State: runtimev1.PodSandboxState_SANDBOX_READY}}
	r.Info["s"] = `{"config":{"linux":{"cgroup_parent":"/p"},"annotations":{"a":"` + strings.Repeat(`\u003c`, maxStatus/6) + `"}}}`
	l := NewLister(dial(t, r.Endpoint()))
	now := time.Unix(1e6, 0)
	l.now = func() time.Time { return now }
	for i, calls := range []int{5, 5, 8} { // two statuses for each of those that are refused at first, and one for each a minute later
		now = now.Add([]time.Duration{0, time.Second, refreshAge}[i])
		got, err := l.List(t.Context())
		if err != nil || r.Calls("ContainerStatus") != calls {
			t.Fatalf("list %d: %d calls, want %d, %v", i, r.Calls("ContainerStatus"), calls, err)
		}
		large, larger, ordinary := got.Containers[0], got.Containers[1], got.Containers[2]
		if !large.Refused || large.OOMScoreAdj == nil || *large.OOMScoreAdj != 900 || *large.MemoryLimit != 4096 || large.LogPath != "/log" {
			t.Errorf("container with a large verbose status = %+v", large)
		}
		if !larger.Refused || larger.OOMScoreAdj != nil {
			t.Errorf("container with a large plain status = %+v", larger)
		}
		if ordinary.Refused || ordinary.PID != 4343 {
			t.Errorf("container with an ordinary status = %+v", ordinary)
		}
		if s := got.Sandboxes[0]; !s.Refused || s.CgroupParent != "" || r.Calls("PodSandboxStatus") != 2 {
			t.Errorf("sandbox with a large status = %+v after %d calls", s, r.Calls("PodSandboxStatus"))
		}
	}
	c := dial(t, r.Endpoint())
	if s, _, err := c.SandboxStatus(t.Context(), "s"); err != nil || !s.Refused {
		t.Errorf("requested by a single call: %+v, error %v", s, err)
	}
	if got, err := c.ContainerStatus(t.Context(), "large"); err != nil || got.LogPath != "/log" {
		t.Errorf("requested by a single call: %+v, error %v", got, err)
	}
	if _, err := c.ContainerStatus(t.Context(), "larger"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error of a single call = %v, want ErrTooLarge", err)
	}
}

// After two timeouts of the verbose status the plain one is requested, for an hour.
func TestSlowVerboseStatus(t *testing.T) {
	r := critest.Start(t)
	r.Containers = []*runtimev1.Container{{Id: "c", State: runtimev1.ContainerState_CONTAINER_RUNNING}}
	r.Info["c"] = crioContainer
	r.ContainerStatuses["c"] = &runtimev1.ContainerStatus{Id: "c",
		Resources: &runtimev1.ContainerResources{Linux: &runtimev1.LinuxContainerResources{OomScoreAdj: 5}}}
	c := dial(t, r.Endpoint())
	l := NewLister(c)
	now := time.Unix(1e6, 0)
	l.now = func() time.Time { return now }
	for i, step := range []struct {
		after time.Duration
		hang  bool
		adj   int64 // 934 is the verbose one's
	}{{0, true, 0}, {retryAge, true, 0}, {0, false, 5}, {refreshAge, false, 5}, {plainAge, false, 934}} {
		r.Change(func() { r.Hang["ContainerStatus"] = step.hang })
		if c.timeouts = defaults; step.hang {
			c.timeouts.status = 100 * time.Millisecond
		}
		now = now.Add(step.after)
		got, err := l.List(t.Context())
		adj := int64(0)
		if err == nil && got.Containers[0].OOMScoreAdj != nil {
			adj = *got.Containers[0].OOMScoreAdj
		}
		if err != nil || adj != step.adj || got.Containers[0].Refused {
			t.Errorf("list %d: %d, want %d, %v", i, adj, step.adj, err)
		}
	}
}

// A root that a verbose status named stays known while only the plain status is requested.
func TestRootStaysKnown(t *testing.T) {
	r := critest.Start(t)
	r.Containers = []*runtimev1.Container{{Id: "c", State: runtimev1.ContainerState_CONTAINER_RUNNING}}
	r.Info["c"] = `{"runtimeSpec":{"root":{"path":"/store/overlay/l1/merged"}}}`
	c := dial(t, r.Endpoint())
	l := NewLister(c)
	now := time.Unix(1e6, 0)
	l.now = func() time.Time { return now }
	for i, hang := range []bool{false, true, true, false} {
		r.Change(func() { r.Hang["ContainerStatus"] = hang })
		if c.timeouts = defaults; hang {
			c.timeouts.status = 50 * time.Millisecond
		}
		now = now.Add(refreshAge)
		got, err := l.List(t.Context())
		if err != nil || got.Containers[0].Root != "/store/overlay/l1/merged" || !got.Containers[0].Detailed {
			t.Errorf("list %d: %+v, error %v, want a root", i, got.Containers, err)
		}
	}
	if !l.containers["c"].plain.After(now) {
		t.Error("the verbose status is still requested")
	}
}

// Large answers are serialized. One that hangs delays the next one only briefly.
func TestLargeAnswersTakeTurns(t *testing.T) { synctest.Test(t, largeAnswersTakeTurns) }

func largeAnswersTakeTurns(t *testing.T) {
	const patience = 10 * patienceForTurn
	turn, began := newTurn(new(atomic.Int64)), time.Now()
	first := turn.wait(t.Context(), patience)
	turn.wait(t.Context(), patience)() // goes without
	if took := time.Since(began); took != patience {
		t.Errorf("waiting time = %v, want %v", took, patience)
	}
	for range 10 { // and no other call waits again
		turn.wait(t.Context(), patience)()
	}
	if took := time.Since(began); took != patience {
		t.Errorf("waiting time of all = %v, want %v", took, patience)
	}
	got := make(chan func())
	began = time.Now()
	go func() { first(); got <- turn.wait(t.Context(), patience) }()
	second := <-got
	turn.wait(t.Context(), patience)() // the patience for the next one starts again
	if took := time.Since(began); took != patience {
		t.Errorf("waiting time for an answer that has just begun = %v, want %v", took, patience)
	}
	second()
	if len(turn.slot) != 0 {
		t.Error("a turn was not released")
	}
}

// An answer that makes progress is awaited for any time: two concurrent ones exceed the memory.
func TestSlowLargeAnswerIsAwaited(t *testing.T) {
	read := new(atomic.Int64)
	turn := newTurn(read)
	first, went := turn.wait(t.Context(), patienceForTurn), make(chan struct{})
	go func() {
		defer close(went)
		turn.wait(t.Context(), patienceForTurn)()
	}()
	for range 20 {
		read.Add(minProgress)
		select {
		case <-went:
			t.Fatal("it did not wait for its turn")
		case <-time.After(patienceForTurn / 5):
		}
	}
	first()
	<-went
}

// One pod with containers that are too large to be listed, which one hook of a tenant can cause,
// does not prevent the listing of others.
func TestListExceedsOneAnswer(t *testing.T) {
	for _, streams := range []bool{false, true} {
		r := node(t)
		r.Streams, r.Batch = streams, 5000
		r.Sandboxes = append(r.Sandboxes, &runtimev1.PodSandbox{Id: "hostile", Metadata: &runtimev1.PodSandboxMetadata{Uid: "h"}})
		for i := range 2 {
			r.Containers = append(r.Containers, &runtimev1.Container{
				Id: fmt.Sprint("h", i), PodSandboxId: "hostile", State: runtimev1.ContainerState_CONTAINER_RUNNING,
				Annotations: map[string]string{"io.kubernetes.container.preStopHandler": strings.Repeat(`\u003c`, maxMessage/6/2)},
			})
		}
		got, err := NewLister(dial(t, r.Endpoint())).List(t.Context())
		if err != nil || len(got.Sandboxes) != 3 || len(got.Containers) != 3 || got.Containers[0].ID != "c1" {
			t.Errorf("list with streams %v = %+v, error %v", streams, got, err)
			continue
		}
		if got.Sandboxes[0].Refused || !got.Sandboxes[2].Refused || got.Containers[0].OOMScoreAdj == nil {
			t.Errorf("list with streams %v = %+v, not as expected", streams, got)
		}
	}
}

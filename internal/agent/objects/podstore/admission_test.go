package podstore

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/stats"
	"jettison/stats/read"
)

// asking returns a pod of about so many bytes when decoded, and fewer as text.
func asking(uid string, bytes int) string {
	return `{"metadata":{"uid":"` + uid + `","namespace":"a","name":"a"},"spec":{"containers":[{"env":[` + strings.Repeat("{},", bytes/40) + `{}]}]}}`
}

// Ask keeps no pod, and releases its memory, with and without an error.
func TestAskKeepsNothing(t *testing.T) {
	s := New()
	for _, c := range []struct {
		text string
		form Form
		err  string
	}{
		{text("a", 1), FormUnknown, ""},
		{text("a", 1), FormJSON, ""},
		{"metadata: {uid: a, namespace: b, name: c}\nspec: {containers: [{}]}", FormYAML, ""},
		{"metadata: {uid: a, namespace: b, name: c}\nspec: {containers: [{}]}", FormUnknown, ""},
		{"metadata: {uid: a, namespace: b, name: c}\nspec: {containers: [{}]}", FormJSON, "invalid character"},
		{"{metadata: {uid: a, namespace: b, name: c}, spec: {containers: [{}]}}", FormYAML, ""},
		{"{metadata: {uid: a, namespace: b, name: c}, spec: {containers: [{}]}}", FormUnknown, "invalid character"},
		{asking("a", 3<<19), FormJSON, ""},
		{asking("a", 3<<20), FormJSON, "too large"},
		{"", FormJSON, "incomplete text"},
		{`{}`, FormJSON, "metadata.uid: missing"},
		{`{"metadata":{"uid":"a","namespace":"b","name":"c"},"specs":{}}`, FormJSON, "spec.containers: missing"},
	} {
		asked, done, err := s.Ask(strings.NewReader(c.text), c.form, ByRoot)
		if got := fmt.Sprint(err); c.err == "" && err != nil || !strings.Contains(got, c.err) || (asked == nil) != (err != nil) {
			t.Errorf("Ask(%.60s): error %v, want %s", c.text, err, c.err)
		}
		if c.err != "" && s.staged.Load()+s.texts.Load() != 0 { // before done
			t.Errorf("after a failed Ask(%.60s) %d and %d bytes are charged, want none", c.text, s.staged.Load(), s.texts.Load())
		}
		done()
		if s.staged.Load()+s.texts.Load() != 0 {
			t.Errorf("after done of Ask(%.60s) %d and %d bytes are charged, want none", c.text, s.staged.Load(), s.texts.Load())
		}
	}
	readErr := errors.New("broken")
	if _, _, err := s.Ask(iotest.ErrReader(readErr), FormUnknown, ByRoot); !errors.Is(err, readErr) {
		t.Errorf("Ask with a failing reader: error %v, want the reader's", err)
	}
	if got := s.Snapshot(); got.Version != 0 || len(got.Pods) != 0 {
		t.Errorf("snapshot after Ask = %+v, want it empty", got)
	}
}

// Ask shares the memory budget with Put. A request beyond it gets an error, unless it is small.
func TestAskIsBounded(t *testing.T) {
	s := New()
	var release []func()
	for i := range 20 {
		_, done, err := s.Ask(strings.NewReader(asking("a", 3<<19)), FormJSON, ByRoot)
		if err != nil {
			if !errors.Is(err, ErrBusy) || i == 0 {
				t.Errorf("Ask number %d: error %v, want ErrBusy, and not for the first", i, err)
			}
			break
		}
		release = append(release, done)
	}
	if len(release) > 10 {
		t.Errorf("%d large pods decoded at the same time, want at most 10", len(release))
	}
	if _, done, err := s.Ask(strings.NewReader(text("b", 1)), FormUnknown, ByRoot); err != nil {
		t.Errorf("Ask with an ordinary pod next to large ones: %v", err)
	} else {
		done()
	}
	for _, f := range release {
		f()
	}
	if s.staged.Load() != 0 || s.texts.Load() != 0 {
		t.Errorf("bytes charged after all releases = %d, %d, want 0", s.staged.Load(), s.texts.Load())
	}
	s.held.Store(MaxMemory) // as if the store were full
	for _, c := range []string{asking("large", 3<<19), `{"metadata":{"uid":"a","namespace":"a","name":"a","labels":{"a":"` + strings.Repeat("v", 1000<<10) + `"}},"spec":{"containers":[{}]}}`} {
		_, done, err := s.Ask(strings.NewReader(c), FormJSON, ByRoot)
		if err != nil {
			t.Errorf("Ask(%.60s) with a full store: %v", c, err)
		}
		done()
	}
	s.held.Store(0)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for range 2 {
				_, done, err := s.Ask(strings.NewReader(asking(fmt.Sprint(i), 1<<20)), FormUnknown, ByRoot)
				if err != nil && !errors.Is(err, ErrBusy) {
					t.Error(err)
				}
				done()
			}
		})
	}
	all.Wait()
	if s.staged.Load() != 0 || s.texts.Load() != 0 {
		t.Errorf("bytes charged after concurrent requests = %d, %d, want 0", s.staged.Load(), s.texts.Load())
	}
}

// The source of a pod is that of its runtime or manifest, not that of the request or of an object
// that a client put.
func TestAskUsesSourceOfRuntimeAndManifests(t *testing.T) {
	s := New()
	put(t, s, false, `{"metadata":{"uid":"put","namespace":"a","name":"a","annotations":{"kubernetes.io/config.source":"file"}}}`)
	s.SetManifests([]*v1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "own", Namespace: "a", Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "b"}}})
	s.SetRuntime(read.Index{"run": {PodRef: stats.PodReference{UID: "run", Namespace: "c", Name: "a"}}})
	for uid, want := range map[string]string{"put": "false ", "own": "true file", "run": "true ", "none": "false "} {
		namespace := "a"
		if uid == "run" {
			namespace = "c"
		}
		asked, done, err := s.Ask(strings.NewReader(fmt.Sprintf(`{"metadata":{"uid":%q,"namespace":%q,"name":"a",
"annotations":{"kubernetes.io/config.source":"http","kubernetes.io/config.mirror":"x","other":"kept"}},"spec":{"containers":[{}]}}`, uid, namespace)), FormJSON, ByRoot)
		if err != nil {
			t.Fatal(err)
		}
		a := asked.Pod.Annotations
		if got := fmt.Sprint(asked.Known, " ", a[sourceAnnotation]); got != want || a["kubernetes.io/config.mirror"] != "" || a["other"] != "kept" {
			t.Errorf("pod %s: known and source = %s, annotations %v; want %s", uid, got, a, want)
		}
		done()
	}
}

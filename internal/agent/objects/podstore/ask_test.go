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

// asking is a pod of about so many bytes when it is decoded, and fewer as text.
func asking(uid string, bytes int) string {
	return `{"metadata":{"uid":"` + uid + `","namespace":"a","name":"a"},"spec":{"containers":[{"env":[` + strings.Repeat("{},", bytes/40) + `{}]}]}}`
}

// Whatever becomes of a pod that asks, nothing is kept of it, and what it took is given back.
func TestAskKeepsNothing(t *testing.T) {
	s := New()
	for _, c := range []struct {
		text string
		form Form
		err  string
	}{
		{text("a", 1), FormUnsaid, ""},
		{text("a", 1), FormJSON, ""},
		{"metadata: {uid: a, namespace: b, name: c}\nspec: {containers: [{}]}", FormYAML, ""},
		{"metadata: {uid: a, namespace: b, name: c}\nspec: {containers: [{}]}", FormUnsaid, ""},
		{"metadata: {uid: a, namespace: b, name: c}\nspec: {containers: [{}]}", FormJSON, "invalid character"},
		{"{metadata: {uid: a, namespace: b, name: c}, spec: {containers: [{}]}}", FormYAML, ""},
		{"{metadata: {uid: a, namespace: b, name: c}, spec: {containers: [{}]}}", FormUnsaid, "invalid character"},
		{asking("a", 3<<19), FormJSON, ""},
		{asking("a", 3<<20), FormJSON, "too large"},
		{"", FormJSON, "ends too early"},
		{`{}`, FormJSON, "metadata.uid: missing"},
		{`{"metadata":{"uid":"a","namespace":"b","name":"c"},"specs":{}}`, FormJSON, "spec.containers: missing"},
	} {
		asked, done, err := s.Ask(strings.NewReader(c.text), c.form, ByRoot)
		if got := fmt.Sprint(err); c.err == "" && err != nil || !strings.Contains(got, c.err) || (asked == nil) != (err != nil) {
			t.Errorf("%.60s: %v, want %s", c.text, err, c.err)
		}
		if c.err != "" && s.staged.Load()+s.texts.Load() != 0 { // already
			t.Errorf("%.60s: %d and %d bytes are taken", c.text, s.staged.Load(), s.texts.Load())
		}
		done()
		if s.staged.Load()+s.texts.Load() != 0 {
			t.Errorf("%.60s: %d and %d bytes are left", c.text, s.staged.Load(), s.texts.Load())
		}
	}
	gone := errors.New("gone")
	if _, _, err := s.Ask(iotest.ErrReader(gone), FormUnsaid, ByRoot); !errors.Is(err, gone) {
		t.Errorf("a reader's error: %v", err)
	}
	if got := s.Snapshot(); got.Version != 0 || len(got.Pods) != 0 {
		t.Errorf("known: %+v", got)
	}
}

// Pods that ask at the same time share the budget with what is put. Those that find no room are told so, and a small one is not.
func TestAskIsBounded(t *testing.T) {
	s := New()
	var release []func()
	for i := range 20 {
		_, done, err := s.Ask(strings.NewReader(asking("a", 3<<19)), FormJSON, ByRoot)
		if err != nil {
			if !errors.Is(err, ErrBusy) || i == 0 {
				t.Errorf("the pod %d: %v", i, err)
			}
			break
		}
		release = append(release, done)
	}
	if len(release) > 10 {
		t.Errorf("%d at the same time", len(release))
	}
	if _, done, err := s.Ask(strings.NewReader(text("b", 1)), FormUnsaid, ByRoot); err != nil {
		t.Errorf("an ordinary one: %v", err)
	} else {
		done()
	}
	for _, f := range release {
		f()
	}
	if s.staged.Load() != 0 || s.texts.Load() != 0 {
		t.Errorf("left: %d, %d", s.staged.Load(), s.texts.Load())
	}
	s.held.Store(MaxMemory) // as many are known as may be
	for _, c := range []string{asking("large", 3<<19), `{"metadata":{"uid":"a","namespace":"a","name":"a","labels":{"a":"` + strings.Repeat("v", 1000<<10) + `"}},"spec":{"containers":[{}]}}`} {
		_, done, err := s.Ask(strings.NewReader(c), FormJSON, ByRoot)
		if err != nil {
			t.Errorf("%.60s, beside as many as there may be: %v", c, err)
		}
		done()
	}
	s.held.Store(0)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for range 2 {
				_, done, err := s.Ask(strings.NewReader(asking(fmt.Sprint(i), 1<<20)), FormUnsaid, ByRoot)
				if err != nil && !errors.Is(err, ErrBusy) {
					t.Error(err)
				}
				done()
			}
		})
	}
	all.Wait()
	if s.staged.Load() != 0 || s.texts.Load() != 0 {
		t.Errorf("left: %d, %d", s.staged.Load(), s.texts.Load())
	}
}

// Where a pod is from, its runtime and manifests say. A client's word for it does not count, nor that of an object that it has put.
func TestAskKnowsWhatRuntimeAndManifestsSay(t *testing.T) {
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
			t.Errorf("%s: %s, %v; want %s", uid, got, a, want)
		}
		done()
	}
}

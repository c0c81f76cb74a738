package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// A list of pods is reduced pod by pod, and its metadata is kept.
func TestListIsReducedPodByPod(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("fieldSelector") != "spec.nodeName=n1" || r.Header.Get("Accept") != "application/json" {
			t.Errorf("request %v accepts %s, want the node's pods as JSON", r.URL, r.Header.Get("Accept"))
		}
		list := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "c"}}
		for i := range 3 {
			list.Items = append(list.Items, v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}, Spec: v1.PodSpec{NodeName: "n1"}})
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	}))
	defer s.Close()
	c, err := New(&rest.Config{Host: s.URL}, "x")
	if err != nil {
		t.Fatal(err)
	}
	cut := func() func(*v1.Pod) *v1.Pod {
		n := 0
		return func(p *v1.Pod) *v1.Pod {
			n++
			return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("cut ", n, " ", p.Name)}}
		}
	}
	pods := cache.ToListerWatcherWithContext(c.NodePods("n1", cut))
	is, err := pods.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	list := is.(*v1.PodList)
	if len(list.Items) != 3 || list.Items[2].Name != "cut 3 2" || list.Items[2].Spec.NodeName != "" || list.ResourceVersion != "7" || list.Continue != "c" {
		t.Errorf("list %+v, want the reduced pods and the metadata", list)
	}
	for _, page := range []struct{ place, want string }{{"c", "cut 4 0"}, {"d", "cut 7 0"}, {"", "cut 1 0"}} { // pages of one list, then a new list
		is, err := pods.ListWithContext(t.Context(), metav1.ListOptions{Continue: page.place})
		if err != nil || is.(*v1.PodList).Items[0].Name != page.want {
			t.Errorf("page %q: %+v, %v, want %s", page.place, is, err, page.want)
		}
	}
}

// A response that is not a complete list of pods is an error, and no pod is dropped.
func TestInvalidList(t *testing.T) {
	keep := func(p *v1.Pod) *v1.Pod { return p }
	for text, want := range map[string]string{
		"":       "EOF",
		"[]":     "got [, want {",
		"<html>": "invalid character",
		`{"kind": "Status", "apiVersion": "v1", "items": []}`:  `got kind "Status"`,
		`{"kind": "PodList", "apiVersion": "v2", "items": []}`: `apiVersion "v2"`,
		`{}`: `got kind ""`, `{"status": "maintenance"}`: `got kind ""`, `{"items": []}`: `got kind ""`,
		`{"kind": "PodList", "apiVersion": "v1", "items": []} <html>`: "unexpected data after",
		`{"kind": "PodList", "apiVersion": "v1", "items": []}{}`:      "unexpected data after",
		`{"kind": "PodList", "items": {}}`:                            "items: got {",
		`{"kind": "PodList", "items": [{}, 7]}`:                       "cannot unmarshal",
		`{"kind": "PodList", "items": [{}`:                            "EOF",
		`{"kind": "PodList", "items": [{}]`:                           "EOF",
		`{"kind": "PodList", "metadata": {"conti`:                     "EOF",
		`{"items": [{"spec": {"containers": "x"}`:                     "EOF",
		`{"kind": "PodList", "items": null, "x": `:                    "EOF",
	} {
		if list, err := readPods(strings.NewReader(text), keep); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: list %v, error %v, want %s", text, list, err, want)
		}
	}
	for text, want := range map[string]int{
		`{"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": null}`: 0,
		`{"items": [{}, {}], "more": [1, {"a": 2}], "kind": "PodList", "apiVersion": "v1"}
`: 2, `{"items": [{}, {}], "items": [{}], "kind": "PodList", "apiVersion": "v1"}`: 1,
	} {
		if list, err := readPods(strings.NewReader(text), keep); err != nil || len(list.Items) != want {
			t.Errorf("%s: list %v, error %v, want its pods", text, list, err)
		}
	}
}

// waiting is a response that never sends anything.
type waiting struct{ ctx context.Context }

func (w waiting) Read([]byte) (int, error) { <-w.ctx.Done(); return 0, w.ctx.Err() }
func (w waiting) Close() error             { return nil }

// A watch whose events are lost, while the connection answers pings, ends after its timeout.
func TestLostWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(&rest.Config{Host: "http://api", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: waiting{r.Context()}}, nil
		})}, "x")
		if err != nil {
			t.Fatal(err)
		}
		pods := cache.ToListerWatcherWithContext(c.NodePods("n1", nil))
		began := time.Now()
		w, err := pods.WatchWithContext(t.Context(), metav1.ListOptions{TimeoutSeconds: new(int64(300))})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		select {
		case <-w.ResultChan():
		case <-time.After(time.Hour):
		}
		if took := time.Since(began); took != 6*time.Minute {
			t.Errorf("watch of 5 minutes ended after %v, want 6m0s", took)
		}
	})
}

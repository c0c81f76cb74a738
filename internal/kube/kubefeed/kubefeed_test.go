package kubefeed

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

func named(name string) *v1.Pod { return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }

// recorded is a Feed that records its calls.
func recorded(calls *[]string) *Feed[*v1.Pod] {
	note := func(what string) func(*v1.Pod) {
		return func(p *v1.Pod) { *calls = append(*calls, what+p.Name) }
	}
	return &Feed[*v1.Pod]{
		Texts: ErrorTexts{Put: "put a", Drop: "drop a", List: "list a"},
		Put:   note("put "), Drop: note("drop "), Activity: func() { *calls = append(*calls, "heard") },
		List: func(n int, all iter.Seq[*v1.Pod]) {
			for range n {
				for p := range all {
					note("list ")(p)
				}
			}
		},
		NewReducer: func() func(*v1.Pod) *v1.Pod {
			n := 0
			return func(*v1.Pod) *v1.Pod { n++; return named(string(rune('0' + n))) }
		},
	}
}

func TestFeedPassesObjectsByType(t *testing.T) {
	var calls []string
	f := recorded(&calls)
	for _, err := range []error{
		f.Add(named("a")), f.Update(named("b")),
		f.Delete(named("a")), f.Delete(cache.DeletedFinalStateUnknown{Obj: named("b")}),
		f.Replace([]any{named("c"), named("d")}, "7"), f.Bookmark("8"), f.Resync(),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"heard", "put a", "heard", "put b", "heard", "drop a", "heard", "drop b",
		"list c", "list d", "list c", "list d", "heard",
	}
	if !slices.Equal(calls, want) {
		t.Errorf("calls = %q, want %q", calls, want)
	}
	calls = nil
	for want, err := range map[string]error{
		"put a *v1.Node": f.Add(&v1.Node{}),
		"drop a string":  f.Delete(cache.DeletedFinalStateUnknown{Obj: "x"}),
		"list a int":     f.Replace([]any{named("a"), 1}, "9"),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("error = %v, want %s", err, want)
		}
	}
	if calls != nil {
		t.Errorf("calls with objects of other types = %q, want none", calls)
	}
}

func TestEachListHasItsOwnCut(t *testing.T) {
	f := recorded(new([]string))
	for range 2 {
		cut := f.Transformer()
		for _, want := range []string{"1", "2"} {
			if out, err := cut(named("a")); err != nil || out.(*v1.Pod).Name != want {
				t.Errorf("cut = %v, %v, want pod %s", out, err, want)
			}
		}
		if out, err := cut("other"); err != nil || out != "other" {
			t.Errorf("cut of another type = %v, %v, want it as it was", out, err)
		}
	}
}

// A reflector that ends is restarted after pauses that double. They are reset after a long run.
func TestRunBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		silent := logr.FromSlogHandler(slog.NewTextHandler(io.Discard, nil))
		failed, runs := errors.New("no answer"), 0
		from := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				if runs++; runs == 4 {
					time.Sleep(time.Minute)
				}
				return nil, failed
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, failed },
		}
		began := time.Now()
		var pauses []time.Duration
		Run(ctx, Options{
			From: from, Kind: &v1.Pod{}, Into: recorded(new([]string)), Reflector: cache.ReflectorOptions{Logger: &silent},
			First: time.Second, Last: 3 * time.Second, Steady: time.Minute,
			PauseAfter: func(_ context.Context, err error, pause time.Duration) time.Duration {
				if !errors.Is(err, failed) {
					t.Errorf("the reflector's error = %v, want %v", err, failed)
				}
				if pauses = append(pauses, pause); len(pauses) == 5 {
					cancel()
				}
				return pause
			},
		})
		want := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, time.Second, 2 * time.Second}
		if took := time.Since(began); !slices.Equal(pauses, want) || took < 67*time.Second || took > 69*time.Second {
			t.Errorf("pauses = %v in %v, want %v in 67s", pauses, took, want)
		}
	})
}

package kubefeed

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
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

// A proxy resets each watch after the headers of its response, sooner or later: the objects are
// listed repeatedly, with pauses, and watched after it recovers.
func TestWatchesThatAreReset(t *testing.T) {
	for _, lasts := range []time.Duration{time.Millisecond, time.Second, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			silent := logr.FromSlogHandler(slog.NewTextHandler(io.Discard, nil))
			var lists, watches atomic.Int64
			var healthy atomic.Bool
			from := &cache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					lists.Add(1)
					return &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []v1.Pod{*named("a")}}, nil
				},
				WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
					watches.Add(1)
					w := watch.NewRaceFreeFake()
					switch {
					case !healthy.Load():
						time.AfterFunc(lasts, w.Stop)
					case o.SendInitialEvents != nil:
						return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
					default:
						w.Add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b", ResourceVersion: "2"}})
					}
					return w, nil
				},
			}
			var calls []string
			done := make(chan struct{})
			go func() {
				defer close(done)
				Run(ctx, Options{
					From: from, Kind: &v1.Pod{}, Into: recorded(&calls),
					Reflector: cache.ReflectorOptions{Logger: &silent, Backoff: &wait.Backoff{Duration: time.Second, Cap: 30 * time.Second, Steps: 10, Factor: 2}},
					First:     time.Second, Last: 30 * time.Second, Steady: 2 * time.Minute,
					PauseAfter: func(_ context.Context, err error, pause time.Duration) time.Duration {
						if err != nil {
							t.Errorf("the reflector's error = %v, want none", err)
						}
						return pause
					},
				})
			}()
			time.Sleep(time.Minute)
			if n := lists.Load(); n < 3 || n > 10 {
				t.Errorf("watches of %v: %d lists in a minute, want 3 to 10", lasts, n)
			}
			time.Sleep(10 * time.Minute)
			if n := lists.Load(); n < 20 || n > 40 {
				t.Errorf("watches of %v: %d lists in eleven minutes, want 20 to 40", lasts, n)
			}
			healthy.Store(true)
			time.Sleep(time.Minute)
			before := watches.Load()
			time.Sleep(time.Hour)
			if n := watches.Load() - before; n != 0 {
				t.Errorf("watches of %v: %d more watches after recovery, want the one that is open", lasts, n)
			}
			cancel()
			<-done
			if !slices.Contains(calls, "put b") {
				t.Errorf("watches of %v: calls %q, want the watch's pod", lasts, calls)
			}
		})
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

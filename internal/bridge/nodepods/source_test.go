package nodepods

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// counted is a context that counts the functions waiting for its end.
type counted struct {
	context.Context
	mu    sync.Mutex
	waits map[int]bool
	last  int
}

// Value hides the underlying context, which would register functions itself.
func (c *counted) Value(any) any { return nil }

// AfterFunc is called by package context for contexts of other types.
func (c *counted) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	id := c.last
	c.waits[id] = true
	stopped := context.AfterFunc(c.Context, f)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waits, id)
		return stopped()
	}
}

// A timer ends with its time or its context and leaves nothing registered with a context that
// continues: a bridge without an API server would create one every half a minute.
func TestTimerLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, end := context.WithCancel(t.Context())
		ctx := &counted{Context: parent, waits: map[int]bool{}}
		c, began := contextClock{ctx: ctx}, time.Now()
		for range 3 {
			<-c.After(30 * time.Second)
		}
		synctest.Wait()
		if took := time.Since(began); took != 90*time.Second || len(ctx.waits) > 0 || ctx.last != 3 {
			t.Errorf("three timers took %v, and %d of %d are left registered", took, len(ctx.waits), ctx.last)
		}
		waits := c.After(time.Hour)
		end()
		<-waits
		if took := time.Since(began); took != 90*time.Second {
			t.Errorf("the last timer went on for %v after the context ended", took-90*time.Second)
		}
		<-c.After(time.Hour) // a timer that starts after the end
	})
}

// A server without streaming lists gets list requests, without a log line. A Retry-After is
// respected.
func TestServerWithoutStreamingLists(t *testing.T) {
	for name, c := range map[string]struct {
		list                error
		least, most, broken int // lists within ten minutes, and log lines about failures
	}{
		"it lists": {nil, 1, 3, 0}, "it asks for time": {apierrors.NewTooManyRequests("later", 60), 9, 11, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lists := 0
				from := &cache.ListWatch{
					ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
						lists++
						return &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, c.list
					},
					WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
						if o.SendInitialEvents != nil {
							return nil, apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", nil)
						}
						return watch.NewFake(), nil
					},
				}
				ctx, cancel := context.WithCancel(t.Context())
				var text strings.Builder
				p := New(Options{Source: from, Agent: &recordingAgent{}, Log: slog.New(slog.NewTextHandler(&text, nil))})
				var beside sync.WaitGroup
				beside.Go(func() { p.Run(ctx) })
				time.Sleep(10 * time.Minute)
				cancel()
				beside.Wait()
				if n := strings.Count(text.String(), "pod watch failed"); lists < c.least || lists > c.most || n != c.broken {
					t.Errorf("%d lists, failure logged %d times:\n%s", lists, n, &text)
				}
			})
		})
	}
}

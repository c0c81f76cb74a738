package kubefeed

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"jettison/internal/base/retry"
)

// Options configures Run.
type Options struct {
	From      cache.ListerWatcher
	Kind      runtime.Object // an empty object
	Into      cache.TransformingStore
	Reflector cache.ReflectorOptions
	// The pause after the end of a reflector's run doubles from First to Last. It is reset after a
	// run of at least Steady.
	First, Last, Steady time.Duration
	// PauseAfter receives the error of each run, which may be nil, and the planned pause. It returns the
	// pause to use.
	PauseAfter func(ctx context.Context, err error, pause time.Duration) time.Duration
}

// Run lists and watches until ctx ends. The reflector sends one list request, or streams the list
// if the server supports it. It resumes an interrupted watch. It lists again if the server has
// expired the resource version, or if watches end without an event.
func Run(ctx context.Context, o Options) {
	from := newSilenceLimit(o.From)
	r := cache.NewReflectorWithOptions(from, o.Kind, countedStore{o.Into, &from.received}, o.Reflector)
	for pause := time.Duration(0); ctx.Err() == nil; {
		began := time.Now()
		err := r.ListAndWatchWithContext(ctx)
		if errors.Is(err, errSilentWatches) {
			err = nil
		}
		if time.Since(began) >= o.Steady {
			pause = 0
		}
		pause = retry.Backoff(pause, o.First, o.Last)
		retry.Sleep(ctx, o.PauseAfter(ctx, err, pause))
	}
}

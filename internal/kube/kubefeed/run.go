package kubefeed

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"jettison/internal/base/retry"
)

// Options of Run.
type Options struct {
	From      cache.ListerWatcher
	Kind      runtime.Object // an empty object
	Into      cache.TransformingStore
	Reflector cache.ReflectorOptions
	// The pause after a reflector has ended doubles from First to Last, and begins again after a
	// run that lasted Steady.
	First, Last, Steady time.Duration
	// Ended gets the error of each run of the reflector, which may be nil, and how long the pause
	// is to be; it returns how long it is.
	Ended func(ctx context.Context, err error, pause time.Duration) time.Duration
}

// Run lists and watches until ctx ends. The reflector lists once, or is sent all objects as a watch
// where the server can; it goes on where a watch that broke off ended, and begins again where the
// server does not know that place any more.
func Run(ctx context.Context, o Options) {
	r := cache.NewReflectorWithOptions(o.From, o.Kind, o.Into, o.Reflector)
	for pause := time.Duration(0); ctx.Err() == nil; {
		began := time.Now()
		err := r.ListAndWatchWithContext(ctx)
		if time.Since(began) >= o.Steady {
			pause = 0
		}
		pause = retry.Backoff(pause, o.First, o.Last)
		retry.Sleep(ctx, o.Ended(ctx, err, pause))
	}
}

package walk

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The share of a core is kept by sleeps in proportion to the work.
func TestAWalkKeepsToItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var worked time.Duration
		pace := Share(func() float64 { return 0.01 }, func() time.Duration { return worked })
		began := time.Now()
		for range 1000 {
			worked += 100 * time.Microsecond
			if err := pace(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 99*(worked-2*time.Millisecond) {
			t.Errorf("%v of work took %v, want the share kept", worked, took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		worked += time.Second
		if err := pace(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("pace after the end returned error %v", err)
		}
	})
}

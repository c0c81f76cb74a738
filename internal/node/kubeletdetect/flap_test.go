package kubeletdetect

import (
	"testing"
	"testing/synctest"
	"time"
)

// A kubelet that restarts every 20 s, and is seen rarely, always counts as present.
func TestRestartingKubeletIsPresent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := true
		w, _, log := newTestWatch(t, &here, 30*time.Millisecond)
		w.LookNow()
		log.Reset()
		for i := range 60 {
			here = i%20 == 19
			time.Sleep(10 * time.Second)
			if w.Tick(time.Now()); w.pending {
				w.OnResult(<-w.Results())
			}
			if !w.Found() || log.Len() > 0 {
				t.Fatalf("after %d s: found %v, log %q", 10*(i+1), w.Found(), log)
			}
		}
	})
}

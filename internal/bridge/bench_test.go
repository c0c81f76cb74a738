package bridge

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
)

// From the agent's record of a victim's death to the acceptance of phase Failed, with an API server
// in this process. The victim dies with its kill, or later.
func BenchmarkDeathToFailed(b *testing.B) {
	for name, alive := range map[string]time.Duration{"atOnce": 0, "later": 200 * time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			c, a := newCluster(b), newAgent(b)
			start(b, c, a, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(io.Discard, nil)) })
			var times []time.Duration
			for n := 0; b.Loop(); n++ {
				pod := running(fmt.Sprint("p", n), fmt.Sprint("u", n))
				c.put(pod)
				a.await("the agent has the pod", func() bool { return a.pods[string(pod.UID)] != nil })
				r := evicted(pod, n, api.OutcomeRunning)
				r.Began.Time = time.Now()
				r.Killed = r.Began
				a.setRecord(r)
				time.Sleep(alive)
				r.Emptied = api.Stamp{Time: time.Now()}
				a.setRecord(r)
				c.await("the pod is Failed", func() bool { return c.pods["shop/"+pod.Name].Status.Phase == v1.PodFailed })
				times = append(times, time.Since(r.Emptied.Time))
				a.setRecord(ended(r))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "ms-p50")
			b.ReportMetric(float64(times[len(times)-1].Microseconds())/1000, "ms-max")
		})
	}
}

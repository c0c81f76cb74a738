package agent

import (
	"context"
	"testing"
	"time"

	"jettison/internal/agent/objects/podstore"
	"jettison/internal/node/nodetest"
	"jettison/stats"
)

// The runtime's data of a pod may be older than an in-place resize. If the object of a member of the
// socket's group, such as the bridge, requests more than that, the next list reads the data again.
func TestDataOlderThanAResizeIsReadAgain(t *testing.T) {
	l := newLoop(t, memoryOnly, nil)
	l.findNoKubelet()
	l.Runs()
	ctx, cancel := context.WithCancel(t.Context())
	defer l.pods.Start(ctx)()
	defer cancel()
	l.onListed(<-l.pods.Updates())
	list := func() int {
		before := l.Runtime.Calls("ContainerStatus")
		l.pods.Ask()
		l.onListed(<-l.pods.Updates())
		return l.Runtime.Calls("ContainerStatus") - before
	}
	*l.looks.Summary() = stats.Summary{Pods: []stats.PodStats{{
		PodRef:   stats.PodReference{UID: nodetest.UID, Namespace: "default", Name: "pod"},
		QOSClass: stats.Burstable, MemoryRequest: stats.Some(stats.ExactRange(100 << 20)),
	}}}
	now, provided := time.Now(), ""
	for _, c := range []struct {
		request string
		after   time.Duration
		want    int
	}{
		{"50Mi", 0, 0},
		{"200Mi", time.Second, 1},
		{"200Mi", 2 * time.Second, 0}, // its data is new
		{"200Mi", 12 * time.Second, 1},
	} {
		if c.request != provided {
			l.provide(t, podstore.ByMember, `[{"metadata": {"uid": "`+nodetest.UID+`", "namespace": "default", "name": "pod"},
			"spec": {"priority": 0, "containers": [{"name": "c", "resources": {"requests": {"memory": "`+c.request+`"}}}]}}]`)
			provided = c.request
		}
		l.onTick(t.Context(), now.Add(c.after))
		if got := list(); got != c.want {
			t.Errorf("object requests %s, after %v: %d container statuses read, want %d", c.request, c.after, got, c.want)
		}
	}
}

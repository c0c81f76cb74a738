package podstore

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/eviction"
)

// Other callers have the store's lock while a large object is compared with the known one; the loop
// is one of them.
func TestObjectsAreComparedWithoutLock(t *testing.T) {
	large := func() *entry { // larger than allowed, so that the comparison outlasts other work of the machine
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Labels: map[string]string{}}}
		for i := range 300_000 {
			p.Labels[fmt.Sprint("k", i)] = ""
		}
		return &entry{object: p, pod: eviction.NewPod(p)}
	}
	s := New()
	s.clients.members = layer{"u": large()}
	q, e := &request{s: s, by: ByMember}, large()
	var longest atomic.Int64 // wait of other callers in nanoseconds
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for last := time.Now(); ; {
			select {
			case <-stop:
				return
			default:
				s.SetRuntime(nil)
				now := time.Now()
				longest.Store(max(longest.Load(), int64(now.Sub(last))))
				last = now
			}
		}
	}()
	free := false
	for i := 0; i < 20 && !free; i++ { // either goroutine may have no processor meanwhile
		longest.Store(0)
		began := time.Now()
		if q.reuse(e) == nil {
			t.Fatal("equal object not reused")
		}
		took := int64(time.Since(began))
		waited := longest.Load()
		free = waited > 0 && waited < took/4
	}
	close(stop)
	<-done
	if q.release(); !free {
		t.Error("other callers wait during the whole comparison")
	}
}

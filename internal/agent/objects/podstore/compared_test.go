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

// Others have the store while a member's large object is compared with the one that is known: the loop is among them.
func TestObjectsAreComparedWithoutTheLock(t *testing.T) {
	large := func() *entry { // of more than there may be, so that it takes longer than what the machine does beside
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Labels: map[string]string{}}}
		for i := range 300_000 {
			p.Labels[fmt.Sprint("k", i)] = ""
		}
		return &entry{object: p, pod: eviction.NewPod(p)}
	}
	s := New()
	s.clients.members = layer{"u": large()}
	u, e := &underway{s: s, by: ByMember}, large()
	var longest atomic.Int64 // time that others had to wait, in nanoseconds
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
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
	for i := 0; i < 20 && !free; i++ { // either may be without a processor meanwhile
		longest.Store(0)
		began := time.Now()
		if u.known(e) == nil {
			t.Fatal("it is not the same")
		}
		took := int64(time.Since(began))
		waited := longest.Load()
		free = waited > 0 && waited < took/4
	}
	close(stop)
	<-over
	if u.end(); !free {
		t.Error("others wait for as long as objects are compared")
	}
}

package limits

import (
	"encoding/json"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/internal/base/podjson"
	"jettison/stats"
)

// told is an object as it is decoded, whose quantities with a fraction are pointers.
func told(t testing.TB, spec string) *v1.Pod {
	t.Helper()
	object := &v1.Pod{}
	if err := json.Unmarshal([]byte(`{"metadata":{"name":"p","namespace":"ns","uid":"u"},"spec":`+spec+`}`), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// A pass reads the objects that the hooks in the runtime decide by meanwhile: what a pod requests is the same before, beside and after it.
func TestAPassLeavesObjectsAlone(t *testing.T) {
	object := podjson.Trim(told(t, `{"overhead":{"memory":"160Mi"},"resources":{"requests":{"memory":"1.5Gi"}},"containers":[{"name":"c"}]}`))
	held := func() int64 {
		h := admit.HeldBy(admit.PodAttributes{Pod: object})
		return h.Requests["memory"]
	}
	before := held()
	var both sync.WaitGroup
	both.Go(func() {
		for range 100 {
			p := (&Known{}).pod(stats.PodCgroup{Path: "kubepods/burstable/podu", UID: "u", QOSClass: stats.Burstable}, object, nil)
			if p.Request != some(1696*mib) {
				t.Errorf("protects %+v", p.Request)
				return
			}
		}
	})
	both.Go(func() {
		for range 100 {
			if now := held(); now != before {
				t.Errorf("admission counts %d, and %d before", now, before)
				return
			}
		}
	})
	both.Wait()
}

// What is protected is what admission counts, and a kubelet writes: by what an API server would have filled in.
func TestWhatIsProtectedIsWhatAdmissionCounts(t *testing.T) {
	for spec, want := range map[string]uint64{
		`{"resources":{"limits":{"cpu":"1","memory":"1Gi"}},"containers":[{"name":"c"}]}`:                                                1024 * mib,
		`{"resources":{"limits":{"memory":"1Gi"}},"containers":[{"name":"c","resources":{"requests":{"memory":"10Mi"}}}]}`:               10 * mib,
		`{"resources":{"limits":{"cpu":"1"}},"containers":[{"name":"c","resources":{"limits":{"memory":"20Mi"}}}]}`:                      20 * mib,
		`{"overhead":{"memory":"1Mi"},"containers":[{"name":"c","resources":{"limits":{"memory":"20Mi"}}},{"name":"d"}]}`:                21 * mib,
		`{"containers":[{"name":"c","resources":{"requests":{"memory":"-20Mi"}}},{"name":"d","resources":{"limits":{"memory":"5Mi"}}}]}`: 5 * mib,
	} {
		object := told(t, spec)
		p := (&Known{}).pod(stats.PodCgroup{Path: "kubepods/podu", UID: "u", QOSClass: stats.Guaranteed}, object, nil)
		held := admit.HeldBy(admit.PodAttributes{Pod: object})
		if p.Request != some(want) || held.Requests["memory"] != int64(want) {
			t.Errorf("%s: protects %+v, admission counts %d, want %d", spec, p.Request, held.Requests["memory"], want)
		}
	}
}

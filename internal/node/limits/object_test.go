package limits

import (
	"encoding/json"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/cgroup"
	"jettison/internal/base/podjson"
	"jettison/internal/node/manifests"
	"jettison/stats"
)

// decoded returns a decoded object, in which quantities with a fraction are pointers.
func decoded(t testing.TB, spec string) *v1.Pod {
	t.Helper()
	object := &v1.Pod{}
	if err := json.Unmarshal([]byte(`{"metadata":{"name":"p","namespace":"ns","uid":"u"},"spec":`+spec+`}`), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// A pass reads objects that the runtime's hooks use concurrently: a pod's request is the same
// before, during and after it.
func TestPassKeepsObjects(t *testing.T) {
	object := podjson.Trim(decoded(t, `{"overhead":{"memory":"160Mi"},"resources":{"requests":{"memory":"1.5Gi"}},"containers":[{"name":"c"}]}`))
	held := func() int64 {
		h := admit.HeldBy(admit.PodAttributes{Pod: object})
		return h.Requests["memory"]
	}
	before := held()
	var both sync.WaitGroup
	both.Go(func() {
		for range 100 {
			p := (&Known{}).pod(stats.PodCgroup{Path: "kubepods/burstable/podu", UID: "u", QOSClass: stats.Burstable}, object, nil, nil)
			if p.Request != some(1696*mib) {
				t.Errorf("request in the plan = %+v, want the pod's", p.Request)
				return
			}
		}
	})
	both.Go(func() {
		for range 100 {
			if now := held(); now != before {
				t.Errorf("admission counts %d after the pass, %d before", now, before)
				return
			}
		}
	})
	both.Wait()
}

// A manifest passes no API server, which would complete its pod-level resources: a kubelet protects what
// its containers request, and takes its limit from the containers (pkg/kubelet/cm/helpers_linux.go
// ResourceConfigForPod, ApplyPodLevelMemoryHigh).
func TestPodLevelResourcesOfAManifest(t *testing.T) {
	for _, c := range []struct {
		spec            string
		request, limit  uint64 // of the manifest
		asAPI, apiLimit uint64 // of an equal object
	}{
		{`{"resources":{"limits":{"memory":"1Gi"}},"containers":[{"name":"c"}]}`, 0, 1024 * mib, 1024 * mib, 1024 * mib},
		{`{"resources":{"limits":{"memory":"1Gi"}},"containers":[{"name":"c","resources":{"limits":{"memory":"20Mi"}}}]}`, 20 * mib, 1024 * mib, 20 * mib, 1024 * mib},
		{`{"overhead":{"memory":"1Mi"},"resources":{"requests":{"memory":"10Mi"}},"containers":[{"name":"c","resources":{"limits":{"memory":"20Mi"}}}]}`, 11 * mib, 21 * mib, 11 * mib, 21 * mib},
		{`{"resources":{"requests":{"memory":"30Mi"}},"containers":[{"name":"c","resources":{"limits":{"memory":"20Mi"}}}]}`, 30 * mib, 20 * mib, 30 * mib, 30 * mib},
		{`{"resources":{"requests":{"memory":"10Mi"}},"containers":[{"name":"c","resources":{"limits":{"memory":"20Mi"}}},{"name":"d"}]}`, 10 * mib, 0, 10 * mib, 0},
		{`{"resources":{"requests":{}},"containers":[{"name":"c","resources":{"limits":{"memory":"20Mi"}}}]}`, 20 * mib, 0, 20 * mib, 0},
	} {
		object := decoded(t, c.spec)
		if got := newClaim(object); got.request != c.asAPI || got.limit != c.apiLimit {
			t.Errorf("object %s: request %d, limit %d, want %d and %d", c.spec, got.request, got.limit, c.asAPI, c.apiLimit)
		}
		object = manifests.Static(object, stats.PodReference{Namespace: "ns", Name: "p", UID: "u"})
		if got := newClaim(object); got.request != c.request || got.limit != c.limit {
			t.Errorf("manifest %s: request %d, limit %d, want %d and %d", c.spec, got.request, got.limit, c.request, c.limit)
		}
	}
}

// The protected request equals the one that admission counts and a kubelet writes, with the
// defaults of the API server.
func TestProtectedRequestMatchesAdmission(t *testing.T) {
	for spec, want := range map[string]uint64{
		`{"resources":{"limits":{"cpu":"1","memory":"1Gi"}},"containers":[{"name":"c"}]}`:                                                                               1024 * mib,
		`{"resources":{"limits":{"memory":"1Gi"}},"containers":[{"name":"c","resources":{"requests":{"memory":"10Mi"}}}]}`:                                              10 * mib,
		`{"resources":{"limits":{"cpu":"1"}},"containers":[{"name":"c","resources":{"limits":{"memory":"20Mi"}}}]}`:                                                     20 * mib,
		`{"overhead":{"memory":"1Mi"},"containers":[{"name":"c","resources":{"limits":{"memory":"20Mi"}}},{"name":"d"}]}`:                                               21 * mib,
		`{"containers":[{"name":"c","resources":{"requests":{"memory":"-20Mi"}}},{"name":"d","resources":{"limits":{"memory":"5Mi"}}}]}`:                                5 * mib,
		`{"containers":[{"name":"c","resources":{"requests":{"memory":"1Ti"}}}]},"status":{"containerStatuses":[{"name":"c","allocatedResources":{"memory":"100Mi"}}]}`: 100 * mib,
	} {
		object := decoded(t, spec)
		p := (&Known{}).pod(stats.PodCgroup{Path: "kubepods/podu", UID: "u", QOSClass: stats.Guaranteed}, object, nil,
			func(string) stats.Opt[cgroup.Limit] { return stats.Opt[cgroup.Limit]{} })
		held := admit.HeldBy(admit.PodAttributes{Pod: object})
		if p.Request != some(want) || held.Requests["memory"] != int64(want) {
			t.Errorf("pod %s: protected %+v, admission counts %d, want %d", spec, p.Request, held.Requests["memory"], want)
		}
	}
}

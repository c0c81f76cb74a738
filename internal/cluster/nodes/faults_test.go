package nodes

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/internal/cluster/config"
)

// seeds is the number of random histories, and fewSeeds the number under -short.
const seeds, fewSeeds = 12, 3

// podDeadline returns the earliest deadline over all NoExecute taints of the node.
func podDeadline(n *v1.Node, p *v1.Pod) (at time.Time, ever bool) {
	if n == nil {
		return at, false
	}
	for _, t := range n.Spec.Taints {
		if t.Effect != v1.TaintEffectNoExecute || t.TimeAdded == nil {
			continue
		}
		end := t.TimeAdded.Time
		if len(p.Spec.Tolerations) > 0 {
			end = end.Add(time.Duration(*p.Spec.Tolerations[0].TolerationSeconds) * time.Second)
		}
		if !ever || end.Before(at) {
			at, ever = end, true
		}
	}
	return at, ever
}

// history is a cluster with two replicas and random faults of the API server.
type history struct {
	t            *testing.T
	api          *api
	kubelets     *kubelets
	random       *rand.Rand
	replicas     []*replica
	faultPercent int // percentage of requests that fail
	started      int
}

// fault injects random faults. The lock must not be held.
func (h *history) fault(_ string, r *http.Request) int {
	h.api.mu.Lock()
	defer h.api.mu.Unlock()
	if h.random.IntN(100) >= h.faultPercent || strings.Contains(r.URL.Path, "/events") {
		return 0
	}
	return []int{-1, http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable,
		http.StatusForbidden}[h.random.IntN(6)]
}

// draw returns a random number below n. The lock must not be held.
func (h *history) draw(n int) int {
	h.api.mu.Lock()
	defer h.api.mu.Unlock()
	return h.random.IntN(n)
}

func (h *history) startReplica() {
	h.started++
	h.replicas = append(h.replicas, h.api.start(fmt.Sprint("r", h.started), func(c *config.Cluster) { c.Doubt = h.draw(2) == 0 }))
}

// injectEvent injects a random event.
func (h *history) injectEvent() {
	name := fmt.Sprint("n", h.draw(len(h.kubelets.alive)))
	switch h.draw(8) {
	case 0, 1:
		h.kubelets.setAlive(name, false)
	case 2:
		h.kubelets.setAlive(name, true)
	case 3: // all watches end
		h.api.change(func() { h.api.watchEnds++ })
	case 4: // and cannot resume
		h.api.change(func() { h.api.watchEnds, h.api.expiredBelow = h.api.watchEnds+1, h.api.version })
	case 5: // a replica is killed or stopped, and another one starts
		old := h.replicas[0]
		h.replicas = h.replicas[1:]
		if h.draw(2) == 0 {
			old.disconnect() // killed: no request gets through
			old.stop()
		} else {
			old.stop()
			old.disconnect()
		}
		h.startReplica()
	}
}

// checkWrites checks all completed writes.
func (h *history) checkWrites() {
	deleted := map[string]int{}
	tainted := map[string][]time.Time{}
	for _, w := range h.api.writes() {
		verb, name, _ := strings.Cut(w.what, " ")
		since := w.at.Sub(h.api.startedAt)
		switch verb {
		case "delete":
			if at, ever := podDeadline(w.node, w.pod); !ever || w.at.Before(at) {
				h.t.Errorf("%v: replica %s deletes pod %s before its deadline %v (has one: %v)", since, w.client, name, at.Sub(h.api.startedAt), ever)
			}
			if deleted[string(w.uid)]++; !w.disrupts && deleted[string(w.uid)] > 1 {
				h.t.Errorf("%v: pod %s is deleted %d times, want once", since, name, deleted[string(w.uid)])
			}
		case "status":
			if silent := w.at.Sub(w.renewedAt); silent < 49*time.Second {
				h.t.Errorf("%v: replica %s makes node %s Unknown %v after its renewal, want at least 49s", since, w.client, name, silent)
			}
		case "taints":
			if !hasNoExecute(w.node) && hasNoExecute(w.written) {
				tainted[name] = append(tainted[name], w.at)
				if w.node.Status.Conditions[readyIndex(w.node)].Status == v1.ConditionTrue {
					h.t.Errorf("%v: replica %s taints ready node %s", since, w.client, name)
				}
			}
		}
	}
	var all []time.Time
	for _, at := range tainted {
		all = append(all, at...)
	}
	// the rate of the only zone is one node in ten seconds, also across restarts
	for i, a := range all {
		for _, b := range all[i+1:] {
			if apart := a.Sub(b).Abs(); apart < 8900*time.Millisecond {
				h.t.Errorf("two nodes are tainted %v apart, want at least 8.9s", apart)
			}
		}
	}
}

func hasNoExecute(n *v1.Node) bool {
	for _, t := range n.Spec.Taints {
		if t.Effect == v1.TaintEffectNoExecute {
			return true
		}
	}
	return false
}

// unsettled describes an object that is not in its final state; empty: all are.
func (h *history) unsettled() string {
	h.api.mu.Lock()
	defer h.api.mu.Unlock()
	for key, p := range h.api.pods {
		if at, ever := podDeadline(h.api.nodes[p.Spec.NodeName], p); ever && p.DeletionTimestamp == nil && time.Since(at) > 2*time.Second {
			return fmt.Sprintf("%s was due %v ago", key, time.Since(at))
		}
	}
	for name, alive := range h.kubelets.alive {
		if alive && len(h.api.nodes[name].Spec.Taints) > 0 {
			return name + " is alive and has taints"
		}
		if !alive && !h.api.hasTaint(name, v1.TaintNodeUnreachable, v1.TaintEffectNoSchedule) {
			return name + " is dead and has no taint"
		}
	}
	return ""
}

// With any faults and any leader: no pod is deleted before its deadline or without a taint, no live
// node is tainted, and the rate limit holds. After the last fault, all due writes are done.
func TestFaultsBreakNoPromise(t *testing.T) {
	n := uint64(seeds)
	if testing.Short() {
		n = fewSeeds
	}
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &history{t: t, api: newAPI(t), random: rand.New(rand.NewPCG(seed, 1)), faultPercent: 0}
				h.kubelets = h.api.cluster(5, -1, 20, 45)
				h.api.fault = h.fault
				h.startReplica()
				h.startReplica()
				time.Sleep(15 * time.Second)
				h.api.change(func() { h.faultPercent = 5 + h.random.IntN(40) })
				for range 25 {
					h.injectEvent()
					time.Sleep(time.Duration(1+h.draw(20)) * time.Second)
				}
				h.api.change(func() { h.faultPercent = 0 })
				// at least one node is alive: otherwise the disruption is full
				h.kubelets.setAlive("n0", true)
				time.Sleep(3 * time.Minute)
				if why := h.unsettled(); why != "" {
					t.Error("not settled three minutes after the last fault: ", why)
				}
				h.checkWrites()
				h.kubelets.end()
				stopAll(h.replicas...)
			})
		})
	}
}

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

// seeds are how many random histories are played, and how many under -short.
const seeds, fewSeeds = 12, 3

// due is when a pod has to go by the plain rule: the least over all NoExecute taints of its node.
func due(n *v1.Node, p *v1.Pod) (at time.Time, ever bool) {
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

// history is a cluster of two replicas whose API fails at random.
type history struct {
	t        *testing.T
	a        *api
	k        *kubelets
	random   *rand.Rand
	replicas []*replica
	odds     int // of a hundred requests so many fail
	made     int
}

// fault is asked by whoever serves a request. The lock is not held.
func (h *history) fault(_ string, r *http.Request) int {
	h.a.mu.Lock()
	defer h.a.mu.Unlock()
	if h.random.IntN(100) >= h.odds || strings.Contains(r.URL.Path, "/events") {
		return 0
	}
	return []int{-1, http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable,
		http.StatusForbidden}[h.random.IntN(6)]
}

// draw draws a number below n. The lock is not held.
func (h *history) draw(n int) int {
	h.a.mu.Lock()
	defer h.a.mu.Unlock()
	return h.random.IntN(n)
}

func (h *history) begin() {
	h.made++
	h.replicas = append(h.replicas, h.a.start(fmt.Sprint("r", h.made), func(c *config.Cluster) { c.Doubt = h.draw(2) == 0 }))
}

// happen has something happen.
func (h *history) happen() {
	name := fmt.Sprint("n", h.draw(len(h.k.alive)))
	switch h.draw(8) {
	case 0, 1:
		h.k.live(name, false)
	case 2:
		h.k.live(name, true)
	case 3: // all watches break off
		h.a.change(func() { h.a.drops++ })
	case 4: // and cannot be gone on with
		h.a.change(func() { h.a.drops, h.a.expired = h.a.drops+1, h.a.version })
	case 5: // a replica is killed, or stopped, and another begins
		old := h.replicas[0]
		h.replicas = h.replicas[1:]
		if h.draw(2) == 0 {
			old.cut() // nothing of it comes through any more
			old.stop()
		} else {
			old.stop()
			old.cut()
		}
		h.begin()
	}
}

// judge looks at all writes.
func (h *history) judge() {
	deleted := map[string]int{}
	tainted := map[string][]time.Time{}
	for _, w := range h.a.writes() {
		verb, name, _ := strings.Cut(w.what, " ")
		since := w.at.Sub(h.a.began)
		switch verb {
		case "delete":
			if at, ever := due(w.node, w.pod); !ever || w.at.Before(at) {
				h.t.Errorf("%v: %s deletes %s before its time, %v %v", since, w.client, name, at.Sub(h.a.began), ever)
			}
			if deleted[string(w.uid)]++; !w.disrupts && deleted[string(w.uid)] > 1 {
				h.t.Errorf("%v: %s is deleted %d times", since, name, deleted[string(w.uid)])
			}
		case "status":
			if silent := w.at.Sub(w.leased); silent < 49*time.Second {
				h.t.Errorf("%v: %s makes %s Unknown, which renewed %v ago", since, w.client, name, silent)
			}
		case "taints":
			if !evicts(w.node) && evicts(w.is) {
				tainted[name] = append(tainted[name], w.at)
				if w.node.Status.Conditions[ready(w.node)].Status == v1.ConditionTrue {
					h.t.Errorf("%v: %s taints %s, which is ready", since, w.client, name)
				}
			}
		}
	}
	var all []time.Time
	for _, at := range tainted {
		all = append(all, at...)
	}
	for i, a := range all { // the rate of the one zone is a node in ten seconds, restarts included
		for _, b := range all[i+1:] {
			if apart := a.Sub(b).Abs(); apart < 8900*time.Millisecond {
				h.t.Errorf("two nodes are tainted %v apart", apart)
			}
		}
	}
}

func evicts(n *v1.Node) bool {
	for _, t := range n.Spec.Taints {
		if t.Effect == v1.TaintEffectNoExecute {
			return true
		}
	}
	return false
}

// settled reports what is due and is still there once the API answers; empty: nothing.
func (h *history) settled() string {
	h.a.mu.Lock()
	defer h.a.mu.Unlock()
	for key, p := range h.a.pods {
		if at, ever := due(h.a.nodes[p.Spec.NodeName], p); ever && p.DeletionTimestamp == nil && time.Since(at) > 2*time.Second {
			return fmt.Sprintf("%s was due %v ago", key, time.Since(at))
		}
	}
	for name, alive := range h.k.alive {
		if alive && len(h.a.nodes[name].Spec.Taints) > 0 {
			return name + " lives and has taints"
		}
		if !alive && !h.a.hasTaint(name, v1.TaintNodeUnreachable, v1.TaintEffectNoSchedule) {
			return name + " is dead and has no taint"
		}
	}
	return ""
}

// Whatever fails and whoever leads: no pod goes before its time or without a taint, no node that lives is tainted, the rate holds, and once
// the API answers all that is due goes within a minute.
func TestFaultsBreakNoPromise(t *testing.T) {
	n := uint64(seeds)
	if testing.Short() {
		n = fewSeeds
	}
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &history{t: t, a: newAPI(t), random: rand.New(rand.NewPCG(seed, 1)), odds: 0}
				h.k = h.a.cluster(5, -1, 20, 45)
				h.a.fault = h.fault
				h.begin()
				h.begin()
				time.Sleep(15 * time.Second)
				h.a.change(func() { h.odds = 5 + h.random.IntN(40) })
				for range 25 {
					h.happen()
					time.Sleep(time.Duration(1+h.draw(20)) * time.Second)
				}
				h.a.change(func() { h.odds = 0 })
				h.k.live("n0", true) // one lives at least, or all would be doubted for ever
				time.Sleep(3 * time.Minute)
				if why := h.settled(); why != "" {
					t.Error("three minutes after the last fault: ", why)
				}
				h.judge()
				h.k.end()
				end(h.replicas...)
			})
		})
	}
}

package endpoints

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"jettison/internal/agent/nodestats"
)

// encoded is the last Summary as text: however many ask for one, it is made once and in memory
// once.
type encoded struct {
	mu     sync.Mutex
	of     *v1alpha1.Summary // nil: none yet, or it is forgotten
	json   [2][]byte         // all of it; what CPU and memory are
	err    error
	forget *time.Timer // nil: none was there yet
}

// kept is how long it is in memory for others that ask. A Summary is a newer one after a second,
// and of many pods it has megabytes.
const kept = 2 * time.Second

// text of a Summary.
func (c *encoded) text(s *v1alpha1.Summary, little bool) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of != s {
		c.of, c.json, c.err = s, [2][]byte{}, nil
		if c.forget == nil {
			c.forget = time.AfterFunc(kept, c.drop)
		} else {
			c.forget.Reset(kept)
		}
	}
	at, of := 0, s
	if little {
		at, of = 1, cpuAndMemory(s)
	}
	if c.json[at] == nil && c.err == nil {
		c.json[at], c.err = json.Marshal(of)
	}
	return c.json[at], c.err
}

func (c *encoded) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of, c.json, c.err = nil, [2][]byte{}, nil
}

// cpuAndMemory is the part of a Summary that a kubelet answers with where only that is wanted
// (pkg/kubelet/server/stats/summary.go GetCPUAndMemoryStats, v1.36).
func cpuAndMemory(s *v1alpha1.Summary) *v1alpha1.Summary {
	n := &s.Node
	out := &v1alpha1.Summary{Node: v1alpha1.NodeStats{
		NodeName: n.NodeName, StartTime: n.StartTime, CPU: n.CPU, Memory: n.Memory, Swap: n.Swap,
		SystemContainers: n.SystemContainers,
	}, Pods: make([]v1alpha1.PodStats, 0, len(s.Pods))}
	for i := range s.Pods {
		p := &s.Pods[i]
		little := v1alpha1.PodStats{PodRef: p.PodRef, StartTime: p.StartTime, CPU: p.CPU,
			Memory: p.Memory, Swap: p.Swap}
		for j := range p.Containers {
			c := &p.Containers[j]
			little.Containers = append(little.Containers, v1alpha1.ContainerStats{
				Name: c.Name, StartTime: c.StartTime, CPU: c.CPU, Memory: c.Memory, Swap: c.Swap,
			})
		}
		out.Pods = append(out.Pods, little)
	}
	return out
}

// summary is GET /stats/summary[?only_cpu_and_memory=true].
func (e *Endpoints) summary(w http.ResponseWriter, r *http.Request) {
	values, ok := parameters(w, r, "only_cpu_and_memory")
	if !ok {
		return
	}
	little, ok := flag(w, values, "only_cpu_and_memory")
	if !ok {
		return
	}
	s, err := e.o.Stats.Take(r.Context(), !little)
	if err != nil {
		fail(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	text, err := e.encoded.text(s, little)
	if err != nil {
		fail(w, http.StatusInternalServerError, "cannot be written as JSON: "+err.Error())
		return
	}
	sendJSON(w, text)
}

// resource is GET /metrics/resource. That nothing can be told is told in it, as a kubelet does.
func (e *Endpoints) resource(w http.ResponseWriter, r *http.Request) {
	if _, ok := parameters(w, r); !ok {
		return
	}
	s, err := e.o.Stats.Take(r.Context(), false)
	if err != nil {
		s = nil
	}
	w.Header().Set("Content-Type", textFormat)
	_, _ = w.Write(nodestats.Resource(s))
}

package endpoints

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"jettison/internal/agent/nodestats"
)

// encoded caches the last Summary as text, so that concurrent requests encode and hold it once.
type encoded struct {
	mu      sync.Mutex
	summary *v1alpha1.Summary // nil: none yet, or dropped
	json    [2][]byte         // the whole Summary; CPU and memory only
	err     error
	expiry  *time.Timer // nil: no Summary was encoded yet
}

// cacheTime is the time for which the text stays in memory. A Summary is replaced after a second,
// and with many pods it has megabytes.
const cacheTime = 2 * time.Second

// text returns the JSON of a Summary. brief: CPU and memory only.
func (c *encoded) text(s *v1alpha1.Summary, brief bool) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.summary != s {
		c.summary, c.json, c.err = s, [2][]byte{}, nil
		if c.expiry == nil {
			c.expiry = time.AfterFunc(cacheTime, c.drop)
		} else {
			c.expiry.Reset(cacheTime)
		}
	}
	at, part := 0, s
	if brief {
		at, part = 1, cpuAndMemory(s)
	}
	if c.json[at] == nil && c.err == nil {
		c.json[at], c.err = json.Marshal(part)
	}
	return c.json[at], c.err
}

func (c *encoded) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.summary, c.json, c.err = nil, [2][]byte{}, nil
}

// cpuAndMemory returns the part of a Summary that a kubelet returns for only_cpu_and_memory
// (pkg/kubelet/server/stats/summary.go GetCPUAndMemoryStats, v1.37).
func cpuAndMemory(s *v1alpha1.Summary) *v1alpha1.Summary {
	n := &s.Node
	out := &v1alpha1.Summary{Node: v1alpha1.NodeStats{
		NodeName: n.NodeName, StartTime: n.StartTime, CPU: n.CPU, Memory: n.Memory, Swap: n.Swap,
		SystemContainers: n.SystemContainers,
	}, Pods: make([]v1alpha1.PodStats, 0, len(s.Pods))}
	for i := range s.Pods {
		p := &s.Pods[i]
		brief := v1alpha1.PodStats{PodRef: p.PodRef, StartTime: p.StartTime, CPU: p.CPU,
			Memory: p.Memory, Swap: p.Swap}
		for j := range p.Containers {
			c := &p.Containers[j]
			brief.Containers = append(brief.Containers, v1alpha1.ContainerStats{
				Name: c.Name, StartTime: c.StartTime, CPU: c.CPU, Memory: c.Memory, Swap: c.Swap,
			})
		}
		out.Pods = append(out.Pods, brief)
	}
	return out
}

// summary serves GET /stats/summary[?only_cpu_and_memory=true].
func (e *Endpoints) summary(w http.ResponseWriter, r *http.Request) {
	values, ok := parameters(w, r, "only_cpu_and_memory")
	if !ok {
		return
	}
	brief, ok := flag(w, values, "only_cpu_and_memory")
	if !ok {
		return
	}
	s, err := e.o.Stats.Take(r.Context(), !brief)
	if err != nil {
		fail(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	text, err := e.encoded.text(s, brief)
	if err != nil {
		fail(w, http.StatusInternalServerError, "encode as JSON: "+err.Error())
		return
	}
	sendJSON(w, text)
}

// resource serves GET /metrics/resource. Without stats it reports a scrape error in the metrics, as
// a kubelet does.
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
